//! Content negotiation: the form of the response.
//!
//! Clauses of `Accept` are tried by quality, then in order; the first that is supported wins. Objects are kept as JSON, and
//! custom resources have no other form: a client that prefers protobuf gets those as JSON if it takes that as well. Their
//! metadata alone has one, as that of all objects; tables have none.

use http::HeaderMap;
use http::header::ACCEPT;

use crate::wire::request::Query;
use crate::wire::status::{Failure, Result};

/// Form of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As it is.
    Object,
    /// As a table for people.
    Table,
    /// Metadata only.
    Metadata,
    /// A list of objects' metadata only.
    MetadataList,
    /// Discovery of all groups in one document.
    GroupDiscovery,
}

/// Negotiated encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedEncoding {
    /// Form of the objects.
    pub form: Form,
    /// The version of the shown form, for the group `meta.k8s.io`.
    pub version: &'static str,
    /// YAML instead of JSON.
    pub yaml: bool,
    /// Protobuf instead of JSON.
    pub protobuf: bool,
    /// With line breaks.
    pub pretty: bool,
}

const NONE: &str = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf";
const NO_FORM: &str = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The media type of objects in protobuf.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The media type of watch events in protobuf.
pub const PROTOBUF_EVENTS: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// Whether a response other than the requested object, such as a rejection, is sent in protobuf: if that is the
/// first supported type, apart from clauses for another form of the object.
#[must_use]
pub fn prefers_protobuf(headers: &HeaderMap) -> bool {
    let accept = accept(headers);
    let media = |clause: &str| clause.split(';').next().unwrap_or_default().trim().to_owned();
    let is_known = |media: &str| matches!(media, "application/json" | "application/yaml" | "*/*" | PROTOBUF);
    let is_plain = |clause: &str| !["as=", "g=", "v="].iter().any(|it| clause.contains(it));
    let first = by_quality(&accept).into_iter().find(|clause| is_known(&media(clause)) && is_plain(clause));
    first.is_some_and(|clause| media(clause) == PROTOBUF)
}

/// Whether an answer with this code is sent in protobuf, if there is such a form of it.
pub(crate) fn wants_protobuf(headers: &HeaderMap, code: u16) -> bool {
    let mut accept = headers.get_all(ACCEPT).iter();
    if !accept.any(|value| memchr::memmem::find(value.as_bytes(), b"protobuf").is_some()) {
        return false;
    }
    if code < 400 { negotiate(headers).is_ok_and(|accepted| accepted.protobuf) } else { prefers_protobuf(headers) }
}

/// Reads the `Accept` header of a request.
///
/// # Errors
/// 406 if no requested form is supported.
pub fn negotiate(headers: &HeaderMap) -> Result<AcceptedEncoding> {
    choose(headers, |_, _| true)
}

/// As [`negotiate`], for objects that have no form in protobuf but that of their metadata.
///
/// # Errors
/// 406 if no other form is requested.
pub(crate) fn negotiate_without_protobuf(headers: &HeaderMap) -> Result<AcceptedEncoding> {
    choose(headers, |form, protobuf| !(protobuf && form == Form::Object))
}

/// Like [`negotiate`], for responses that have no table form.
///
/// # Errors
/// 406 if no other form is requested.
pub(crate) fn negotiate_without_tables(headers: &HeaderMap) -> Result<AcceptedEncoding> {
    choose(headers, |form, _| form != Form::Table)
}

/// Whether a client takes JSON and nothing else, as most do: there is nothing to choose then.
pub(crate) fn is_plain(headers: &HeaderMap) -> bool {
    let mut all = headers.get_all(ACCEPT).iter();
    all.next().is_some_and(|value| value.as_bytes() == b"application/json") && all.next().is_none()
}

/// The first clause that is offered: a form, and whether it is in protobuf.
fn choose(headers: &HeaderMap, offers: fn(Form, bool) -> bool) -> Result<AcceptedEncoding> {
    let plain = AcceptedEncoding { form: Form::Object, version: "v1", yaml: false, protobuf: false, pretty: false };
    if is_plain(headers) {
        return Ok(plain);
    }
    let accept = accept(headers);
    if accept.trim().is_empty() {
        return Ok(plain);
    }
    let mut known_type = false;
    for clause in by_quality(&accept) {
        let mut parts = clause.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let mut accepted = plain.clone();
        match media {
            "application/json" | "*/*" => {}
            "application/yaml" => accepted.yaml = true,
            PROTOBUF => accepted.protobuf = true,
            _ => continue,
        }
        known_type = true;
        let (mut form, mut group, mut version) = ("", "", "");
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            match key {
                "as" => form = value,
                "g" => group = value,
                "v" => version = value,
                "pretty" => accepted.pretty = value == "1",
                _ => {}
            }
        }
        accepted.form = match (form, group, version) {
            ("", "", "") => Form::Object,
            ("Table", "meta.k8s.io", "v1" | "v1beta1") => Form::Table,
            ("PartialObjectMetadata", "meta.k8s.io", "v1" | "v1beta1") => Form::Metadata,
            ("PartialObjectMetadataList", "meta.k8s.io", "v1" | "v1beta1") => Form::MetadataList,
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Form::GroupDiscovery,
            _ => continue,
        };
        let has_protobuf = matches!(accepted.form, Form::Object | Form::Metadata | Form::MetadataList);
        if accepted.protobuf && !has_protobuf || !offers(accepted.form, accepted.protobuf) {
            continue;
        }
        if !form.is_empty() {
            accepted.version = ["v1", "v1beta1", "v2"].into_iter().find(|it| *it == version).unwrap_or("v1");
        }
        return Ok(accepted);
    }
    if known_type {
        return Err(not_acceptable());
    }
    Err(none())
}

