//! YAML documents, read as `kubectl` reads them.
//!
//! Scalars mean what YAML 1.1 makes of them (`yes` and `on` are true, `010` is eight), because `sigs.k8s.io/yaml` does
//! so; the grammar itself is that of YAML 1.2. A YAML number passes through JSON, so that `1.0` becomes the integer 1.

mod scalar;
mod write;

use std::collections::HashMap;

pub use write::to_string;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput};

use crate::json::{
    Document, Duplicate, MAX_DEPTH, Object, Spans, SyntaxError, Text, Value, parse_document, parse_prefix,
};

/// How many values aliases may add to one document.
const MAX_ALIASED_VALUES: usize = 1_000_000;

/// Reads a file of manifests: YAML documents, or JSON objects one after another. Empty documents are left out.
/// What stands before an error is given as well.
#[must_use]
pub fn parse_manifests(text: &str) -> (Vec<Document>, Option<SyntaxError>) {
    if text.trim_start().starts_with('{')
        && let Some(documents) = parse_json_stream(text)
    {
        return (documents, None);
    }
    parse_documents(text)
}

/// Reads YAML documents. Empty ones are left out; what stands before an error is given as well.
#[must_use]
pub fn parse_documents(text: &str) -> (Vec<Document>, Option<SyntaxError>) {
    let mut reader = Reader::new(text);
    let mut documents = Vec::new();
    loop {
        match reader.document() {
            Ok(Some(document)) if document.value.is_null() => {}
            Ok(Some(document)) => documents.push(document),
            Ok(None) => return (documents, None),
            Err(error) => return (documents, Some(error)),
        }
    }
}

/// JSON objects one after another, or `None` if the text is something else.
fn parse_json_stream(text: &str) -> Option<Vec<Document>> {
    let bytes = text.as_bytes();
    let mut documents = Vec::new();
    let mut start = 0_usize;
    loop {
        let rest = bytes.get(start..)?;
        if rest.trim_ascii().is_empty() {
            return Some(documents);
        }
        let (_, length) = parse_prefix(rest).ok()?;
        let mut document = parse_document(rest.get(..length)?).ok()?;
        shift(&mut document.spans, start);
        for duplicate in &mut document.duplicates {
            duplicate.offset = duplicate.offset.saturating_add(start);
        }
        documents.push(document);
        start = start.saturating_add(length);
    }
}

fn shift(spans: &mut Spans, by: usize) {
    spans.offset = spans.offset.saturating_add(by);
    spans.value_offset = spans.value_offset.saturating_add(by);
    spans.children.iter_mut().for_each(|child| shift(child, by));
}

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    /// Byte offsets of all characters, needed only if some take several bytes.
    byte_offsets: Option<Vec<usize>>,
    length: usize,
    anchors: HashMap<usize, (Value, Spans, usize)>,
    aliased: usize,
    duplicates: Vec<Duplicate>,
    path: Vec<String>,
}

