//! Prices: a dated file that can be edited. The one in this program is where nobody gives another.

use std::path::Path;

use serde::Deserialize;

use crate::failure::{Code, Failure};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Prices {
    pub(super) date: String,
    pub(super) region: String,
    pub(super) on_demand: OnDemand,
    pub(super) provisioned: Provisioned,
    pub(super) storage: Storage,
    pub(super) streams: Streams,
    pub(super) lambda: Lambda,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OnDemand {
    pub(super) write_million: f64,
    pub(super) read_million: f64,
}
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Provisioned {
    pub(super) write_unit_hour: f64,
    pub(super) read_unit_hour: f64,
}
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Storage {
    pub(super) gigabyte_month: f64,
}
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Streams {
    pub(super) read_million: f64,
}
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lambda {
    pub(super) request_million: f64,
    pub(super) gigabyte_second: f64,
}

/// The program's own.
pub(super) const OWN: &str = include_str!("prices.toml");

pub(super) fn prices(file: Option<&Path>) -> Result<Prices, Failure> {
    let (text, name) = match file {
        Some(file) => (std::fs::read_to_string(file)?, file.display().to_string()),
        None => (OWN.to_owned(), "the program's own prices".to_owned()),
    };
    toml::from_str(&text).map_err(|error| Failure::new(Code::Usage, format!("{name}: {error}")))
}
