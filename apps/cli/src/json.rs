//! Events as lines of JSON, in and out. A body that is JSON stays the text it was; what is not travels in base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fencepost::{Checkpoint, Event, Metadata, Position, Recorded, StreamName, Tag};
use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::failure::{Code, Failure};
use crate::output::{Paint, printable};

/// An event as it is given: what `read` and `tail` print is accepted too, without what the store adds.
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
    #[serde(rename = "position")]
    _position: Option<IgnoredAny>,
    #[serde(rename = "recorded_at")]
    _recorded_at: Option<IgnoredAny>,
    #[serde(rename = "stream")]
    _stream: Option<IgnoredAny>,
    #[serde(rename = "version")]
    _version: Option<IgnoredAny>,
    #[serde(rename = "checkpoint")]
    _checkpoint: Option<IgnoredAny>,
}

fn present<'de: 'a, 'a, D: Deserializer<'de>>(input: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(input).map(Some)
}

/// All events of the input, or the first line that is wrong, by its number. Blank lines count, and say nothing.
pub(crate) fn parse_events(input: &[u8]) -> Result<Vec<Event>, Failure> {
    let mut events = Vec::new();
    for (line, number) in input.split(|byte| *byte == b'\n').zip(1u64..) {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let event = parse_event(line).map_err(|why| {
            Failure::new(Code::Malformed, format!("line {number}: {why}; nothing was written"))
                .hint(r#"one JSON object a line: {"type":"OrderPlaced","data":{"total":7},"tags":["order:1"]}"#)
        })?;
        events.push(event);
    }
    Ok(events)
}

fn parse_event(line: &[u8]) -> Result<Event, String> {
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
    Ok(match given.id {
        Some(id) => event.id(id),
        None => event,
    })
}

/// Says "column 7", not "line 1 column 7": every line is read alone.
fn describe(error: serde_json::Error) -> String {
    let text = error.to_string();
    text.replace(&format!(" at line {} column {}", error.line(), error.column()), &format!(" at column {}", error.column()))
}

/// An event as it is printed.
#[derive(Debug, Serialize)]
pub(crate) struct EventLine<'a> {
    position: Position,
    id: Uuid,
    #[serde(rename = "type")]
    event_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
    tags: &'a [Tag],
    meta: &'a Metadata,
    recorded_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint: Option<&'a Checkpoint>,
}

impl<'a> EventLine<'a> {
    pub(crate) fn of(event: &'a Recorded) -> Self {
        let data = one_line(&event.data);
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
        }
    }

    pub(crate) fn stream(mut self, stream: &'a StreamName) -> Self {
        self.stream = Some(stream.as_str());
        self
    }

    pub(crate) fn checkpoint(mut self, checkpoint: &'a Checkpoint) -> Self {
        self.checkpoint = Some(checkpoint);
        self
    }

    /// What the number before each row is.
    pub(crate) fn place_name(&self) -> &'static str {
        if self.version.is_some() { "version" } else { "position" }
    }

    /// For people: one line.
    pub(crate) fn row(&self, paint: Paint) -> String {
        let place = self.version.map_or_else(|| self.position.to_string(), |version| version.to_string());
        let tags = self.tags.iter().map(|tag| printable(tag.as_str())).collect::<Vec<_>>().join(" ");
        let body = match (&self.data, &self.data_base64) {
            (Some(json), _) => printable(json.get()),
            (None, Some(text)) if text.is_empty() => String::new(),
            (None, text) => format!("base64:{}", text.as_deref().unwrap_or_default()),
        };
        // Padded before it is painted: escape codes have no width.
        let event_type = paint.bold(format!("{:<20}", printable(self.event_type)));
        let recorded = paint.dim(format!("{:<20.0}", self.recorded_at));
        format!("{place:>8}  {recorded}  {event_type}  {}  {body}", paint.name(tags)).trim_end().to_string()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(body: &[u8]) -> Recorded {
        let event_type = "T".try_into().expect("type");
        Recorded::new(
            Position::number(1),
            Uuid::nil(),
            event_type,
            body.to_vec().into(),
            vec![],
            Metadata::default(),
            Timestamp::UNIX_EPOCH,
        )
    }

    #[test]
    fn a_body_keeps_its_text_through_line_and_back() {
        for body in [r#"{"n":1.0000000000000000000001, "b":1e400}"#, "null", "[ 1,  2 ]", r#""\u00e9 \" é""#, "-0"] {
            let line = format!(r#"{{"type":"T","data":{body}}}"#);
            let events = parse_events(line.as_bytes()).expect("parses");
            assert_eq!(events[0].data().as_ref(), body.as_bytes());
            let recorded = recorded(events[0].data());
            let printed = serde_json::to_string(&EventLine::of(&recorded)).expect("prints");
            assert!(printed.contains(&format!(r#""data":{body},"#)), "{printed}");
            assert_eq!(parse_events(printed.as_bytes()).expect("what is printed is accepted")[0].data(), &recorded.data);
        }
    }

    #[test]
    fn what_is_not_json_travels_in_base64() {
        for body in [&b""[..], b"\x00\xff", b"{", b"1 2"] {
            let recorded = recorded(body);
            let printed = serde_json::to_string(&EventLine::of(&recorded)).expect("prints");
            assert!(!printed.contains("\"data\""), "{printed}");
            assert_eq!(parse_events(printed.as_bytes()).expect("parses")[0].data().as_ref(), body);
        }
    }

    #[test]
    fn a_body_of_many_lines_is_printed_on_one() {
        let printed = one_line(b"{\n  \"a b\": [1,\r\n 2],\n  \"c\": \"x \\\" \\\\\",\n \"d\" : 1.50 }\n").expect("json");
        assert_eq!(printed.get(), r#"{"a b":[1,2],"c":"x \" \\","d":1.50}"#);
    }

    #[test]
    fn a_wrong_line_is_named_by_its_number() {
        let good = r#"{"type":"T","data":1}"#;
        let bad = [
            ("{", "line 3: EOF while parsing"),
            ("[1]", "line 3: it is not a JSON object"),
            (r#"{"data":1}"#, "line 3: missing field `type`"),
            (r#"{"type":"T","tag":["x"]}"#, "line 3: unknown field `tag`"),
            (r#"{"type":"T","data":1,"data_base64":""}"#, "line 3: it has both"),
            (r#"{"type":"T","data_base64":"*"}"#, "line 3: data_base64 is not base64"),
            (r#"{"type":"","data":1}"#, "line 3: refused: an empty event type"),
            (r#"{"type":"T","tags":[""]}"#, "line 3: refused: an empty tag"),
            (r#"{"type":"T","id":"x"}"#, "line 3: "),
            (r#"{"type":"T"} x"#, "line 3: trailing characters at column 14"),
        ];
        for (line, expected) in bad {
            let failure = parse_events(format!("{good}\n\n{line}\n{good}").as_bytes()).expect_err(line);
            let Failure::Own { message, code: Code::Malformed, .. } = failure else { panic!("{failure:?}") };
            assert!(message.starts_with(expected), "{message}");
        }
        assert_eq!(parse_events(format!("{good}\r\n\n{good}").as_bytes()).expect("parses").len(), 2);
    }
}
