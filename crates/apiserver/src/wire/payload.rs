//! From the body of a request to an object in the normal form of its type.
//!
//! JSON, YAML and protobuf are supported; a missing content type means JSON. Unknown and duplicate fields are
//! dropped, reported as warnings or rejected, according to `fieldValidation`.

use api::json::{self, Value};
use api::types::protobuf::{self, Envelope, ProtobufError};
use api::types::{self, Type};
use api::yaml;
use http::HeaderMap;
use http::header::CONTENT_TYPE;

use crate::resources::{self, Resource, api_version};
use crate::wire::heavy;
use crate::wire::request::Query;
use crate::wire::status::{Failure, Result};

/// Treatment of unknown and duplicate fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    /// Dropped.
    Ignore,
    /// Dropped, with a warning.
    Warn,
    /// The request is refused.
    Strict,
}

impl FieldValidation {
    /// Reads it from the query.
    ///
    /// # Errors
    /// 422 for an unknown word.
    pub fn from_query(query: &Query, options_kind: &str) -> Result<Self> {
        match query.get("fieldValidation") {
            "" | "Warn" => Ok(Self::Warn),
            "Ignore" => Ok(Self::Ignore),
            "Strict" => Ok(Self::Strict),
            other => {
                let mut errors = api::field::Errors::new();
                let at = api::field::Path::new("fieldValidation");
                errors.not_supported(at, other, &["", "Ignore", "Strict", "Warn"]);
                Err(Failure::invalid("meta.k8s.io", options_kind, "", &errors))
            }
        }
    }
}

/// The media types that bodies may have.
const READABLE: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// A body that was read, before its type is known.
#[derive(Debug)]
pub struct Payload {
    /// The document.
    pub value: Value,
    /// Complaints of strict reading, in Kubernetes' words.
    pub duplicates: Vec<String>,
    /// Positions of all fields, if there are errors that must be sorted with others.
    pub places: Option<Box<Places>>,
}

/// The places of a document's parts, and of the keys that it holds twice.
#[derive(Debug)]
pub struct Places {
    document: json::Document,
}

impl Places {
    /// Complaints in the order of the text: those about repeated keys, and those about unknown fields by their paths.
    fn in_order(&self, repeated: Vec<String>, unknown: Vec<String>) -> Vec<String> {
        let offsets = self.document.duplicates.iter().map(|it| it.offset);
        let mut all: Vec<(usize, String)> = offsets.zip(repeated).collect();
        all.extend(unknown.into_iter().map(|path| {
            let place = self.document.spans.locate(&self.document.value, &path);
            (place.offset, unknown_field(&path))
        }));
        all.sort_by_key(|(offset, _)| *offset);
        all.into_iter().map(|(_, complaint)| complaint).collect()
    }
}

fn unknown_field(path: &str) -> String {
    format!("unknown field \"{path}\"")
}

impl Payload {
    /// A document about which there are no complaints.
    #[must_use]
    pub fn of(value: Value) -> Self {
        Self { value, duplicates: Vec::new(), places: None }
    }
}

/// Reads a body.
///
/// # Errors
/// 415 for a form that is not read, 400 for one that is broken.
pub fn read(headers: &HeaderMap, body: &[u8], kind: &str) -> Result<Payload> {
    read_as(media_type(headers), body, kind)
}

/// The media type of a body.
pub(crate) fn media_type(headers: &HeaderMap) -> &str {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    content_type.split(';').next().unwrap_or_default().trim()
}

/// As [`read`], for a form.
pub(crate) fn read_as(media: &str, body: &[u8], kind: &str) -> Result<Payload> {
    let payload = match media {
        "" | "application/json" => read_json(body, kind),
        "application/yaml" => read_yaml(body, kind),
        "application/vnd.kubernetes.protobuf" => read_protobuf(body, kind),
        _ => Err(Failure::unsupported_media_type(&READABLE)),
    }?;
    check_elements(&payload.value, body)?;
    Ok(payload)
}

/// Rejects a document whose lists hold more objects than memory is meant for.
///
/// # Errors
/// 413.
pub(crate) fn check_elements(value: &Value, body: &[u8]) -> Result<()> {
    if json::has_too_many_elements(value, body.len()) { Err(too_many_elements()) } else { Ok(()) }
}

fn too_many_elements() -> Box<Failure> {
    Failure::new(413, "RequestEntityTooLarge", format!("Request entity too large: {}", json::TOO_MANY_ELEMENTS))
}

