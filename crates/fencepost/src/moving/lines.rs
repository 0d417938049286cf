//! Events as lines of JSON: what `read`, `tail` and `export` print and what `append` and `import` take. Pure.
//!
//! A body that is JSON stays the text it was; what is not travels in base64. Two ways to print one, because they have two readers: on
//! [`Line::of`] a body of many lines is squeezed onto one, for people and `jq`; [`Line::exact`] sends it in base64 instead, since an export
//! must come back byte by byte.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::error::Result;
use crate::event::{Event, Metadata, Recorded, StreamName, Tag};
use crate::position::{Checkpoint, Position};
use crate::query::Query;

/// An event as it is printed.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Line<'a> {
    /// Where it stands.
    pub position: Position,
    /// Its id.
    pub id: Uuid,
    /// Its type.
    #[serde(rename = "type")]
    pub event_type: &'a str,
    /// Its body, where that is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
    /// Its body, where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_base64: Option<String>,
    /// Its tags.
    pub tags: &'a [Tag],
    /// Its metadata.
    pub meta: &'a Metadata,
    /// When it was recorded.
    pub recorded_at: Timestamp,
    /// The stream that it was read from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<&'a str>,
    /// Its number there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Where the feed goes on behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<&'a Checkpoint>,
    /// Which of how many events of its commit, from 1; only exports tell, and only of commits with more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<(u64, u64)>,
    /// What was asked for, on the first line of an export.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<&'a Query>,
}

impl<'a> Line<'a> {
    /// For people and programs: a body that is JSON is shown as JSON, on one line.
    pub fn of(event: &'a Recorded) -> Self {
        Self::with(event, one_line(&event.data))
    }

    /// For keeping: what [`parse`] makes of it has the same body, byte by byte.
    pub fn exact(event: &'a Recorded) -> Self {
        let json = serde_json::from_slice::<&RawValue>(&event.data).ok();
        // White space around the value is not part of it, and a line break would end the line.
        let kept = json.filter(|json| json.get().as_bytes() == event.data.as_ref() && !json.get().contains(['\n', '\r']));
        Self::with(event, kept.map(RawValue::to_owned))
    }

    fn with(event: &'a Recorded, data: Option<Box<RawValue>>) -> Self {
        let data_base64 = data.is_none().then(|| STANDARD.encode(&event.data));
        Self {
            position: event.position,
            id: event.id,
            event_type: event.event_type.as_str(),
            data,
            data_base64,
            tags: &event.tags,
            meta: &event.meta,
            recorded_at: event.recorded_at,
            stream: None,
            version: event.version,
            checkpoint: None,
            part: None,
            query: None,
        }
    }

    /// Of this stream.
    pub fn stream(mut self, stream: &'a StreamName) -> Self {
        self.stream = Some(stream.as_str());
        self
    }

    /// With the place in the feed behind it.
    pub fn checkpoint(mut self, checkpoint: &'a Checkpoint) -> Self {
        self.checkpoint = Some(checkpoint);
        self
    }

    /// As one of several events of its commit.
    pub fn part(mut self, number: u64, of: u64) -> Self {
        self.part = (of > 1).then_some((number, of));
        self
    }

    /// As the first of those that match this.
    pub fn query(mut self, query: &'a Query) -> Self {
        self.query = Some(query);
        self
    }
}

/// A JSON body on one line: as it is, or without the white space between its tokens where it has line breaks. None for what is not JSON.
fn one_line(body: &[u8]) -> Option<Box<RawValue>> {
    let json: &RawValue = serde_json::from_slice(body).ok()?;
    if !json.get().contains(['\n', '\r']) {
        return Some(json.to_owned());
    }
    let (mut quoted, mut escaped) = (false, false);
    let compact = json.get().chars().filter(|&c| {
        let kept = quoted || !c.is_ascii_whitespace();
        quoted ^= c == '"' && !escaped;
        escaped = quoted && c == '\\' && !escaped;
        kept
    });
    RawValue::from_string(compact.collect()).ok()
}

/// What a line says.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Parsed {
    /// The event, with its id if the line has one.
    pub event: Event,
    /// Where it stood.
    pub position: Option<Position>,
    /// When it was recorded there.
    pub recorded_at: Option<Timestamp>,
    /// Where the feed went on behind it.
    pub checkpoint: Option<Checkpoint>,
    /// Which of how many events of its commit it was.
    pub part: Option<(u64, u64)>,
    /// What the export was asked for that begins with this line.
    pub query: Option<Query>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given<'a> {
    #[serde(rename = "type")]
    event_type: String,
    // Not an Option of itself: `null` is a body like any other.
    #[serde(default, borrow, deserialize_with = "present")]
    data: Option<&'a RawValue>,
    data_base64: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    meta: Metadata,
    id: Option<Uuid>,
    position: Option<Position>,
    recorded_at: Option<Timestamp>,
    checkpoint: Option<Checkpoint>,
    part: Option<(u64, u64)>,
    query: Option<Query>,
    #[serde(rename = "stream")]
    _stream: Option<serde::de::IgnoredAny>,
    #[serde(rename = "version")]
    _version: Option<serde::de::IgnoredAny>,
}

