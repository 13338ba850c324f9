//! Manifests from files, directories and standard input: YAML and JSON, several documents in a file, lists unpacked.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use api::json::{Document, Lines, Position, Spans, SyntaxError, Value};

/// Where manifests come from: a file, or standard input.
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
    /// What ended the reading early.
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

/// What often lies behind a message about a value of the wrong type.
pub(crate) fn hint(message: &str) -> Option<&'static str> {
    let is_boolean = message.contains("cannot unmarshal bool into Go") && message.contains("of type string")
        || message.contains("invalid type: boolean") && message.contains("expected a string");
    is_boolean.then_some("in YAML, y, n, yes, no, on and off are booleans unless they stand in quotes, also as names")
}

impl Source {
    /// Whether a file holds this text; false for what cannot be read, or only once.
    pub(crate) fn mentions(&self, text: &str) -> bool {
        let Source::File(path) = self else { return false };
        fs::read_to_string(path).is_ok_and(|file| file.contains(text))
    }

    /// Reads and parses.
    pub(crate) fn read(&self) -> anyhow::Result<Manifests> {
        let (name, bytes) = match self {
            Source::StandardInput => {
                let mut bytes = Vec::new();
                std::io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
                ("<stdin>".to_owned(), bytes)
            }
            Source::File(path) => {
                let name = path.display().to_string();
                let bytes = fs::read(path).with_context(|| format!("cannot read `{name}`"))?;
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

/// Objects of a list are objects of their own.
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
        self.value.str_at(&["apiVersion"]).unwrap_or_default()
    }

    /// `kind`.
    pub(crate) fn kind(&self) -> &str {
        self.value.str_at(&["kind"]).unwrap_or_default()
    }

    /// `Kind namespace/name`, as reports name the object.
    pub(crate) fn title(&self) -> String {
        let name = self.value.str_at(&["metadata", "name"]);
        let generated = self.value.str_at(&["metadata", "generateName"]);
        let name = name.or(generated).unwrap_or_default();
        match self.value.str_at(&["metadata", "namespace"]) {
            Some(namespace) => format!("{} {namespace}/{name}", self.kind()),
            None => format!("{} {name}", self.kind()),
        }
    }

    /// Where the object starts.
    pub(crate) fn start(&self) -> usize {
        self.spans.value_offset
    }
}
