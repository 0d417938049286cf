//! Events as lines of JSON, in and out, as the library has them; here is how people see one, and which line was wrong.

use fencepost::Event;
pub(crate) use fencepost::moving::Line as EventLine;
use fencepost::moving::parse;

use crate::failure::{Code, Failure};
use crate::output::{Paint, printable};

/// All events of the input, or the first line that is wrong, by its number. Blank lines count, and say nothing.
pub(crate) fn parse_events(input: &[u8]) -> Result<Vec<Event>, Failure> {
    let mut events = Vec::new();
    for (line, number) in input.split(|byte| *byte == b'\n').zip(1u64..) {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let parsed = parse(line).map_err(|why| {
            Failure::new(Code::Malformed, format!("line {number}: {why}; nothing was written"))
                .hint(r#"one JSON object a line: {"type":"OrderPlaced","data":{"total":7},"tags":["order:1"]}"#)
        })?;
        events.push(parsed.event);
    }
    Ok(events)
}

/// What the number before each row is.
pub(crate) fn place_name(line: &EventLine<'_>) -> &'static str {
    if line.version.is_some() { "version" } else { "position" }
}

/// For people: one line.
pub(crate) fn row(line: &EventLine<'_>, paint: Paint) -> String {
    let place = line.version.map_or_else(|| line.position.to_string(), |version| version.to_string());
    let tags = line.tags.iter().map(|tag| printable(tag.as_str())).collect::<Vec<_>>().join(" ");
    let body = match (&line.data, &line.data_base64) {
        (Some(json), _) => printable(json.get()),
        (None, Some(text)) if text.is_empty() => String::new(),
        (None, text) => format!("base64:{}", text.as_deref().unwrap_or_default()),
    };
    // Padded before it is painted: escape codes have no width.
    let event_type = paint.bold(format!("{:<20}", printable(line.event_type)));
    let recorded = paint.dim(format!("{:<20.0}", line.recorded_at));
    format!("{place:>8}  {recorded}  {event_type}  {}  {body}", paint.name(tags)).trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

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