/// A value, where it stands, and how many values it consists of.
type Node = (Value, Spans, usize);

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            events: Parser::new_from_str(text),
            byte_offsets: (!text.is_ascii()).then(|| text.char_indices().map(|(offset, _)| offset).collect()),
            length: text.len(),
            anchors: HashMap::new(),
            aliased: 0,
            duplicates: Vec::new(),
            path: Vec::new(),
        }
    }

    fn offset(&self, marker: &Marker) -> usize {
        match &self.byte_offsets {
            None => marker.index().min(self.length),
            Some(offsets) => offsets.get(marker.index()).copied().unwrap_or(self.length),
        }
    }

    fn next(&mut self) -> Result<Option<(Event<'a>, usize)>, SyntaxError> {
        match self.events.next() {
            None => Ok(None),
            Some(Ok((event, span))) => Ok(Some((event, self.start(span)))),
            Some(Err(error)) => Err(self.scan_error(&error)),
        }
    }

    fn start(&self, span: Span) -> usize {
        self.offset(&span.start)
    }

    fn scan_error(&self, error: &ScanError) -> SyntaxError {
        let message = format!("yaml: line {}: {}", error.marker().line(), error.info());
        SyntaxError { message, offset: self.offset(error.marker()) }
    }

    /// The next document, or `None` at the end.
    fn document(&mut self) -> Result<Option<Document>, SyntaxError> {
        self.anchors.clear();
        self.aliased = 0;
        while let Some((event, offset)) = self.next()? {
            match event {
                Event::StreamEnd => return Ok(None),
                Event::Nothing | Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd => {}
                event => {
                    let (value, spans, _) = self.node(event, offset, 0)?;
                    let duplicates = std::mem::take(&mut self.duplicates);
                    return Ok(Some(Document { value, duplicates, spans }));
                }
            }
        }
        Ok(None)
    }

    fn node(&mut self, event: Event<'a>, offset: usize, depth: usize) -> Result<Node, SyntaxError> {
        if depth > MAX_DEPTH {
            return Err(error("exceeded max depth", offset));
        }
        let (anchor, node) = match event {
            Event::Alias(anchor) => return self.alias(anchor, offset),
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                let tag = tag.as_ref().map(|tag| format!("{}{}", tag.handle, tag.suffix));
                let value = scalar::resolve(&text, plain, tag.as_deref()).map_err(|message| error(&message, offset))?;
                (anchor, (value, leaf(offset), 1))
            }
            Event::SequenceStart(anchor, _) => (anchor, self.sequence(offset, depth)?),
            Event::MappingStart(anchor, _) => (anchor, self.mapping(offset, depth)?),
            _ => return Err(error("did not find expected node content", offset)),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn alias(&mut self, anchor: usize, offset: usize) -> Result<Node, SyntaxError> {
        let Some((value, spans, size)) = self.anchors.get(&anchor).cloned() else {
            return Err(error("anchor contains itself", offset));
        };
        self.aliased = self.aliased.saturating_add(size);
        if self.aliased > MAX_ALIASED_VALUES {
            return Err(error("document contains excessive aliasing", offset));
        }
        Ok((value, Spans { offset, value_offset: offset, ..spans }, size))
    }

    fn sequence(&mut self, offset: usize, depth: usize) -> Result<Node, SyntaxError> {
        let mut items = Vec::new();
        let mut spans = leaf(offset);
        let mut size = 1_usize;
        loop {
            let (event, at) = self.next()?.ok_or_else(|| error("unexpected end of stream", offset))?;
            if event == Event::SequenceEnd {
                return Ok((Value::Array(items), spans, size));
            }
            self.path.push(format!("[{}]", items.len()));
            let (item, span, item_size) = self.node(event, at, depth.saturating_add(1))?;
            self.path.pop();
            items.push(item);
            spans.children.push(span);
            size = size.saturating_add(item_size);
        }
    }

    fn mapping(&mut self, offset: usize, depth: usize) -> Result<Node, SyntaxError> {
        let mut fields = Fields::default();
        let mut size = 1_usize;
        loop {
            let (event, key_offset) = self.next()?.ok_or_else(|| error("unexpected end of stream", offset))?;
            if event == Event::MappingEnd {
                let spans = Spans { children: fields.spans, ..leaf(offset) };
                return Ok((Value::Object(fields.values.into_iter().collect()), spans, size));
            }
            let is_merge = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<");
            let (key, _, _) = self.node(event, key_offset, depth.saturating_add(1))?;
            let key = scalar::key_text(&key).ok_or_else(|| error("invalid map key", key_offset))?;
            let (event, at) = self.next()?.ok_or_else(|| error("unexpected end of stream", offset))?;
            self.path.push(key.to_string());
            let (value, span, value_size) = self.node(event, at, depth.saturating_add(1))?;
            if !is_merge && fields.index.contains_key(&key) {
                self.duplicates.push(Duplicate { path: render_path(&self.path), offset: key_offset });
            }
            self.path.pop();
            size = size.saturating_add(value_size);
            if is_merge {
                merge(&mut fields, value, span).map_err(|message| error(message, at))?;
            } else {
                fields.set(key, value, Spans { offset: key_offset, ..span });
            }
        }
    }
}

#[derive(Default)]
struct Fields {
    values: Vec<(Text, Value)>,
    spans: Vec<Spans>,
    index: HashMap<Text, usize>,
}

impl Fields {
    fn set(&mut self, key: Text, value: Value, span: Spans) {
        let known = self.index.get(&key).copied();
        let slots = known.and_then(|at| Some((self.values.get_mut(at)?, self.spans.get_mut(at)?)));
        match slots {
            Some((slot, span_slot)) => {
                slot.1 = value;
                *span_slot = span;
            }
            None => {
                self.index.insert(key.clone(), self.values.len());
                self.values.push((key, value));
                self.spans.push(span);
            }
        }
    }
}

/// Takes over what `<<` refers to: a mapping, or several of which earlier ones win.
fn merge(fields: &mut Fields, value: Value, spans: Spans) -> Result<(), &'static str> {
    match value {
        Value::Object(object) => merge_object(fields, object, spans),
        Value::Array(items) => {
            for (item, span) in items.into_iter().zip(spans.children).rev() {
                match item {
                    Value::Object(object) => merge_object(fields, object, span),
                    _ => return Err("map merge requires map or sequence of maps as the value"),
                }
            }
        }
        _ => return Err("map merge requires map or sequence of maps as the value"),
    }
    Ok(())
}