/// Bytes that are not an object of any kind.
pub(crate) fn unrecognized(kind: &str, why: &str, body: &[u8]) -> Box<Failure> {
    /// Length of the body's part that is shown.
    const SHOWN_MAX: usize = 30;
    // Kubernetes reads the options of a deletion without naming the expected kind.
    if kind == "DeleteOptions" {
        return Failure::bad_request(why.to_owned());
    }
    let start = body.get(..SHOWN_MAX).unwrap_or(body);
    let more = if start.len() < body.len() { " ..." } else { "" };
    let shown = match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(start).into_owned(),
        Some(_) => start.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    Failure::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why} ({shown}{more})"))
}

fn not_json(kind: &str, why: &str, body: &[u8]) -> Box<Failure> {
    unrecognized(kind, &format!("couldn't get version/kind; json parse error: {why}"), body)
}

fn read_protobuf(body: &[u8], kind: &str) -> Result<Payload> {
    let envelope = Envelope::read(body).map_err(|error| unrecognized(kind, &error.to_string(), body))?;
    let named = types::by_api_version(&envelope.api_version, &envelope.kind);
    // Options are of every group; an envelope that names nothing holds what is expected.
    let shared = || types::by_kind("meta.k8s.io", "v1", &envelope.kind);
    let expected = || {
        let unnamed = envelope.kind.is_empty() && envelope.api_version.is_empty();
        types::kinds().iter().find(|(_, _, it, _)| unnamed && *it == kind).map(|(_, _, _, it)| *it)
    };
    let Some(of) = named.or_else(shared).or_else(expected) else {
        let group = envelope.api_version.split_once('/').map_or("", |(group, _)| group);
        if resources::groups().iter().any(|(it, _)| *it == group) {
            return Err(unregistered(&envelope.api_version, &envelope.kind));
        }
        // Custom resources have no numbers.
        return Err(Failure::unsupported_media_type(&READABLE));
    };
    let mut value = protobuf::read(of, envelope.raw).map_err(|error| match error {
        ProtobufError::Unsupported(_) => Failure::unsupported_media_type(&READABLE),
        ProtobufError::TooManyElements => too_many_elements(),
        error => {
            let version = envelope.api_version.rsplit('/').next().unwrap_or_default();
            let given = &envelope.kind;
            Failure::bad_request(format!("{given} in version \"{version}\" cannot be handled as a {kind}: {error}"))
        }
    })?;
    if let Some(fields) = value.as_object_mut() {
        for (name, text) in [("kind", envelope.kind), ("apiVersion", envelope.api_version)] {
            if !text.is_empty() {
                fields.insert(name, text);
            }
        }
    }
    Ok(Payload::of(value))
}

fn read_json(body: &[u8], kind: &str) -> Result<Payload> {
    let (mut value, duplicates) = json::parse_strict(body).map_err(|error| not_json(kind, &error.message, body))?;
    if value.is_null() {
        // Kubernetes: nothing is set.
        value = Value::object();
    }
    if !matches!(value, Value::Object(_)) {
        let target = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
        let why = format!("json: cannot unmarshal {} into Go value of type {target}", value.kind());
        return Err(not_json(kind, &why, body));
    }
    let places = if duplicates.is_empty() { None } else { json::parse_document(body).ok() };
    let duplicates = duplicates.into_iter().map(|it| format!("duplicate field \"{}\"", it.path)).collect();
    Ok(Payload { value, duplicates, places: places.map(|document| Box::new(Places { document })) })
}

fn read_yaml(body: &[u8], kind: &str) -> Result<Payload> {
    let text = std::str::from_utf8(body).map_err(|error| not_json(kind, &error.to_string(), body))?;
    let (documents, error) = yaml::parse_documents_while(text, &heavy::is_wanted);
    if let Some(error) = error {
        return Err(unrecognized(kind, &error.message, body));
    }
    let document = documents.into_iter().next();
    let Some(document) = document else {
        return Err(not_json(kind, "unexpected end of JSON input", body));
    };
    let repeated: Vec<String> = document
        .duplicates
        .iter()
        .map(|it| {
            let key = it.path.rsplit('.').next().unwrap_or_default();
            let line = json::Position::of(body, it.offset).line;
            format!("\n  line {line}: key {} already set in map", api::go_text::quote(key))
        })
        .collect();
    // All of them are one complaint.
    let complaint = (!repeated.is_empty()).then(|| format!("yaml: unmarshal errors:{}", repeated.concat()));
    Ok(Payload { value: document.value, duplicates: complaint.into_iter().collect(), places: None })
}

