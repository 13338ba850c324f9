//! Manifests from files, directories and standard input: YAML and JSON, several documents in a file, lists unpacked.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use api::features::Features;
use api::json::{Document, Lines, Position, Spans, SyntaxError, Value};

use controlplane::placement::Merger;
use registry::annotations;

use crate::input_file;

/// Source of manifests: a file, or standard input.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// `-`
    StandardInput,
    /// A file.
    File(PathBuf),
}

/// The text of a source, and what was read from it.
#[derive(Debug)]
pub(crate) struct Manifests {
    /// The file's name, as it was given.
    pub(crate) name: String,
    text: String,
    lines: Lines,
    /// The objects, in order.
    pub(crate) objects: Vec<Manifest>,
    /// Error that ended the reading early.
    pub(crate) error: Option<SyntaxError>,
}

/// One object.
#[derive(Debug)]
pub(crate) struct Manifest {
    /// The object.
    pub(crate) value: Value,
    spans: Spans,
    /// Keys that stand twice: paths and offsets.
    pub(crate) duplicates: Vec<(String, usize)>,
}

const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// The files that arguments name: `-`, files, and all manifests in and below directories, sorted.
pub(crate) fn sources(arguments: &[String]) -> anyhow::Result<Vec<Source>> {
    let mut sources = Vec::new();
    for argument in arguments {
        if argument == "-" {
            sources.push(Source::StandardInput);
            continue;
        }
        let path = PathBuf::from(argument);
        let metadata = fs::metadata(&path).with_context(|| format!("cannot read `{argument}`"))?;
        if metadata.is_dir() {
            let mut found = Vec::new();
            walk(&path, &mut found).with_context(|| format!("cannot read `{argument}`"))?;
            found.sort();
            sources.extend(found.into_iter().map(Source::File));
        } else {
            sources.push(Source::File(path));
        }
    }
    Ok(sources)
}

fn walk(directory: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        // A link to a directory could lead in circles.
        if entry.file_type()?.is_dir() {
            walk(&path, found)?;
        } else if path.extension().and_then(|it| it.to_str()).is_some_and(|it| EXTENSIONS.contains(&it)) {
            found.push(path);
        }
    }
    Ok(())
}

/// The objects of a file, if all could be read.
pub(crate) fn readable(file: Manifests) -> anyhow::Result<Vec<Manifest>> {
    match &file.error {
        Some(error) => bail!("{}:{}: {}", file.name, file.position(error.offset).line, error.message),
        None => Ok(file.objects),
    }
}

/// The objects of a file, with the annotations that carry the proposals' fields merged into the fields.
pub(crate) fn merged(file: Manifests) -> anyhow::Result<Vec<Manifest>> {
    let mut manifests = readable(file)?;
    let is_concerned = |it: &Manifest| it.is_built_in() && annotations::has_any(it.kind(), &it.value);
    if manifests.iter().any(is_concerned) {
        let merger = Merger::new(Features::all_proposals())?;
        for manifest in manifests.iter_mut().filter(|it| it.is_built_in()) {
            let kind = manifest.kind().to_owned();
            merger.merge(&kind, &mut manifest.value);
        }
    }
    Ok(manifests)
}

/// A frequent cause of truth values where texts are expected.
pub(crate) const BOOLEANS: &str =
    "in YAML, y, n, yes, no, on and off are booleans unless they stand in quotes, also as names";

/// Returns the frequent cause of an error about a value of the wrong type, or where the possible values are listed.
pub(crate) fn hint(message: &str) -> Option<&'static str> {
    let is_boolean = message.contains("cannot unmarshal bool into Go") && message.contains("of type string")
        || message.contains("invalid type: boolean") && message.contains("expected a string");
    if message.contains("unrecognized feature gate: ") {
        return Some("`celplane gates` lists the feature gates");
    }
    is_boolean.then_some(BOOLEANS)
}

fn is_like(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(after) = text.strip_prefix(start) else { return false };
    let ends = after.char_indices().map(|(index, _)| index).chain([after.len()]);
    ends.into_iter().filter_map(|index| after.get(index..)).any(|tail| is_like(rest, tail))
}

impl Source {
    /// Whether a file contains this text; false if it cannot be read, or only once.
    pub(crate) fn mentions(&self, text: &str) -> bool {
        let Source::File(path) = self else { return false };
        input_file::read_text(path).is_ok_and(|file| file.contains(text))
    }