fn merge_object(fields: &mut Fields, object: Object, spans: Spans) {
    for ((key, value), span) in object.into_iter().zip(spans.children) {
        fields.set(key, value, span);
    }
}

fn render_path(path: &[String]) -> String {
    path.iter().enumerate().fold(String::new(), |out, (index, part)| {
        let separator = if index == 0 || part.starts_with('[') { "" } else { "." };
        out + separator + part
    })
}

fn leaf(offset: usize) -> Spans {
    Spans { offset, value_offset: offset, children: Vec::new() }
}

fn error(message: &str, offset: usize) -> SyntaxError {
    SyntaxError { message: format!("yaml: {message}"), offset }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{Position, to_string};

    #[track_caller]
    fn check(yaml: &str, json: &str) {
        let (documents, error) = parse_documents(yaml);
        assert_eq!(error, None, "{yaml}");
        let texts: Vec<_> = documents.iter().map(|document| to_string(&document.value)).collect();
        assert_eq!(texts.join(" "), json, "{yaml}");
    }

    #[test]
    fn scalars_mean_what_yaml_1_1_says() {
        check("[y, Yes, on, TRUE, n, no, Off, false]", "[true,true,true,true,false,false,false,false]");
        check("['yes', \"on\", !!str yes, yEs]", r#"["yes","on","yes","yEs"]"#);
        check("[~, null, Null, NULL, ]", "[null,null,null,null]");
        check("a:", r#"{"a":null}"#);
        check("[1, 010, 0x1f, 0b11, 0o17, 1_000, +5, -3, 08]", "[1,8,31,3,15,1000,5,-3,8]");
        check("[1.0, 1.5, .5, 1e3, 1., -1.5e-7, 1e21]", "[1,1.5,0.5,1000,1,-1.5e-7,1e+21]");
        check(
            "[9223372036854775808, 1.2.3, 1e, 12:30, 2001-01-01, 1Gi]",
            r#"[9223372036854775808,"1.2.3","1e","12:30","2001-01-01","1Gi"]"#
                .replace("9223372036854775808", "9223372036854776000")
                .as_str(),
        );
        check("{1: a, true: b, 1.5: c, on: d}", r#"{"1":"a","true":"d","1.5":"c"}"#);
        check("a: |\n  x\n  y\nb: >-\n  x\n  y", r#"{"a":"x\ny\n","b":"x y"}"#);
    }

    #[test]
    fn documents_are_separated_and_empty_ones_left_out() {
        check("a: 1\n---\n# nothing\n---\nb: 2\n...\n---\n- c", r#"{"a":1} {"b":2} ["c"]"#);
        let (documents, error) = parse_documents("a: 1\n---\nb: [");
        assert_eq!(documents.len(), 1);
        assert!(error.unwrap().message.starts_with("yaml: line "));
    }

    #[test]
    fn json_streams_are_manifests_too() {
        let (documents, error) = parse_manifests(" {\"a\": 1.0}\n{\"b\": 2, \"b\": 3}\n");
        assert_eq!((documents.len(), error), (2, None));
        assert_eq!(documents[1].duplicates[0].offset, 21);
        assert_eq!(documents[1].spans.offset, 12);
    }

    #[test]
    fn anchors_and_merges_are_resolved() {
        check(
            "a: &x {b: 1, c: 2}\nd: *x\ne: {<<: *x, c: 3}",
            r#"{"a":{"b":1,"c":2},"d":{"b":1,"c":2},"e":{"b":1,"c":3}}"#,
        );
        check("e: {<<: [{a: 1}, {a: 2, b: 2}]}", r#"{"e":{"a":1,"b":2}}"#);
    }

    #[test]
    fn aliases_cannot_explode() {
        let mut text = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for level in 1..9 {
            let inner = vec![format!("*a{}", level - 1); 10].join(",");
            text.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
        }
        let (_, error) = parse_documents(&text);
        assert_eq!(error.unwrap().message, "yaml: document contains excessive aliasing");
    }

    #[test]
    fn places_and_duplicates_are_known() {
        let text = "kind: Pöd\nspec:\n  list:\n  - k: ä\n    v: 1\n    v: 2\n";
        let (documents, _) = parse_documents(text);
        let document = &documents[0];
        let span = document.spans.locate(&document.value, "spec.list[0].v");
        assert_eq!(Position::of(text.as_bytes(), span.offset), Position { line: 6, column: 5 });
        assert_eq!(document.duplicates[0].path, "spec.list[0].v");
    }
}
