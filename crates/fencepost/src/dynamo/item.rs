//! Items: attributes by name, how large they are to DynamoDB, and reading them without guessing.

use std::collections::HashMap;

pub(crate) use aws_sdk_dynamodb::types::AttributeValue as Value;
use aws_smithy_types::Blob;

/// An item, or the key of one.
pub(crate) type Item = HashMap<String, Value>;

/// A text.
pub(crate) fn text(text: impl Into<String>) -> Value {
    Value::S(text.into())
}
/// A whole number.
pub(crate) fn number(number: u64) -> Value {
    Value::N(number.to_string())
}
/// Bytes.
pub(crate) fn binary(bytes: impl Into<Vec<u8>>) -> Value {
    Value::B(Blob::new(bytes))
}

/// An item from the service's own JSON, as records have it where they are handed over by HTTP; none where it is not that.
#[cfg(feature = "streams")]
pub(crate) fn of_json(json: &serde_json::Value) -> Option<Item> {
    json.as_object()?.iter().map(|(name, value)| Some((name.clone(), value_of_json(value)?))).collect()
}

#[cfg(feature = "streams")]
fn value_of_json(json: &serde_json::Value) -> Option<Value> {
    use base64::Engine;
    let decode = |text: &str| base64::engine::general_purpose::STANDARD.decode(text).ok().map(aws_sdk_dynamodb::primitives::Blob::new);
    let (kind, value) = json.as_object()?.iter().next()?;
    let texts = || value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
    Some(match kind.as_str() {
        "S" => Value::S(value.as_str()?.into()),
        "N" => Value::N(value.as_str()?.into()),
        "B" => Value::B(decode(value.as_str()?)?),
        "BOOL" => Value::Bool(value.as_bool()?),
        "NULL" => Value::Null(true),
        "SS" => Value::Ss(texts()?),
        "NS" => Value::Ns(texts()?),
        "BS" => Value::Bs(texts()?.iter().map(|text| decode(text)).collect::<Option<_>>()?),
        "L" => Value::L(value.as_array()?.iter().map(value_of_json).collect::<Option<_>>()?),
        "M" => Value::M(of_json(value)?),
        _ => return None,
    })
}

/// An attribute that is missing, or is not what it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) String);

/// Reads attributes, and names the one that is wrong.
pub(crate) trait Attributes {
    fn value(&self, name: &str) -> Option<&Value>;

    fn text(&self, name: &str) -> Result<&str, Malformed> {
        self.maybe_text(name)?.ok_or_else(|| missing(name))
    }
    fn maybe_text(&self, name: &str) -> Result<Option<&str>, Malformed> {
        self.value(name).map(|v| v.as_s().map(String::as_str).map_err(|_| wrong(name, "a text"))).transpose()
    }
    fn number(&self, name: &str) -> Result<u64, Malformed> {
        self.maybe_number(name)?.ok_or_else(|| missing(name))
    }
    fn maybe_number(&self, name: &str) -> Result<Option<u64>, Malformed> {
        self.value(name).map(|v| as_number(v).ok_or_else(|| wrong(name, "a whole number"))).transpose()
    }
    fn bytes(&self, name: &str) -> Result<&[u8], Malformed> {
        self.maybe_bytes(name)?.ok_or_else(|| missing(name))
    }
    fn maybe_bytes(&self, name: &str) -> Result<Option<&[u8]>, Malformed> {
        self.value(name).map(|v| v.as_b().map(AsRef::as_ref).map_err(|_| wrong(name, "bytes"))).transpose()
    }
    fn maybe_list(&self, name: &str) -> Result<Option<&[Value]>, Malformed> {
        self.value(name).map(|v| v.as_l().map(Vec::as_slice).map_err(|_| wrong(name, "a list"))).transpose()
    }
    fn maybe_map(&self, name: &str) -> Result<Option<&Item>, Malformed> {
        self.value(name).map(|v| v.as_m().map_err(|_| wrong(name, "a map"))).transpose()
    }
}

