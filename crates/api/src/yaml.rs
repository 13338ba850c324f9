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

/// Bytes that anchors and aliases may add to a short text; to a longer one they may add its own length.
///
/// The limit applies to all documents of a text together: many small documents must not exceed the limit of
/// one.
const EXPANSION_BYTES: usize = 4 << 20;

/// Bytes that a value takes besides its text: the value itself and its place in the text.
const VALUE_BYTES: usize = 64;

/// Reads a file of manifests: YAML documents, or a sequence of JSON objects. Empty documents are skipped.
/// Documents before an error are returned as well.
#[must_use]
pub fn parse_manifests(text: &str) -> (Vec<Document>, Option<SyntaxError>) {
    if text.trim_start().starts_with('{')
        && let Some(documents) = parse_json_stream(text)
    {
        return (documents, None);
    }
    parse_documents(text)
}

/// Reads YAML documents. Empty ones are skipped; documents before an error are returned as well.
#[must_use]
pub fn parse_documents(text: &str) -> (Vec<Document>, Option<SyntaxError>) {
    parse_documents_while(text, &|| true)
}

/// Like [`parse_documents`], but ends with an error when `is_wanted`, which is called periodically, returns
/// false.
#[must_use]
pub fn parse_documents_while(text: &str, is_wanted: &dyn Fn() -> bool) -> (Vec<Document>, Option<SyntaxError>) {
    let mut reader = Reader::new(text, is_wanted);
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

/// Reads one YAML document that has neither anchors nor aliases, so that the value is not larger than its text.
///
/// # Errors
/// The first syntax error, an anchor, or a second document.
pub fn parse_without_aliases(text: &str) -> Result<Document, SyntaxError> {
    let mut reader = Reader { expansion_max: 0, ..Reader::new(text, &|| true) };
    let Some(document) = reader.document()? else { return Ok(Document::default()) };
    match reader.document()? {
        None => Ok(document),
        Some(second) => Err(error("expected one document", second.spans.offset)),
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
    anchors: HashMap<usize, Node>,
    /// Bytes that were copied for anchors and aliases so far, in all documents.
    copied: usize,
    /// The limit of such bytes.
    expansion_max: usize,
    duplicates: Vec<Duplicate>,
    path: Vec<String>,
    is_wanted: &'a dyn Fn() -> bool,
    /// Number of values read, which determines the calls of `is_wanted`.
    read: usize,
}

/// Number of values between two calls of `is_wanted`.
const ASK_EVERY: usize = 4096;

/// A value, its place in the text, and the bytes that a copy takes.
type Node = (Value, Spans, usize);

impl<'a> Reader<'a> {
    fn new(text: &'a str, is_wanted: &'a dyn Fn() -> bool) -> Self {
        Self {
            events: Parser::new_from_str(text),
            byte_offsets: (!text.is_ascii()).then(|| text.char_indices().map(|(offset, _)| offset).collect()),
            length: text.len(),
            anchors: HashMap::new(),
            copied: 0,
            expansion_max: text.len().max(EXPANSION_BYTES),
            duplicates: Vec::new(),
            path: Vec::new(),
            is_wanted,
            read: 0,
        }
    }

    fn offset(&self, marker: &Marker) -> usize {
        match &self.byte_offsets {
            None => marker.index().min(self.length),
            Some(offsets) => offsets.get(marker.index()).copied().unwrap_or(self.length),
        }
    }

    fn next(&mut self) -> Result<Option<(Event<'a>, usize)>, SyntaxError> {
        self.read = self.read.wrapping_add(1);
        if self.read.is_multiple_of(ASK_EVERY) && !(self.is_wanted)() {
            return Err(error("reading was interrupted", 0));
        }
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
        let line = error.marker().line();
        // Go's parser omits the first line.
        let place = if line > 1 { format!("line {line}: ") } else { String::new() };
        let message = format!("yaml: {place}{}", error.info());
        SyntaxError { message, offset: self.offset(error.marker()) }
    }

    /// The next document, or `None` at the end.
    fn document(&mut self) -> Result<Option<Document>, SyntaxError> {
        self.anchors.clear();
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
                let size = VALUE_BYTES.saturating_add(text.len());
                (anchor, (value, leaf(offset), size))
            }
            Event::SequenceStart(anchor, _) => (anchor, self.sequence(offset, depth)?),
            Event::MappingStart(anchor, _) => (anchor, self.mapping(offset, depth)?),
            _ => return Err(error("did not find expected node content", offset)),
        };
        if anchor != 0 {
            // Anchors inside anchors copy the innermost value once for each level.
            self.charge(node.2, offset)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn alias(&mut self, anchor: usize, offset: usize) -> Result<Node, SyntaxError> {
        let Some(size) = self.anchors.get(&anchor).map(|(_, _, size)| *size) else {
            return Err(error("anchor contains itself", offset));
        };
        self.charge(size, offset)?;
        let Some((value, spans, size)) = self.anchors.get(&anchor).cloned() else {
            return Err(error("anchor contains itself", offset));
        };
        Ok((value, Spans { offset, value_offset: offset, ..spans }, size))
    }

    /// Counts a copy before it is made.
    fn charge(&mut self, bytes: usize, offset: usize) -> Result<(), SyntaxError> {
        self.copied = self.copied.saturating_add(bytes);
        if self.copied > self.expansion_max {
            return Err(error("document contains excessive aliasing", offset));
        }
        Ok(())
    }

    fn sequence(&mut self, offset: usize, depth: usize) -> Result<Node, SyntaxError> {
        let mut items = Vec::new();
        let mut spans = leaf(offset);
        let mut size = VALUE_BYTES;
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
        let mut size = VALUE_BYTES;
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
                Duplicate::note(&mut self.duplicates, key_offset, || render_path(&self.path));
            }
            self.path.pop();
            size = size.saturating_add(value_size).saturating_add(key.len());
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

/// Merges the target of `<<`: a mapping, or several of which earlier ones win.
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
    fn scalars_follow_yaml_1_1() {
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

    #[track_caller]
    fn check_expansion(text: &str, is_read: bool) {
        let (_, error) = parse_documents(text);
        let refusal = error.map(|error| error.message);
        let expected = (!is_read).then(|| "yaml: document contains excessive aliasing".to_owned());
        assert_eq!(refusal, expected);
    }

    #[test]
    fn long_text_is_not_copied_by_every_alias() {
        let long = "x".repeat(1 << 20);
        check_expansion(&format!("a: &a {long}\nb: [*a, *a]"), true);
        check_expansion(&format!("a: &a {long}\nb: [{}]", vec!["*a"; 600].join(",")), false);
        check_expansion(&format!("a: &a {{{long}: 1}}\nb: [{}]", vec!["*a"; 600].join(",")), false);
    }

    #[test]
    fn reading_can_be_interrupted() {
        let text = format!("[{}]", vec!["a"; 10_000].join(","));
        let asked = std::cell::Cell::new(0);
        let (documents, error) = parse_documents_while(&text, &|| {
            asked.set(asked.get() + 1);
            asked.get() < 2
        });
        assert_eq!((documents.len(), error.unwrap().message), (0, "yaml: reading was interrupted".to_owned()));
    }

    #[test]
    fn nested_anchors_are_counted() {
        let levels: String = (0..100).map(|level| format!("&a{level} [")).collect();
        check_expansion(&format!("{levels}{}{}", "x".repeat(100_000), "]".repeat(100)), false);
        check_expansion(&format!("{levels}x{}", "]".repeat(100)), true);
    }

    #[test]
    fn many_documents_share_one_limit() {
        let document = format!("a: &a {}\nb: [{}]\n---\n", "x".repeat(3000), vec!["*a"; 1000].join(","));
        check_expansion(&document, true);
        check_expansion(&document.repeat(3), false);
    }

    #[test]
    fn duplicates_at_long_paths_are_bounded() {
        // Keys of YAML have at most 1,024 characters.
        let key = "k".repeat(1000);
        let text = format!("{key}: {{{key}: {{{}}}}}", vec!["a: 1"; 5000].join(","));
        let (documents, error) = parse_documents(&text);
        assert_eq!(error, None);
        let bytes: usize = documents[0].duplicates.iter().map(|it| it.path.len()).sum();
        assert!((10_000..100_000).contains(&bytes), "{bytes}");
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