/// An object of a resource, read from a body.
#[derive(Debug)]
pub struct DecodedBody {
    /// The object in normal form, with kind and version.
    pub object: Value,
    /// Errors of strict decoding.
    pub complaints: Vec<String>,
    /// Positions of empty lists and maps in the input, which the normal form omits and messages show.
    pub given_empty: types::EmptyPositions,
}

/// Brings a document into the normal form of a resource's type.
///
/// # Errors
/// 400 if it is an object of another kind, or a field does not fit.
pub fn decode(resource: &Resource<'_>, version: &str, payload: Payload) -> Result<DecodedBody> {
    decode_kind(resource.group, version, resource.kind, resource.object_type(version), payload)
}

/// Brings a document into the normal form of a type.
///
/// # Errors
/// As [`decode`].
pub fn decode_kind(
    group: &str,
    version: &str,
    kind: &str,
    object_type: Option<&'static Type>,
    payload: Payload,
) -> Result<DecodedBody> {
    let Payload { mut value, mut duplicates, places } = payload;
    let expected = api_version(group, version);
    if let Some(fields) = value.as_object_mut() {
        let given_kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let given_version = fields.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !given_kind.is_empty() && given_kind != kind || !given_version.is_empty() && given_version != expected {
            return Err(mismatch(&given_version, &given_kind, group, &expected, kind));
        }
        fields.insert("kind", kind);
        fields.insert("apiVersion", expected.as_str());
        keep_reset(fields);
    }
    let Some(object_type) = object_type else {
        return Ok(DecodedBody {
            object: value,
            complaints: duplicates,
            given_empty: types::EmptyPositions::default(),
        });
    };
    let notes = types::decode_in_place(object_type, &mut value).map_err(|error| {
        Failure::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {error}"))
    })?;
    let complaints = match places {
        Some(places) => places.in_order(duplicates, notes.unknown_fields),
        None => {
            duplicates.extend(notes.unknown_fields.iter().map(|path| unknown_field(path)));
            duplicates
        }
    };
    Ok(DecodedBody { object: value, complaints, given_empty: notes.given_empty })
}

/// An empty list of managed fields requests their removal; the normal form would omit it.
fn keep_reset(fields: &mut json::Object) {
    let entries = fields.get_mut("metadata").and_then(|metadata| metadata.get_mut("managedFields"));
    if let Some(entries) = entries.and_then(Value::as_array_mut)
        && entries.is_empty()
    {
        entries.push(Value::object());
    }
}

fn unregistered(version: &str, kind: &str) -> Box<Failure> {
    Failure::bad_request(format!(
        "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/api/legacyscheme/scheme.go:30\""
    ))
}

fn mismatch(version: &str, kind: &str, group: &str, expected: &str, expected_kind: &str) -> Box<Failure> {
    let (given_version, given_kind) =
        (if version.is_empty() { expected } else { version }, if kind.is_empty() { expected_kind } else { kind });
    let short = given_version.rsplit('/').next().unwrap_or_default();
    if types::by_api_version(given_version, given_kind).is_none() && given_kind != "List" {
        let why = unregistered(given_version, given_kind).message;
        return Failure::bad_request(format!(
            "{given_kind} in version \"{short}\" cannot be handled as a {expected_kind}: {why}"
        ));
    }
    if given_kind == expected_kind && version != expected {
        return Failure::bad_request(format!(
            "the API version in the data ({given_version}) does not match the expected API version ({expected})"
        ));
    }
    let internal = match group {
        "" => "core",
        group => group.split('.').next().unwrap_or(group),
    };
    Failure::bad_request(format!(
        "{given_kind} in version \"{short}\" cannot be handled as a {expected_kind}: converting ({short}.{given_kind}) to ({internal}.{expected_kind}): unknown conversion"
    ))
}

/// Deals with the complaints of strict reading: gives back those to warn about.
///
/// # Errors
/// 400 in strict validation.
pub fn check_fields(
    validation: FieldValidation,
    kind: &str,
    version: &str,
    complaints: Vec<String>,
) -> Result<Vec<String>> {
    if complaints.is_empty() || validation == FieldValidation::Ignore {
        return Ok(Vec::new());
    }
    if validation == FieldValidation::Warn {
        return Ok(complaints);
    }
    Err(Failure::bad_request(format!(
        "{kind} in version \"{version}\" cannot be handled as a {kind}: strict decoding error: {}",
        complaints.join(", ")
    )))
}