impl Attributes for Item {
    fn value(&self, name: &str) -> Option<&Value> {
        self.get(name)
    }
}

/// A number that is whole, not negative and fits.
pub(crate) fn as_number(value: &Value) -> Option<u64> {
    value.as_n().ok()?.parse().ok()
}

fn missing(name: &str) -> Malformed {
    Malformed(format!("attribute {name} is missing"))
}
pub(crate) fn wrong(name: &str, expected: &str) -> Malformed {
    Malformed(format!("attribute {name} is not {expected}"))
}

/// Bytes that DynamoDB counts for an item.
pub(crate) fn size(item: &Item) -> usize {
    item.iter().map(|(name, value)| name.len() + value_size(value)).sum()
}

/// Bytes that DynamoDB counts for a value: 3 for a list or map and 1 for each of its elements, a byte for two digits.
fn value_size(value: &Value) -> usize {
    match value {
        Value::S(text) => text.len(),
        Value::N(digits) => number_size(digits),
        Value::B(blob) => blob.as_ref().len(),
        Value::Ss(texts) => texts.iter().map(String::len).sum(),
        Value::Ns(numbers) => numbers.iter().map(|n| number_size(n)).sum(),
        Value::Bs(blobs) => blobs.iter().map(|b| b.as_ref().len()).sum(),
        Value::L(values) => 3 + values.iter().map(|v| 1 + value_size(v)).sum::<usize>(),
        Value::M(map) => map_size(map),
        _ => 1,
    }
}

/// Bytes that DynamoDB counts for a map inside an item.
pub(crate) fn map_size(map: &Item) -> usize {
    3 + map.iter().map(|(name, value)| 1 + name.len() + value_size(value)).sum::<usize>()
}

/// Bytes that DynamoDB counts for a whole number: trailing zeros are free.
pub(crate) fn number_size(digits: &str) -> usize {
    let significant = digits.trim_start_matches('-').trim_end_matches('0').len();
    significant.div_ceil(2) + 1 + usize::from(digits.starts_with('-'))
}

/// Write units of an item of this size.
pub(crate) fn write_units(bytes: usize) -> usize {
    bytes.div_ceil(1024).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_dynamodb() {
        let item = Item::from([
            ("p".into(), text("abc")),
            ("v".into(), number(100)),
            ("l".into(), Value::L(vec![number(12), binary([0u8; 4])])),
            ("m".into(), Value::M(Item::from([("k".into(), text(""))]))),
        ]);
        assert_eq!(size(&item), (1 + 3) + (1 + 2) + (1 + 3 + (1 + 2) + (1 + 4)) + (1 + 3 + (1 + 1)));
        assert_eq!((number_size("0"), number_size("1767225600123456")), (1, 9));
        assert_eq!((write_units(0), write_units(1024), write_units(1025)), (1, 1, 2));
    }

    #[cfg(feature = "streams")]
    #[test]
    fn an_item_is_read_from_the_services_own_json_and_nothing_else_is() {
        let json = serde_json::json!({ "p": { "S": "t/main/a" }, "v": { "N": "1" }, "c": { "B": "AQI=" }, "e": { "L": [{ "M": { "x": { "NULL": true } } }] } });
        let item = of_json(&json).expect("an item");
        assert_eq!((item.text("p").ok(), item.number("v").ok(), item.bytes("c").ok()), (Some("t/main/a"), Some(1), Some(&[1, 2][..])));
        assert_eq!(item["e"], Value::L(vec![Value::M(Item::from([("x".into(), Value::Null(true))]))]));
        for other in [
            serde_json::json!(7),
            serde_json::json!({ "p": "bare" }),
            serde_json::json!({ "c": { "B": "?" } }),
            serde_json::json!({ "p": { "X": 1 } }),
        ] {
            assert_eq!(of_json(&other), None, "{other}");
        }
    }
}