/// The answer to a client that takes no form that exists.
pub(crate) fn none() -> Box<Failure> {
    Failure::new(406, "NotAcceptable", NONE).with_no_details()
}

/// Adapts a rejection for a watch, which also accepts streams.
pub(crate) fn of_watch(mut failure: Box<Failure>) -> Box<Failure> {
    if failure.message == NONE {
        failure.message.push_str(", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch");
    }
    failure
}

/// Whether the response is pretty-printed: if the query requests it, or for clients that people read.
pub(crate) fn wants_pretty(headers: &HeaderMap, query: &Query) -> bool {
    if query.has("pretty") {
        return query.flag("pretty");
    }
    let mut accept = headers.get_all(ACCEPT).iter().map(|value| value.as_bytes());
    if accept.any(|value| memchr::memmem::find(value, b"pretty=1").is_some())
        && negotiate(headers).is_ok_and(|accepted| accepted.pretty)
    {
        return true;
    }
    let agent = headers.get(http::header::USER_AGENT).map(|value| value.as_bytes()).unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|it| agent.starts_with(it.as_bytes()))
}

/// Whether the client prefers YAML to all other supported media types.
pub(crate) fn wants_yaml(headers: &HeaderMap) -> bool {
    headers.contains_key(ACCEPT) && negotiate(headers).is_ok_and(|accepted| accepted.yaml)
}

/// 406: the client accepts only media types that this response is not available in.
#[must_use]
pub(crate) fn not_acceptable() -> Box<Failure> {
    Failure::new(406, "NotAcceptable", NO_FORM)
}

/// The whole `Accept` header of a client.
pub(crate) fn accept(headers: &HeaderMap) -> String {
    headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(",")
}

/// The clauses of an `Accept` header, best first.
pub(crate) fn by_quality(accept: &str) -> Vec<&str> {
    let mut clauses: Vec<&str> = accept.split(',').map(str::trim).collect();
    clauses.sort_by(|left, right| quality(right).total_cmp(&quality(left)));
    clauses
}

fn quality(clause: &str) -> f32 {
    let value = clause.split(';').find_map(|part| part.trim().strip_prefix("q="));
    value.and_then(|value| value.parse().ok()).unwrap_or(1.0)
}

impl Failure {
    /// Adds empty details, as in some responses of Kubernetes.
    #[must_use]
    pub(crate) fn with_no_details(mut self: Box<Self>) -> Box<Self> {
        self.details.get_or_insert_default();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(accept: &str, expected: std::result::Result<Form, u16>) {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        assert_eq!(negotiate(&headers).map(|it| it.form).map_err(|it| it.code), expected, "{accept}");
    }

    #[test]
    fn protobuf_is_preferred_where_it_comes_first() {
        for (accept, expected) in [
            ("application/vnd.kubernetes.protobuf,application/json", true),
            ("application/json, application/vnd.kubernetes.protobuf", false),
            ("application/cbor,application/vnd.kubernetes.protobuf", true),
            ("application/json;q=0.5,application/vnd.kubernetes.protobuf;q=0.9", true),
            ("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json", false),
            ("application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json", false),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/vnd.kubernetes.protobuf", true),
            ("*/*", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
            assert_eq!(prefers_protobuf(&headers), expected, "{accept}");
        }
    }

    #[test]
    fn metadata_has_a_form_in_protobuf_and_tables_have_none() {
        let protobuf = "application/vnd.kubernetes.protobuf";
        for (accept, plain, custom) in [
            (format!("{protobuf},application/json"), Ok(true), Ok(false)),
            (protobuf.to_owned(), Ok(true), Err(406)),
            (format!("{protobuf};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"), Ok(true), Ok(true)),
            (format!("{protobuf};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"), Ok(true), Ok(true)),
            (format!("{protobuf};as=Table;g=meta.k8s.io;v=v1,application/json"), Ok(false), Ok(false)),
            (format!("application/json;as=Table;g=meta.k8s.io;v=v1,{protobuf}"), Ok(false), Ok(false)),
            (format!("{protobuf};as=Table;g=meta.k8s.io;v=v1,{protobuf}"), Ok(true), Err(406)),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
            let show = |it: Result<AcceptedEncoding>| it.map(|it| it.protobuf).map_err(|it| it.code);
            assert_eq!(show(negotiate(&headers)), plain, "{accept}");
            assert_eq!(show(negotiate_without_protobuf(&headers)), custom, "{accept}");
        }
    }

    #[test]
    fn the_first_supported_clause_wins() {
        check("", Ok(Form::Object));
        check("*/*", Ok(Form::Object));
        check("application/*", Err(406));
        check("text/plain", Err(406));
        check("application/vnd.kubernetes.protobuf,application/json", Ok(Form::Object));
        check("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Ok(Form::Table));
        check("application/cbor,application/json", Ok(Form::Object));
        check("application/vnd.kubernetes.protobuf", Ok(Form::Object));
        check("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", Err(406));
        check("application/json;as=Foo;v=v1;g=meta.k8s.io", Err(406));
        check("application/json;as=Foo;v=v1;g=meta.k8s.io,application/json", Ok(Form::Object));
        check("application/json;v=v1;g=meta.k8s.io", Err(406));
        check("text/plain;q=0.9,application/json;q=0.5", Ok(Form::Object));
        check("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", Ok(Form::GroupDiscovery));
        check("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList", Err(406));
    }
}
