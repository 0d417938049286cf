//! A connector that fails on purpose, by script or by chance, between an SDK client and an engine; and remembers what passed through.

mod gate;
mod rule;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use serde_json::{Value, json};

use super::wire::{self, Answer};
use crate::Env;

pub use gate::Gate;
pub use rule::{Rule, When};

/// Stands between a client and an engine. Clones share rules, log and chance.
///
/// ```
/// # use fencepost::{Engine, testing::{Faults, Rule}};
/// # fn main() -> fencepost::Result<()> {
/// let faults = Faults::new(Engine::memory()?.keep_tokens().http_client(), 7);
/// faults.script(Rule::on("PutItem").nth(1).lose_response());
/// let http = faults.http_client(); // for the SDK's config
/// assert_eq!(faults.calls("PutItem"), 0);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Faults {
    inner: SharedHttpClient,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    env: Env,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    rules: Vec<Rule>,
    chances: Chances,
    log: Vec<Call>,
}

/// What happens to one request.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// Not delivered: `ProvisionedThroughputExceededException`.
    Throttle,
    /// Not delivered: `ThrottlingException`.
    ThrottleAccount,
    /// Not delivered: a 500 `InternalServerError`.
    InternalError,
    /// Not delivered: the connection breaks.
    LoseRequest,
    /// Delivered, and then the connection breaks.
    LoseResponse,
    /// Delivered, and then the connector's own time-out.
    TimeOut,
    /// Delivered, and half of the answer comes back, with its status.
    Truncate,
    /// Delivered twice, one after the other; the second answer comes back.
    DeliverTwice,
    /// The connection breaks now; delivered when the gate lets it pass, whatever has happened since.
    DeliverLate(Gate),
    /// Not delivered, and never answered.
    Hang,
    /// Delivered later.
    Delay(Duration),
    /// Not delivered: a transaction is cancelled with reason `TransactionConflict` on one of its items, drawn by the seed; another
    /// operation is answered `TransactionConflictException`.
    Conflict,
    /// Not delivered: `TransactionInProgressException`.
    InProgress,
    /// Not delivered: `IdempotentParameterMismatchException`.
    TokenMismatch,
    /// Delivered; of the failed conditions in a cancelled transaction one stays named, the others become `None`.
    HideReasons(Keep),
    /// Held before delivery until the gate lets it pass.
    PauseBefore(Gate),
    /// Delivered, and the answer held until the gate lets it pass.
    PauseAfter(Gate),
}

/// Which failed condition of a cancelled transaction stays named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The last one.
    Last,
    /// The one of this item of the transaction, counted from 0; where that one did not fail, the last.
    Item(usize),
}

/// How likely each fault is, from 0 to 1, for a request that reads or writes items. At most one of them happens to a request;
/// one that does not fit the operation (a token mismatch of a read) does not happen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "each is named as its Fault")]
pub struct Chances {
    pub throttle: f64,
    pub internal_error: f64,
    pub lose_request: f64,
    pub lose_response: f64,
    pub time_out: f64,
    pub truncate: f64,
    pub deliver_twice: f64,
    pub hang: f64,
    /// Up to 5 ms.
    pub delay: f64,
    pub conflict: f64,
    pub in_progress: f64,
    pub token_mismatch: f64,
    /// Keeps the last.
    pub hide_reasons: f64,
}

/// One request that came from the client.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// `PutItem` …
    pub operation: String,
    /// What happened to it, in order.
    pub faults: Vec<Fault>,
    /// How often it reached the engine so far.
    pub delivered: usize,
}

impl Faults {
    /// No faults yet. The same seed and the same order of requests give the same faults.
    pub fn new(inner: SharedHttpClient, seed: u64) -> Self {
        Self { inner, shared: Arc::new(Shared { env: Env::seeded(seed), state: Mutex::default() }) }
    }

    /// Adds a rule. All rules that match a request apply, in the order they were added.
    pub fn script(&self, rule: Rule) -> &Self {
        self.state().rules.push(rule);
        self
    }

    /// Sets the chances for requests that no rule matches.
    pub fn random(&self, chances: Chances) -> &Self {
        self.state().chances = chances;
        self
    }

