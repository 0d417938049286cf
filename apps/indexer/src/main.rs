//! The indexer of `streams` mode as a Lambda function: DynamoDB Streams ring it, and it runs the same indexer as `fencepost index run` until
//! that has caught up. What the records hold is not looked at: the indexer reads the stream itself. Where the layout has an index of its
//! own, which says of every stream how far it is, what the records hold is put into it, as the peer's function does.

#![forbid(unsafe_code)]
// Opening a store inside the runtime's service is a deep type: every layout's futures are in it.
#![recursion_limit = "256"]

mod metrics;
mod records;
mod settings;

use std::sync::Mutex;
use std::time::Duration;

use fencepost::{Env, Index, IndexProgress, Ring, Served, Store};
use lambda_runtime::{Context, Diagnostic, LambdaEvent, service_fn};
use serde_json::value::RawValue;
use tokio::sync::OnceCell;

use crate::metrics::Metrics;
use crate::records::{Answer, Batch};
use crate::settings::Settings;

/// Left for answering.
const MARGIN: Duration = Duration::from_secs(1);
/// At most this much of the time for starting is spent on opening the store; the first ring tries again.
const OPENING: Duration = Duration::from_secs(5);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    let filter = tracing_subscriber::EnvFilter::try_from_env("FENCEPOST_LOG").unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().json().flatten_event(true).with_env_filter(filter).with_target(false).init();
    let function = Function { settings: Settings::from_env(), env: Env::system(), store: OnceCell::new(), index: OnceCell::new() };
    if let Err(error) = tokio::time::timeout(OPENING, function.store()).await.unwrap_or_else(|_| Err("no answer yet".into())) {
        tracing::warn!(error, "the store is not open");
    }
    lambda_runtime::run(service_fn(|event: LambdaEvent<Box<RawValue>>| function.rung(event))).await
}

/// What lives as long as the process: one store for all rings, and its index, which need not read twice what does not change.
struct Function {
    settings: Settings,
    env: Env,
    store: OnceCell<Store>,
    index: OnceCell<Index>,
}

/// A ring that failed: the event source rings again.
#[derive(Debug)]
struct Failed(String);

impl From<Failed> for Diagnostic {
    fn from(Failed(message): Failed) -> Diagnostic {
        Diagnostic { error_type: "fencepost::Error".into(), error_message: message }
    }
}

impl Function {
    async fn store(&self) -> Result<&Store, String> {
        let open = async || -> Result<Store, String> {
            let url =
                self.settings.url.as_deref().ok_or("FENCEPOST_URL is not set: the store's URL, such as dynamodb://eu-west-1/orders")?;
            fencepost::open(url).await.map_err(|error| error.to_string())
        };
        self.store.get_or_try_init(open).await
    }

    async fn index(&self) -> Result<&Index, String> {
        let store = self.store().await?;
        self.index.get_or_try_init(async || store.index().map_err(|error| error.to_string())).await
    }

    async fn rung(&self, event: LambdaEvent<Box<RawValue>>) -> Result<Answer, Failed> {
        let LambdaEvent { payload, context, .. } = event;
        let batch = Batch::read(&payload);
        let answered = self.answer(&batch, &context).await;
        if let Err(Failed(error)) = &answered {
            tracing::error!(request = context.request_id, records = batch.records.len(), error, "failed: to be rung again");
        }
        answered
    }

    async fn answer(&self, batch: &Batch, context: &Context) -> Result<Answer, Failed> {
        let index = self.index().await.map_err(Failed)?;
        if index.takes_records() && !batch.records.is_empty() {
            return self.take(index, batch, context).await;
        }
        let mut ring = Ring::within(self.left(context)).lease(self.settings.lease);
        if let Some(image) = batch.newest() {
            ring = ring.about(&image);
        }
        let lag = Mutex::new(Duration::ZERO);
        let progress = |so_far: &IndexProgress| {
            if let Ok(mut lag) = lag.lock() {
                *lag = so_far.lag.max(*lag);
            }
        };
        let rung = index.answer(&ring, &progress).await.map_err(|error| Failed(error.to_string()))?;
        let mut lag = lag.into_inner().unwrap_or_default();
        if rung.served == Served::RingAgain {
            // Nothing may have been read: then what rang is as old as this at least.
            lag = lag.max(batch.age(self.now()));
        }
        let so_far = &rung.progress;
        tracing::info!(
            request = context.request_id,
            records = batch.records.len(),
            served = ?rung.served,
            looks = rung.looks,
            fenced = rung.fenced,
            commits = so_far.commits,
            epochs = so_far.epochs,
            waiting = so_far.waiting,
            late = so_far.late,
            trimmed = so_far.trimmed,
            lag_ms = u64::try_from(lag.as_millis()).unwrap_or(u64::MAX),
            read_units = so_far.units.read,
            write_units = so_far.units.write,
            requests = so_far.units.requests,
            "rung"
        );
        if rung.served != Served::HandedOver {
            // The one that holds the lease tells; the others would only repeat what they do not know.
            Metrics::of(so_far, lag).print(&context.env_config.function_name, self.now());
        }
        match rung.served {
            Served::Indexed | Served::HandedOver => Ok(Answer::done()),
            Served::RingAgain => batch.again().ok_or_else(|| Failed("the time was up before all was indexed: ring again".into())),
        }
    }

    /// All records or, after an error that may pass and where the time is up, all of them again: what was put is not put twice.
    async fn take(&self, index: &Index, batch: &Batch, context: &Context) -> Result<Answer, Failed> {
        let left = self.left(context).saturating_sub(MARGIN);
        let images = batch.images().map_err(Failed)?;
        let taken = tokio::time::timeout(left, index.take(&images)).await;
        let lag = batch.age(self.now());
        match taken {
            Ok(Ok(so_far)) => {
                tracing::info!(
                    request = context.request_id,
                    records = batch.records.len(),
                    served = "Indexed",
                    commits = so_far.commits,
                    epochs = so_far.epochs,
                    races_lost = so_far.races_lost,
                    lag_ms = u64::try_from(lag.as_millis()).unwrap_or(u64::MAX),
                    read_units = so_far.units.read,
                    write_units = so_far.units.write,
                    requests = so_far.units.requests,
                    "rung"
                );
                Metrics::of(&so_far, lag).print(&context.env_config.function_name, self.now());
                Ok(Answer::done())
            }
            Ok(Err(error)) if !error.is_retryable() => Err(Failed(error.to_string())),
            Ok(Err(error)) => {
                tracing::warn!(request = context.request_id, records = batch.records.len(), %error, "to be handed over again");
                batch.again().ok_or_else(|| Failed(error.to_string()))
            }
            Err(_) => batch.again().ok_or_else(|| Failed("the time was up before all was indexed: ring again".into())),
        }
    }

    fn left(&self, context: &Context) -> Duration {
        Duration::from_millis(context.deadline.saturating_sub(self.now()))
    }

    /// Milliseconds since 1970, as the deadline is told.
    fn now(&self) -> u64 {
        u64::try_from(self.env.now().as_millisecond()).unwrap_or(0)
    }
}
