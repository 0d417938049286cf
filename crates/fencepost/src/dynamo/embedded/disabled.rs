//! The embedded engine where it is not compiled in: it cannot exist, and says which feature is missing.

use std::path::Path;

use aws_smithy_runtime_api::client::http::SharedHttpClient;

use crate::error::{Refused, Result};

/// Not compiled in: the feature `embedded` is off.
#[derive(Clone, Debug)]
pub(crate) enum Engine {}

#[allow(dead_code, reason = "the twin of `enabled`: which of these are called depends on other features")]
impl Engine {
    /// Refused: the feature `embedded` is off.
    pub(crate) fn memory() -> Result<Self> {
        Err(missing("`memory:`"))
    }

    /// Refused: the feature `embedded` is off.
    pub(crate) fn file(_path: impl AsRef<Path>) -> Result<Self> {
        Err(missing("`file:`"))
    }

    /// Never called: there is no engine.
    #[must_use]
    pub(crate) fn keep_tokens(self) -> Self {
        match self {}
    }

    /// Never called: there is no engine.
    pub(crate) fn http_client(&self) -> SharedHttpClient {
        match *self {}
    }
}

fn missing(what: &str) -> crate::error::Error {
    Refused::Unsupported {
        what: format!("the embedded engine ({what})"),
        remedy: "build with the feature `embedded` (`cargo add fencepost --features embedded`)".into(),
    }
    .into()
}