    /// Whether the path of a file fits a pattern in which `*` stands for any characters.
    pub(crate) fn is_like(&self, pattern: &str) -> bool {
        let Source::File(path) = self else { return false };
        let path = path.display().to_string();
        let path = path.strip_prefix("./").unwrap_or(&path);
        is_like(pattern, path) || is_like(&format!("*/{pattern}"), path)
    }

    /// Reads and parses.
    pub(crate) fn read(&self) -> anyhow::Result<Manifests> {
        let (name, bytes) = match self {
            Source::StandardInput => {
                let bytes = input_file::read_standard_input().context("cannot read standard input")?;
                ("<stdin>".to_owned(), bytes)
            }
            Source::File(path) => {
                let name = path.display().to_string();
                let bytes = input_file::read(path).with_context(|| format!("cannot read `{name}`"))?;
                (name, bytes)
            }
        };
        let text = String::from_utf8(bytes).with_context(|| format!("`{name}` is not UTF-8"))?;
        Ok(Manifests::parse(name, text))
    }
}

impl Manifests {
    /// Parses a text.
    pub(crate) fn parse(name: String, text: String) -> Self {
        let (documents, error) = api::yaml::parse_manifests(&text);
        let objects = documents.into_iter().flat_map(unpack).collect();
        Manifests { name, lines: Lines::of(text.as_bytes()), text, objects, error }
    }

    /// Line and column of a byte.
    pub(crate) fn position(&self, offset: usize) -> Position {
        self.lines.position(self.text.as_bytes(), offset)
    }

    /// Line and column of a field, or of the innermost part around it that is there.
    pub(crate) fn position_of(&self, manifest: &Manifest, field: &str) -> Position {
        // Kubernetes names columns of definitions whose versions have one schema without the version.
        let column = field.strip_prefix("spec.additionalPrinterColumns");
        let column = column.map(|rest| format!("spec.versions[0].additionalPrinterColumns{rest}"));
        let field = column.as_deref().unwrap_or(field);
        self.position(manifest.spans.locate(&manifest.value, field).offset)
    }
}

/// Splits a list into its objects.
fn unpack(document: Document) -> Vec<Manifest> {
    let Document { value, duplicates, spans } = document;
    let is_list = value.str_at(&["kind"]).is_some_and(|kind| kind.ends_with("List"));
    let index = value.as_object().and_then(|fields| fields.iter().position(|(key, _)| key == "items"));
    let (Some(index), true) = (index, is_list) else {
        let duplicates = duplicates.into_iter().map(|it| (it.path, it.offset)).collect();
        return vec![Manifest { value, spans, duplicates }];
    };
    let items = value.get("items").and_then(Value::as_array).unwrap_or_default();
    let spans = spans.children.get(index).map(|spans| spans.children.clone()).unwrap_or_default();
    let manifests = items.iter().zip(spans);
    manifests.map(|(value, spans)| Manifest { value: value.clone(), spans, duplicates: Vec::new() }).collect()
}

impl Manifest {
    /// `apiVersion`.
    pub(crate) fn api_version(&self) -> &str {
        self.value.text("apiVersion")
    }

    /// `kind`.
    pub(crate) fn kind(&self) -> &str {
        self.value.text("kind")
    }

    /// Whether the kind is one of Kubernetes' own.
    pub(crate) fn is_built_in(&self) -> bool {
        registry::resources::find_by_api_version(self.api_version(), self.kind()).is_some()
    }

    /// `Kind namespace/name`, as reports name the object.
    pub(crate) fn title(&self) -> String {
        let name = self.value.str_at(&["metadata", "name"]);
        let generated = self.value.str_at(&["metadata", "generateName"]);
        let name = name.or(generated).unwrap_or_default();
        let kind = if self.kind().is_empty() { "object" } else { self.kind() };
        match self.value.str_at(&["metadata", "namespace"]) {
            _ if name.is_empty() => kind.to_owned(),
            Some(namespace) => format!("{kind} {namespace}/{name}"),
            None => format!("{kind} {name}"),
        }
    }

    /// Start of the object.
    pub(crate) fn start(&self) -> usize {
        self.spans.value_offset
    }
}
