//! Composite tags: `seat:{course}-{row}` as its key, its texts and its fields. Pure.

/// A composite tag, taken apart.
#[derive(Debug, PartialEq)]
pub(crate) struct Template {
    /// What stands before the first `:`.
    pub(crate) key: String,
    pub(crate) parts: Vec<Part>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Part {
    Text(String),
    /// A field by its name or index.
    Field(String),
}

impl Template {
    /// The message says what is wrong and what to write.
    pub(crate) fn parse(template: &str) -> Result<Template, String> {
        let parts = parts(template)?;
        let Some((key, _)) = (match parts.first() {
            Some(Part::Text(text)) => text.split_once(':'),
            _ => None,
        }) else {
            return Err(no_key(template));
        };
        if matches!(parts.as_slice(), [Part::Text(text)] if text.len() == key.len() + 1) {
            return Err(format!("nothing follows the key of the tag \"{template}\": write \"{key}:{{field}}\""));
        }
        Ok(Template { key: key.to_owned(), parts })
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Field(name) => Some(name.as_str()),
            Part::Text(_) => None,
        })
    }
}

fn no_key(template: &str) -> String {
    let remedy = if template.contains('{') {
        format!("write \"key:{template}\"")
    } else {
        format!("write \"{template}:{{field}}\", or put `#[tag(\"{template}\")]` on a field")
    };
    format!("the tag \"{template}\" has no `key:` in front of its fields: {remedy}")
}

fn parts(template: &str) -> Result<Vec<Part>, String> {
    let (mut parts, mut text, mut rest) = (Vec::new(), String::new(), template);
    while let Some(at) = rest.find(['{', '}']) {
        text.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        let after = &rest[at + 1..];
        if let Some(after) = after.strip_prefix(brace) {
            text.push_str(brace);
            rest = after;
            continue;
        }
        let name = if brace == "{" { after.split_once('}') } else { None };
        let Some((name, after)) = name else {
            return Err(format!("a brace in the tag \"{template}\" has no partner: write `{{{{` or `}}}}` for a brace itself"));
        };
        if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
            return Err(format!(
                "`{{{name}}}` in the tag \"{template}\" names no field: between braces stands a field's name, or its number"
            ));
        }
        if !text.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut text)));
        }
        parts.push(Part::Field(name.to_owned()));
        rest = after;
    }
    text.push_str(rest);
    if !text.is_empty() {
        parts.push(Part::Text(text));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Part {
        Part::Text(text.to_owned())
    }
    fn field(name: &str) -> Part {
        Part::Field(name.to_owned())
    }

    #[test]
    fn a_template_is_a_key_and_its_parts() {
        let seat = Template::parse("seat:{course}-{row}").expect("a template");
        assert_eq!(seat.key, "seat");
        assert_eq!(seat.parts, [text("seat:"), field("course"), text("-"), field("row")]);
        assert_eq!(seat.fields().collect::<Vec<_>>(), ["course", "row"]);
        assert_eq!(Template::parse("a:b:{0}{1}").expect("a template").parts, [text("a:b:"), field("0"), field("1")]);
        assert_eq!(Template::parse("all:courses").expect("a tag without fields").parts, [text("all:courses")]);
        assert_eq!(Template::parse("k:{{{a}}}").expect("braces").parts, [text("k:{"), field("a"), text("}")]);
    }

    #[test]
    fn the_key_is_text_before_the_first_colon() {
        for (template, said) in [
            ("course", "put `#[tag(\"course\")]` on a field"),
            ("{a}:{b}", "write \"key:{a}:{b}\""),
            ("x{a}:b", "no `key:`"),
            ("", "no `key:`"),
            ("seat:", "nothing follows the key"),
        ] {
            let why = Template::parse(template).expect_err(template);
            assert!(why.contains(said), "{template}: {why}");
        }
    }

    #[test]
    fn braces_must_pair_and_hold_a_name() {
        for (template, said) in [("k:{a", "partner"), ("k:a}", "partner"), ("k:{}", "names no field"), ("k:{a:?}", "names no field")] {
            let why = Template::parse(template).expect_err(template);
            assert!(why.contains(said), "{template}: {why}");
        }
    }
}
