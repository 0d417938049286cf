//! The service's clock, as the `Date` of its answers tells it: an append does not stamp with a clock that is far off.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::BeforeDeserializationInterceptorContextRef;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;
use aws_smithy_types::date_time::{DateTime, Format};

use crate::env::Env;
use crate::error::{Refused, Result};

/// The indexer of streams mode trusts stamps to an hour: half of it is left for what is on its way.
const LIMIT: Duration = Duration::from_secs(30 * 60);
/// No answer has told the time yet.
const UNKNOWN: i64 = i64::MIN;

/// Watches every answer. Clones share what they saw.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    env: Env,
    /// Seconds that this machine's clock is ahead.
    ahead: Arc<AtomicI64>,
}

impl Watch {
    pub(super) fn new(env: Env) -> Self {
        Self { env, ahead: Arc::new(AtomicI64::new(UNKNOWN)) }
    }

    pub(super) fn off(&self) -> Option<Duration> {
        match self.ahead.load(Ordering::Relaxed) {
            UNKNOWN => None,
            ahead => Some(Duration::from_secs(ahead.unsigned_abs())),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        match self.off() {
            Some(off) if off > LIMIT => Err(Refused::Clock { off, limit: LIMIT }.into()),
            _ => Ok(()),
        }
    }

    fn saw(&self, date: &str) {
        if let Ok(date) = DateTime::from_str(date, Format::HttpDate) {
            self.ahead.store(self.env.now().as_second() - date.secs(), Ordering::Relaxed);
        }
    }
}

#[aws_smithy_runtime_api::client::interceptors::dyn_dispatch_hint]
impl Intercept for Watch {
    fn name(&self) -> &'static str {
        "fencepost clock"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(date) = context.response().headers().get("date") {
            self.saw(date);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_half_an_hour_off_is_refused_and_one_that_was_never_compared_is_not() {
        let watch = Watch::new(Env::seeded(1)); // stands at 2026-01-01T00:00:00Z
        assert!(watch.check().is_ok());
        watch.saw("Thu, 01 Jan 2026 00:29:00 GMT");
        assert_eq!(watch.off(), Some(Duration::from_secs(29 * 60)));
        assert!(watch.check().is_ok());
        watch.saw("Wed, 31 Dec 2025 23:29:59 GMT");
        assert!(watch.check().is_err(), "{:?}", watch.off());
        watch.saw("not a date");
        assert!(watch.check().is_err());
    }
}