    /// No more faults: drops the rules and the chances, and keeps the log. What is held or hangs stays so.
    pub fn calm(&self) -> &Self {
        let mut state = self.state();
        state.rules.clear();
        state.chances = Chances::default();
        drop(state);
        self
    }

    /// For an SDK client's `http_client`.
    pub fn http_client(&self) -> SharedHttpClient {
        let Self { inner, shared } = self.clone();
        http_client_fn(move |settings, components| {
            SharedHttpConnector::new(Connector { inner: inner.http_connector(settings, components), shared: shared.clone() })
        })
    }

    /// How many requests of this operation the client sent, retries included.
    pub fn calls(&self, operation: &str) -> usize {
        self.state().log.iter().filter(|call| call.operation == operation).count()
    }

    /// How many requests of this operation reached the engine.
    pub fn delivered(&self, operation: &str) -> usize {
        self.state().log.iter().filter(|call| call.operation == operation).map(|call| call.delivered).sum()
    }

    /// Every request since the start, in the order of arrival.
    pub fn log(&self) -> Vec<Call> {
        self.state().log.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }
}

#[derive(Debug)]
struct Connector {
    inner: SharedHttpConnector,
    shared: Arc<Shared>,
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let (inner, shared) = (self.inner.clone(), self.shared.clone());
        HttpConnectorFuture::new(async move {
            let operation = wire::operation(&request);
            let (call, faults) = shared.arrives(&operation, &request);
            if let Some(gate) = faults.iter().find_map(|fault| if let Fault::DeliverLate(gate) = fault { Some(gate.clone()) } else { None })
            {
                tokio::spawn(async move {
                    gate.pass().await;
                    shared.delivers(call);
                    // Nobody hears what became of it.
                    drop(inner.call(request).await);
                    gate.delivered();
                });
                return Err(ConnectorError::io("injected: the connection broke, and the request is on its way".into()));
            }
            for fault in &faults {
                if let Some(answer) = shared.before(fault, &operation, &request).await {
                    return answer;
                }
            }
            if faults.contains(&Fault::DeliverTwice) {
                let again = request.try_clone().ok_or_else(|| wire::other("a streaming body cannot be delivered twice"))?;
                shared.delivers(call);
                inner.call(again).await?;
            }
            shared.delivers(call);
            let mut answer = inner.call(request).await;
            for fault in &faults {
                answer = after(fault, answer).await;
            }
            answer
        })
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws what happens to the request, and logs both.
    fn arrives(&self, operation: &str, request: &HttpRequest) -> (usize, Vec<Fault>) {
        let mut state = self.state();
        let body = request.body().bytes().unwrap_or_default();
        let mut faults: Vec<_> = state.rules.iter_mut().filter_map(|rule| rule.meets(operation, body)).collect();
        if faults.is_empty() {
            faults.extend(state.chances.draw(operation, &self.env));
        }
        state.log.push(Call { operation: operation.to_owned(), faults: faults.clone(), delivered: 0 });
        (state.log.len() - 1, faults)
    }

    fn delivers(&self, call: usize) {
        self.state().log[call].delivered += 1;
    }

    /// The answer, where the request is not delivered.
    async fn before(&self, fault: &Fault, operation: &str, request: &HttpRequest) -> Option<Answer> {
        match fault {
            Fault::Throttle => Some(wire::error(
                400,
                "ProvisionedThroughputExceededException",
                "The level of configured provisioned throughput for the table was exceeded.",
            )),
            Fault::ThrottleAccount => Some(wire::error(400, "ThrottlingException", "Rate of requests exceeds the allowed throughput.")),
            Fault::InternalError => Some(wire::error(500, "InternalServerError", "Internal server error")),
            Fault::LoseRequest => Some(Err(ConnectorError::io("injected: the request was lost".into()))),
            Fault::Hang => std::future::pending().await,
            Fault::Delay(time) => {
                self.env.sleep(*time).await;
                None
            }
            Fault::Conflict => Some(self.conflict(operation, request)),
            Fault::InProgress => {
                Some(wire::error(400, "TransactionInProgressException", "Transaction with the given request token is already in progress"))
            }
            Fault::TokenMismatch => Some(wire::error(
                400,
                "IdempotentParameterMismatchException",
                "The request uses the same client token as a previous, but non-identical request.",
            )),
            Fault::PauseBefore(gate) => {
                gate.pass().await;
                None
            }
            Fault::LoseResponse
            | Fault::TimeOut
            | Fault::Truncate
            | Fault::DeliverTwice
            | Fault::DeliverLate(_)
            | Fault::HideReasons(_)
            | Fault::PauseAfter(_) => None,
        }
    }

