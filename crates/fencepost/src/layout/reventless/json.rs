//! Bodies: JSON text to the native values that the peer's document client writes, and back. Nothing of the value is lost; the order of
//! keys and the spelling of numbers are not part of it. Pure.

use crate::dynamo::item::{Item, Value};

/// Values nested deeper are not accepted: DynamoDB's limit is 32, the attribute itself is the first.
const DEEPEST: usize = 31;
/// What DynamoDB keeps of a number.
const DIGITS: usize = 38;

/// Why bytes are not accepted. Never quotes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Why(pub(super) &'static str);

/// The value of a JSON text.
pub(super) fn parse(json: &[u8]) -> Result<Value, Why> {
    let text = std::str::from_utf8(json).map_err(|_| Why("it is not JSON: it is not text"))?;
    let mut parser = Parser { text, at: 0 };
    let value = parser.value(0)?;
    parser.space();
    if parser.at < text.len() {
        return Err(Why("it is not JSON: something follows the value"));
    }
    Ok(value)
}

/// As compact JSON, keys in byte order. None where a value has no form in JSON: binary, or a set.
pub(super) fn write(value: &Value) -> Option<String> {
    let mut out = String::new();
    put(value, &mut out)?;
    Some(out)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }
    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }
    fn eat(&mut self, byte: u8) -> bool {
        self.space();
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn value(&mut self, depth: usize) -> Result<Value, Why> {
        if depth > DEEPEST {
            return Err(Why("it is nested deeper than DynamoDB allows (32 levels)"));
        }
        self.space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Value::S(self.string()?)),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null(true)),
            Some(b'-' | b'0'..=b'9') => self.number().map(Value::N),
            Some(_) => Err(Why("it is not JSON")),
            None => Err(Why("it is not JSON: it ends too soon")),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, Why> {
        if !self.text[self.at..].starts_with(word) {
            return Err(Why("it is not JSON"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn object(&mut self, depth: usize) -> Result<Value, Why> {
        self.at += 1;
        let mut map = Item::new();
        if self.eat(b'}') {
            return Ok(Value::M(map));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(Why("it is not JSON: a key is missing"));
            }
            let key = self.string()?;
            if !self.eat(b':') {
                return Err(Why("it is not JSON: a colon is missing"));
            }
            let value = self.value(depth + 1)?;
            if map.insert(key, value).is_some() {
                return Err(Why("a key stands twice in one object"));
            }
            if self.eat(b'}') {
                return Ok(Value::M(map));
            }
            if !self.eat(b',') {
                return Err(Why("it is not JSON: an object is not closed"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, Why> {
        self.at += 1;
        let mut list = Vec::new();
        if self.eat(b']') {
            return Ok(Value::L(list));
        }
        loop {
            list.push(self.value(depth + 1)?);
            if self.eat(b']') {
                return Ok(Value::L(list));
            }
            if !self.eat(b',') {
                return Err(Why("it is not JSON: an array is not closed"));
            }
        }
    }

    fn string(&mut self) -> Result<String, Why> {
        let start = self.at;
        let mut end = start + 1;
        loop {
            match self.text.as_bytes().get(end) {
                Some(b'\\') => end += 2,
                Some(b'"') => break,
                Some(_) => end += 1,
                None => return Err(Why("it is not JSON: a text is not closed")),
            }
        }
        self.at = end + 1;
        serde_json::from_str(&self.text[start..self.at]).map_err(|_| Why("it is not JSON: a text is malformed"))
    }

    fn number(&mut self) -> Result<String, Why> {
        let start = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        let whole = self.run();
        if whole.is_empty() || (whole.len() > 1 && whole.starts_with('0')) {
            return Err(Why("it is not JSON: a number is malformed"));
        }
        let mut fraction = "";
        if self.peek() == Some(b'.') {
            self.at += 1;
            fraction = self.run();
            if fraction.is_empty() {
                return Err(Why("it is not JSON: a number is malformed"));
            }
        }
        let mut exponent = 0i64;
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            let negative = self.peek() == Some(b'-');
            self.at += usize::from(matches!(self.peek(), Some(b'-' | b'+')));
            let power = self.run();
            if power.is_empty() {
                return Err(Why("it is not JSON: a number is malformed"));
            }
            let power = power.parse::<i64>().unwrap_or(i64::MAX / 4);
            exponent = if negative { -power } else { power };
        }
        fits(whole, fraction, exponent)?;
        Ok(self.text[start..self.at].to_owned())
    }

    fn run(&mut self) -> &'a str {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }
}

/// Whether DynamoDB keeps every digit: at most 38 of them, from 1E-130 to below 1E+126.
fn fits(whole: &str, fraction: &str, exponent: i64) -> Result<(), Why> {
    let all = format!("{whole}{fraction}");
    let leading = all.len() - all.trim_start_matches('0').len();
    let significant = all.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return Ok(());
    }
    let size = i64::try_from(whole.len()).unwrap_or(i64::MAX) - i64::try_from(leading).unwrap_or(0) + exponent;
    if significant.len() > DIGITS {
        return Err(Why("a number has more than 38 digits, which is all that DynamoDB keeps"));
    }
    if !(-129..=126).contains(&size) {
        return Err(Why("a number is beyond what DynamoDB keeps, 1E-130 to 9.9E+125"));
    }
    Ok(())
}

fn put(value: &Value, out: &mut String) -> Option<()> {
    match value {
        Value::S(text) => out.push_str(&serde_json::to_string(text).ok()?),
        // As stored, if JSON spells numbers so.
        Value::N(digits) => out.push_str(serde_json::from_str::<&serde_json::value::RawValue>(digits).ok()?.get()),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Null(_) => out.push_str("null"),
        Value::L(values) => {
            out.push('[');
            for (n, value) in values.iter().enumerate() {
                if n > 0 {
                    out.push(',');
                }
                put(value, out)?;
            }
            out.push(']');
        }
        Value::M(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort_unstable();
            out.push('{');
            for (n, key) in keys.into_iter().enumerate() {
                if n > 0 {
                    out.push(',');
                }
                out.push_str(&serde_json::to_string(key).ok()?);
                out.push(':');
                put(&map[key], out)?;
            }
            out.push('}');
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(json: &str) -> String {
        write(&parse(json.as_bytes()).expect(json)).expect(json)
    }

    #[test]
    fn values_survive_and_numbers_keep_their_digits() {
        for json in [
            "null",
            "true",
            "\"\"",
            "\"é\\n🦀\\u0000\"",
            "{}",
            "[]",
            "[1,[2,{\"a\":null}]]",
            "-12.5",
            "12345678901234567890123456789012345678",
            "1e-130",
            "9.9E+125",
        ] {
            assert_eq!(round(json), json, "{json}");
        }
        assert_eq!(round(" { \"b\" : 1 , \"a\" : [ ] } \n"), r#"{"a":[],"b":1}"#);
        assert_eq!(round("\"\\ud83e\\udd80\""), "\"🦀\"");
    }

    #[test]
    fn what_would_be_lost_is_not_accepted() {
        let deep = format!("{}{}", "[".repeat(33), "]".repeat(33));
        let fits = format!("{}{}", "[".repeat(32), "]".repeat(32));
        assert!(parse(fits.as_bytes()).is_ok());
        for bad in [
            "",
            " ",
            "text",
            "{\"a\":1,\"a\":2}",
            "{\"a\":1,\"\\u0061\":2}",
            "123456789012345678901234567890123456789",
            "1e126",
            "1e-131",
            "01",
            "1.",
            "-",
            "[1",
            "[1 2]",
            "{1:2}",
            "\"a",
            "nul",
            "1 2",
            &deep,
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(parse(b"{\"a\":\"\xff\"}").is_err());
        assert_eq!(write(&Value::B(Default::default())).is_none(), write(&Value::Ss(vec!["a".into()])).is_none());
        assert!(write(&crate::dynamo::item::binary([1u8])).is_none());
    }
}