fn present<'de: 'a, 'a, D: Deserializer<'de>>(input: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(input).map(Some)
}

/// What a line says, or what is wrong with it, in words that quote no body.
pub fn parse(line: &[u8]) -> Result<Parsed, String> {
    let text = std::str::from_utf8(line).map_err(|e| format!("it is not UTF-8 from byte {} on", e.valid_up_to() + 1))?.trim();
    if !text.starts_with('{') {
        return Err("it is not a JSON object".into());
    }
    let given: Given<'_> = serde_json::from_str(text).map_err(describe)?;
    let data = match (given.data, given.data_base64) {
        (Some(_), Some(_)) => return Err("it has both data and data_base64".into()),
        (Some(json), None) => json.get().as_bytes().to_vec(),
        (None, Some(text)) => STANDARD.decode(text).map_err(|_| "data_base64 is not base64 (the standard alphabet, padded)")?,
        (None, None) => Vec::new(),
    };
    let mut event = Event::new(given.event_type, data).map_err(|e| e.to_string())?.meta(given.meta);
    for tag in given.tags {
        event = event.tag(tag).map_err(|e| e.to_string())?;
    }
    let event = match given.id {
        Some(id) => event.id(id),
        None => event,
    };
    let Given { position, recorded_at, checkpoint, part, query, .. } = given;
    Ok(Parsed { event, position, recorded_at, checkpoint, part, query })
}

/// Says "column 7", not "line 1 column 7": every line is read alone.
fn describe(error: serde_json::Error) -> String {
    let text = error.to_string();
    text.replace(&format!(" at line {} column {}", error.line(), error.column()), &format!(" at column {}", error.column()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(body: &[u8]) -> Recorded {
        let event_type = "T".try_into().expect("type");
        let (position, data, meta) = (Position::number(1), body.to_vec().into(), Metadata::default());
        Recorded::new(position, Uuid::nil(), event_type, data, vec![], meta, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_body_keeps_its_text_through_line_and_back() {
        for body in [r#"{"n":1.0000000000000000000001, "b":1e400}"#, "null", "[ 1,  2 ]", r#""\u00e9 \" é""#, "-0"] {
            let line = format!(r#"{{"type":"T","data":{body}}}"#);
            let parsed = parse(line.as_bytes()).expect("parses");
            assert_eq!(parsed.event.data().as_ref(), body.as_bytes());
            let recorded = recorded(parsed.event.data());
            for line in [Line::of(&recorded), Line::exact(&recorded)] {
                let printed = serde_json::to_string(&line).expect("prints");
                assert!(printed.contains(&format!(r#""data":{body},"#)), "{printed}");
                assert_eq!(parse(printed.as_bytes()).expect("what is printed is accepted").event.data(), &recorded.data);
            }
        }
    }

    #[test]
    fn what_is_not_json_travels_in_base64() {
        for body in [&b""[..], b"\x00\xff", b"{", b"1 2"] {
            let recorded = recorded(body);
            let printed = serde_json::to_string(&Line::of(&recorded)).expect("prints");
            assert!(!printed.contains("\"data\""), "{printed}");
            assert_eq!(parse(printed.as_bytes()).expect("parses").event.data().as_ref(), body);
        }
    }

    #[test]
    fn an_exact_line_keeps_every_byte() {
        for body in [&b" 1"[..], b"1 ", b"1\n", b"{\n \"a\": 1}", b"{\"a\":\r1}", b"\xef\xbb\xbf1", b"\"\\ud800\"", b"\t{}"] {
            let recorded = recorded(body);
            let printed = serde_json::to_string(&Line::exact(&recorded)).expect("prints");
            assert_eq!(printed.lines().count(), 1, "{printed}");
            assert_eq!(parse(printed.as_bytes()).expect("parses").event.data().as_ref(), body, "{printed}");
        }
    }

    #[test]
    fn a_body_of_many_lines_is_printed_on_one() {
        let printed = one_line(b"{\n  \"a b\": [1,\r\n 2],\n  \"c\": \"x \\\" \\\\\",\n \"d\" : 1.50 }\n").expect("json");
        assert_eq!(printed.get(), r#"{"a b":[1,2],"c":"x \" \\","d":1.50}"#);
    }
}