    fn conflict(&self, operation: &str, request: &HttpRequest) -> Answer {
        const WHY: &str = "Transaction is ongoing for the item";
        if !operation.starts_with("Transact") {
            return wire::error(400, "TransactionConflictException", WHY);
        }
        let items = wire::body(request)["TransactItems"].as_array().map_or(1, Vec::len);
        let mut reasons = vec![json!({ "Code": "None" }); items];
        let hit = usize::try_from(self.env.below(items as u64)).unwrap_or(0);
        reasons[hit] = json!({ "Code": "TransactionConflict", "Message": WHY });
        wire::cancelled(&reasons)
    }
}

/// What becomes of a delivered request's answer.
async fn after(fault: &Fault, answer: Answer) -> Answer {
    match fault {
        Fault::LoseResponse => answer.and(Err(ConnectorError::io("injected: the response was lost".into()))),
        Fault::TimeOut => answer.and(Err(ConnectorError::timeout("injected: no response in time".into()))),
        Fault::Truncate => {
            let (response, mut body) = wire::split(answer?).await?;
            body.truncate(body.len() / 2);
            Ok(wire::with_body(response, body))
        }
        Fault::HideReasons(keep) => {
            let (response, body) = wire::split(answer?).await?;
            Ok(wire::with_body(response, hide_reasons(*keep, body)))
        }
        Fault::PauseAfter(gate) => {
            gate.pass().await;
            answer
        }
        _ => answer,
    }
}

fn hide_reasons(keep: Keep, body: Vec<u8>) -> Vec<u8> {
    let Ok(mut answer) = serde_json::from_slice::<Value>(&body) else { return body };
    let Some(reasons) = answer["CancellationReasons"].as_array_mut() else { return body };
    let failed: Vec<_> = (0..reasons.len()).filter(|&i| reasons[i]["Code"] == "ConditionalCheckFailed").collect();
    let kept = match keep {
        Keep::Item(item) if failed.contains(&item) => Some(item),
        _ => failed.last().copied(),
    };
    for hidden in failed.into_iter().filter(|&i| Some(i) != kept) {
        reasons[hidden] = json!({ "Code": "None" });
    }
    let message = wire::cancelled_message(reasons);
    answer["Message"] = message.into();
    answer.to_string().into_bytes()
}

impl Chances {
    fn draw(&self, operation: &str, env: &Env) -> Option<Fault> {
        let writes = matches!(operation, "PutItem" | "UpdateItem" | "DeleteItem" | "TransactWriteItems");
        let reads = matches!(operation, "GetItem" | "Query" | "Scan" | "BatchGetItem" | "TransactGetItems");
        if !writes && !reads && operation != "BatchWriteItem" {
            return None;
        }
        let transaction = operation == "TransactWriteItems";
        // Both numbers in any case: what one request draws must not depend on what another was spared.
        let (drawn, millis) = (env.below(1 << 32), env.below(6));
        let faults = [
            (self.throttle, true, Fault::Throttle),
            (self.internal_error, true, Fault::InternalError),
            (self.lose_request, true, Fault::LoseRequest),
            (self.lose_response, true, Fault::LoseResponse),
            (self.time_out, true, Fault::TimeOut),
            (self.truncate, true, Fault::Truncate),
            (self.deliver_twice, true, Fault::DeliverTwice),
            (self.hang, true, Fault::Hang),
            (self.delay, true, Fault::Delay(Duration::from_millis(millis))),
            (self.conflict, writes || operation == "TransactGetItems", Fault::Conflict),
            (self.in_progress, transaction, Fault::InProgress),
            (self.token_mismatch, transaction, Fault::TokenMismatch),
            (self.hide_reasons, transaction, Fault::HideReasons(Keep::Last)),
        ];
        let mut left = drawn as f64 / (1_u64 << 32) as f64;
        for (chance, fits, fault) in faults {
            if left < chance {
                return fits.then_some(fault);
            }
            left -= chance;
        }
        None
    }
}
