//! One policy for what a service or a connection answers: which answers may be repeated, which leave a write in doubt.
//!
//! The SDK's own retries are switched off: it would hide that an attempt was lost before a later one was throttled, and then
//! "throttled" would be said of a write that may have landed. Here every attempt is seen, and a doubt is never forgotten.

use std::error::Error as StdError;
use std::future::Future;
use std::time::Duration;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

use super::{Dynamo, Op};
use crate::error::{Error, Reason};

/// A call that did not come to an answer of its own.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What the caller is told, if nothing is in doubt.
    pub(crate) error: Error,
    /// Whether an attempt may have been carried out.
    pub(crate) doubt: bool,
}

impl From<Failure> for Error {
    /// For reads: there is nothing to be in doubt of.
    fn from(failure: Failure) -> Error {
        failure.error
    }
}

/// What an answer means for the next attempt.
#[derive(Debug)]
pub(super) enum Answer<E> {
    /// Not carried out: later it may be.
    Busy(String, Reason),
    /// Whether it was carried out is unknown. A repeat of the same request may tell.
    Lost(String),
    /// It will not be carried out.
    No(Error),
    /// The operation's own answer.
    Own(E),
}

impl Dynamo {
    /// Sends until there is an answer: full jitter, within the operation's deadline. `judge` picks out the operation's own errors.
    pub(super) async fn repeat<T, E, Fut>(
        &self,
        op: &Op,
        mut send: impl FnMut() -> Fut,
        judge: impl Fn(&E) -> bool,
    ) -> Result<(Result<T, E>, bool), Failure>
    where
        Fut: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
    {
        let mut doubt = false;
        for attempt in 0u32.. {
            let left = op.left(self.0.timeouts.attempt);
            op.request();
            // In a box: what waits for it is moved from caller to caller, and would carry the SDK's several kilobytes each time.
            let (message, reason) = match tokio::time::timeout(left, Box::pin(send())).await {
                Ok(Ok(done)) => return Ok((Ok(done), doubt)),
                Ok(Err(error)) => match classify(error, &judge) {
                    Answer::Own(own) => return Ok((Err(own), doubt)),
                    Answer::No(error) => return Err(Failure { error, doubt }),
                    Answer::Busy(message, reason) => (message, reason),
                    Answer::Lost(message) => {
                        doubt = true;
                        (message, Reason::Unreachable)
                    }
                },
                Err(_) => {
                    doubt = true;
                    (format!("no answer within {left:?}"), Reason::Unreachable)
                }
            };
            let pause = self.pause(attempt, reason);
            let spent = attempt + 1 >= self.0.timeouts.attempts || op.is_over(pause);
            tracing::debug!(attempt, %reason, message, spent, "attempt failed");
            if spent {
                return Err(Failure { error: Error::unavailable(reason, message), doubt });
            }
            self.env().sleep(pause).await;
        }
        unreachable!("the loop above only ends by returning")
    }

    /// Full jitter: anything from nothing to a bound that doubles, from 25 ms (or 5 ms where two writers met) to 2 s, or what was given.
    pub(crate) fn pause(&self, attempt: u32, reason: Reason) -> Duration {
        let first: u64 = if reason == Reason::Throttled { 25 } else { 5 };
        let longest = u64::try_from(self.0.longest_pause.as_millis()).unwrap_or(u64::MAX);
        let bound = first.saturating_mul(1 << attempt.min(10)).min(longest);
        Duration::from_micros(self.env().below(bound * 1_000))
    }
}

