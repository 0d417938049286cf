//! The URL of a store: where its tables are, how they are named, which layout they have. Pure.

use std::collections::BTreeMap;

use crate::dynamo::Place;
use crate::error::{Refused, Result};

/// A URL, taken apart and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoreUrl {
    pub(crate) place: Place,
    pub(crate) table: String,
    pub(crate) layout: String,
    /// The layout's own parameters.
    pub(crate) params: BTreeMap<String, String>,
}

/// The layouts, by the name that a URL gives them.
const NAMES: [&str; 6] = ["ledger", "equinox", "event-store-adapter-v3", "event-store-adapter-v5", "sekiban", "reventless"];

const FORMS: &str = "memory:, file:PATH, dynamodb://REGION/TABLE, or http://HOST:PORT/TABLE";

fn refused<T>(why: impl Into<String>) -> Result<T> {
    Err(Refused::Url { why: why.into() }.into())
}

impl StoreUrl {
    pub(crate) fn parse(text: &str) -> Result<StoreUrl> {
        let (body, query) = text.split_once('?').unwrap_or((text, ""));
        let mut params = parameters(query)?;
        let local = body.starts_with("memory:") || body.starts_with("file:");
        let given = if local { params.remove("table") } else { None };
        let (place, table) = if let Some(rest) = body.strip_prefix("memory:") {
            if !rest.is_empty() {
                return refused(format!("memory: is followed by nothing or by ?parameters, not by {rest:?}"));
            }
            (Place::Memory, given.unwrap_or_else(|| "fencepost".into()))
        } else if let Some(path) = body.strip_prefix("file:") {
            if path.is_empty() {
                return refused("file: needs a path, as in file:orders.db");
            }
            (Place::File(decode(path)?), given.unwrap_or_else(|| "fencepost".into()))
        } else if let Some(rest) = body.strip_prefix("dynamodb://") {
            match rest.split_once('/') {
                Some((region, table)) if !region.is_empty() => (Place::Region(region.into()), decode(table)?),
                _ => return refused("dynamodb:// needs a region and a table, as in dynamodb://eu-west-1/orders"),
            }
        } else if body.starts_with("http://") || body.starts_with("https://") {
            let Ok(parsed) = url::Url::parse(body) else { return refused(format!("{body:?} is not an address")) };
            if !parsed.username().is_empty() || parsed.password().is_some() {
                return refused("credentials do not belong into a URL: they come from the AWS default chain");
            }
            let Some((endpoint, table)) = body.rsplit_once('/').filter(|(endpoint, _)| endpoint.len() > "https:/".len()) else {
                return refused("an endpoint needs a table, as in http://127.0.0.1:8000/orders");
            };
            (Place::Endpoint(endpoint.into()), decode(table)?)
        } else {
            return refused(format!("expected {FORMS}"));
        };
        check_table(&table)?;
        let layout = params.remove("layout").unwrap_or_else(|| "ledger".into());
        if !NAMES.contains(&layout.as_str()) {
            return refused(format!("layout={layout} is unknown; known are {}", NAMES.join(", ")));
        }
        Ok(StoreUrl { place, table, layout, params })
    }

    /// Refuses parameters that the layout does not know.
    pub(crate) fn only(&self, known: &[&str]) -> Result<()> {
        match self.params.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(unknown) => refused(format!(
                "parameter {unknown:?} is unknown here; known are layout, {}{}",
                known.join(", "),
                if self.is_local() { ", table" } else { "" }
            )),
        }
    }

    /// A parameter of the layout's.
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.params.get(name).map(String::as_str)
    }

    /// The name of one of the layout's tables: as given, or TABLE with this behind it.
    pub(crate) fn named(&self, parameter: &str, suffix: &str) -> Result<String> {
        let name = self.param(parameter).map_or_else(|| format!("{}{suffix}", self.table), str::to_owned);
        check_table(&name)?;
        Ok(name)
    }

    /// In this process, where nobody but us makes tables.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.place, Place::Memory | Place::File(_))
    }
}

fn parameters(query: &str) -> Result<BTreeMap<String, String>> {
    let mut params = BTreeMap::new();
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        if value.is_empty() {
            return refused(format!("parameter {name:?} has no value"));
        }
        if params.insert(name.clone().into_owned(), value.into_owned()).is_some() {
            return refused(format!("parameter {name:?} is given twice"));
        }
    }
    Ok(params)
}

fn decode(text: &str) -> Result<String> {
    // Only percent signs are special; a plus in a path is a plus.
    let escaped = text.replace('+', "%2B");
    let pair = format!("x={escaped}");
    let decoded = url::form_urlencoded::parse(pair.as_bytes()).next().map(|(_, v)| v.into_owned());
    Ok(decoded.unwrap_or_default())
}

/// What DynamoDB accepts as a table's name.
pub(crate) fn check_table(name: &str) -> Result<()> {
    let fits = (3..=255).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if fits {
        return Ok(());
    }
    Err(Refused::BadName { what: "table", name: name.into(), rule: "3 to 255 of A-Z a-z 0-9 . _ -" }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> (Place, String, String) {
        let url = StoreUrl::parse(url).expect(url);
        (url.place, url.table, url.layout)
    }

    #[test]
    fn every_form_is_understood() {
        assert_eq!(parsed("memory:"), (Place::Memory, "fencepost".into(), "ledger".into()));
        assert_eq!(parsed("memory:?table=orders").1, "orders");
        assert_eq!(parsed("file:a/b c.db?layout=ledger").0, Place::File("a/b c.db".into()));
        assert_eq!(parsed("dynamodb://eu-west-1/orders"), (Place::Region("eu-west-1".into()), "orders".into(), "ledger".into()));
        assert_eq!(
            parsed("http://127.0.0.1:8000/orders?layout=equinox"),
            (Place::Endpoint("http://127.0.0.1:8000".into()), "orders".into(), "equinox".into())
        );
        let url = StoreUrl::parse("dynamodb://eu-west-1/orders?feed=streams&namespace=t1").expect("url");
        assert_eq!(url.params.get("feed").map(String::as_str), Some("streams"));
        assert!(url.only(&["feed", "namespace"]).is_ok());
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_can() {
        for bad in [
            "",
            "orders",
            "memory:x",
            "file:",
            "dynamodb://orders",
            "dynamodb:///orders",
            "http://127.0.0.1:8000",
            "http://127.0.0.1:8000/",
            "http://me:pw@127.0.0.1:8000/orders",
            "memory:?layout=other",
            "memory:?table=",
            "memory:?table=a&table=b",
            "memory:?table=no spaces",
            "dynamodb://eu-west-1/orders/x",
        ] {
            assert!(StoreUrl::parse(bad).is_err(), "{bad}");
        }
        let url = StoreUrl::parse("dynamodb://eu-west-1/orders?table=x").expect("url");
        let message = url.only(&["feed"]).expect_err("table is misplaced").to_string();
        assert!(message.contains("\"table\"") && message.contains("feed"), "{message}");
    }
}
