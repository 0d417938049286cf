//! What the environment says.

use std::time::Duration;

/// How long a holder of the lease may stay silent, in seconds.
const LEASE: f64 = 10.0;

pub(crate) struct Settings {
    /// `FENCEPOST_URL`: the store.
    pub(crate) url: Option<String>,
    /// `FENCEPOST_LEASE`: seconds, the same for every instance.
    pub(crate) lease: Duration,
}

impl Settings {
    pub(crate) fn from_env() -> Self {
        let lease = std::env::var("FENCEPOST_LEASE").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(LEASE);
        Self { url: std::env::var("FENCEPOST_URL").ok(), lease: Duration::try_from_secs_f64(lease).unwrap_or(Duration::from_secs(10)) }
    }
}