fn classify<E>(error: SdkError<E, HttpResponse>, own: impl Fn(&E) -> bool) -> Answer<E>
where
    E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
{
    match error {
        SdkError::ServiceError(service) => {
            let status = service.raw().status().as_u16();
            let error = service.into_err();
            if own(&error) {
                return Answer::Own(error);
            }
            let code = error.code().unwrap_or_default().to_owned();
            // An answer cut short parses as an error without a code, whatever its status was: it tells nothing.
            if code.is_empty() && !matches!(status, 401 | 403) {
                return Answer::Lost(format!("an answer that cannot be read (status {status})"));
            }
            // A message of the service names tables, keys' attributes and limits, never what an attribute holds, but for
            // validation messages of odd engines: those are not passed on.
            let message = match error.message() {
                Some(message) if code != "ValidationException" || message.len() < 400 => format!("{code}: {message}"),
                _ => code.clone(),
            };
            by_code(&code, status, message)
        }
        SdkError::TimeoutError(_) => Answer::Lost("no answer in time".into()),
        SdkError::ResponseError(_) => Answer::Lost("an answer that cannot be read".into()),
        other => {
            let message = chain(&other);
            if find::<CredentialsError>(&other).is_some() {
                return Answer::No(Error::unavailable(Reason::Denied, format!("no credentials: {message}")));
            }
            if matches!(other, SdkError::ConstructionFailure(_)) {
                return Answer::No(Error::unavailable(Reason::Rejected, message));
            }
            // Nobody listened, so nothing was carried out.
            let refused = find::<std::io::Error>(&other).is_some_and(|io| {
                use std::io::ErrorKind::*;
                match io.kind() {
                    ConnectionRefused | AddrNotAvailable => true,
                    // These may come of a connection that was there, too.
                    HostUnreachable | NetworkUnreachable | NotFound => message.contains("(Connect)"),
                    _ => false,
                }
            });
            if refused || message.contains("dns error") {
                return Answer::Busy(message, Reason::Unreachable);
            }
            Answer::Lost(message)
        }
    }
}

fn by_code<E>(code: &str, status: u16, message: String) -> Answer<E> {
    match code {
        "ProvisionedThroughputExceededException"
        | "ThrottlingException"
        | "Throttling"
        | "RequestLimitExceeded"
        | "LimitExceededException"
        | "ReplicatedWriteConflictException" => Answer::Busy(message, Reason::Throttled),
        "TransactionConflictException" => Answer::Busy(message, Reason::Unreachable),
        // Another copy of this very request is under way: its outcome is not known yet.
        "TransactionInProgressException" => Answer::Lost(message),
        "AccessDeniedException"
        | "UnrecognizedClientException"
        | "InvalidClientTokenId"
        | "InvalidSignatureException"
        | "IncompleteSignature"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "ExpiredTokenException"
        | "OptInRequired"
        | "NotAuthorized" => Answer::No(Error::unavailable(Reason::Denied, message)),
        "ResourceNotFoundException" | "TableNotFoundException" => Answer::No(Error::unavailable(Reason::Missing, message)),
        _ if matches!(status, 401 | 403) => Answer::No(Error::unavailable(Reason::Denied, message)),
        _ if status >= 500 => Answer::Lost(message),
        _ => Answer::No(Error::unavailable(Reason::Rejected, message)),
    }
}

fn find<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(found) = cause.downcast_ref::<T>() {
            return Some(found);
        }
        next = cause.source();
    }
    None
}

fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_says_who_must_act_and_what_is_in_doubt() {
        let reason = |code: &str, status| match by_code::<()>(code, status, String::new()) {
            Answer::Busy(_, reason) => Some((reason, false)),
            Answer::Lost(_) => None,
            Answer::No(Error::Unavailable(unavailable)) => Some((unavailable.reason, true)),
            other => panic!("{other:?}"),
        };
        assert_eq!(reason("ProvisionedThroughputExceededException", 400), Some((Reason::Throttled, false)));
        assert_eq!(reason("TransactionConflictException", 400), Some((Reason::Unreachable, false)));
        for denied in ["AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException"] {
            assert_eq!(reason(denied, 400), Some((Reason::Denied, true)), "{denied}");
        }
        assert_eq!(reason("ResourceNotFoundException", 400), Some((Reason::Missing, true)));
        assert_eq!(reason("ValidationException", 400), Some((Reason::Rejected, true)));
        for lost in [("InternalServerError", 500), ("ServiceUnavailable", 503), ("TransactionInProgressException", 400)] {
            assert_eq!(reason(lost.0, lost.1), None, "{lost:?}");
        }
    }
}
