//! Answers before they are HTTP: what to send, with which code and warnings.

use api::json::{self, Value};
use api::yaml;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use crate::wire::body::Body;
use crate::wire::negotiation::PROTOBUF;
use crate::wire::protobuf;
use crate::wire::status::Failure;
use crate::wire::transcoding::Form;

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The HTTP code.
    pub(crate) code: u16,
    /// The content type.
    pub(crate) content_type: &'static str,
    /// The body.
    pub(crate) body: Body,
    /// Texts for `Warning` headers.
    pub(crate) warnings: Vec<String>,
    /// Further headers.
    pub(crate) headers: Vec<(HeaderName, String)>,
    /// Headers of another server's answer that is passed on.
    pub(crate) passed_on: Option<Box<HeaderMap>>,
}

/// The end of every JSON document that is sent.
pub(crate) const NEWLINE: Bytes = Bytes::from_static(b"\n");

impl Answer {
    /// A JSON document.
    #[must_use]
    pub(crate) fn json(code: u16, value: &Value) -> Self {
        let mut text = json::to_string(value);
        text.push('\n');
        Self::bytes(code, "application/json", text)
    }

    /// A JSON document that is encoded already.
    #[must_use]
    pub(crate) fn encoded(code: u16, document: Bytes) -> Self {
        Self { body: Body::Pieces([document, NEWLINE].into()), ..Self::bytes(code, "application/json", "") }
    }

    /// Any body.
    pub(crate) fn bytes(code: u16, content_type: &'static str, body: impl Into<Body>) -> Self {
        Self { code, content_type, body: body.into(), warnings: Vec::new(), headers: Vec::new(), passed_on: None }
    }

    /// Plain text.
    pub(crate) fn text(code: u16, text: impl Into<Bytes>) -> Self {
        Self::bytes(code, "text/plain; charset=utf-8", text.into())
            .with_header(HeaderName::from_static("x-content-type-options"), "nosniff")
    }

    /// With another header.
    #[must_use]
    pub(crate) fn with_header(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// With more warnings.
    #[must_use]
    pub(crate) fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    /// The same in protobuf, if it is an object of a type that has such a form.
    #[must_use]
    pub(crate) fn into_protobuf(mut self) -> Self {
        if matches!(self.body, Body::Listing(_)) {
            // Long lists are made in protobuf from the start, where they have that form.
            return self;
        }
        let document = if self.content_type == "application/json" { self.body.whole() } else { None };
        match document.and_then(|text| protobuf::from_json(&text)) {
            Some(body) => Self { content_type: PROTOBUF, body, ..self },
            None => self,
        }
    }

    /// The same with line breaks, if it is a JSON document.
    #[must_use]
    pub(crate) fn into_pretty(mut self) -> Self {
        let is_json = self.content_type == "application/json";
        if let Some(body) = is_json.then(|| self.body.transcoded(Form::Pretty)).flatten() {
            return Self { body, ..self };
        }
        let document = if is_json { self.body.whole() } else { None };
        let Some(document) = document.and_then(|bytes| json::parse(&bytes).ok()) else { return self };
        Self { body: json::to_pretty_string(&document, "  ").into(), ..self }
    }

    /// Converts a JSON response to YAML with sorted keys; other responses stay as they are.
    #[must_use]
    pub(crate) fn into_yaml(mut self) -> Self {
        let is_json = self.content_type == "application/json";
        if let Some(body) = is_json.then(|| self.body.transcoded(Form::Yaml)).flatten() {
            return Self { content_type: "application/yaml", body, ..self };
        }
        let document = if is_json { self.body.whole() } else { None };
        let Some(mut document) = document.and_then(|bytes| json::parse(&bytes).ok()) else { return self };
        document.sort_keys();
        Self { content_type: "application/yaml", body: yaml::to_string(&document).into(), ..self }
    }

    /// As HTTP has it.
    #[must_use]
    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        if !self.content_type.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        }
        headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        for (name, value) in self.passed_on.iter().flat_map(|passed_on| passed_on.iter()) {
            headers.append(name, value.clone());
        }
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                match name {
                    // It already exists.
                    http::header::CACHE_CONTROL => drop(headers.insert(name, value)),
                    name => drop(headers.append(name, value)),
                }
            }
        }
        for warning in self.warnings {
            let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " ");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
                headers.append(http::header::WARNING, value);
            }
        }
        response
    }
}

impl From<Box<Failure>> for Answer {
    fn from(failure: Box<Failure>) -> Self {
        let mut answer = Answer::json(failure.code, &failure.to_value());
        if let Some(seconds) = failure.retry_after_seconds() {
            answer = answer.with_header(http::header::RETRY_AFTER, seconds.to_string());
        }
        if failure.code == 403 && failure.message.contains(" cannot ") {
            answer = answer.with_header(HeaderName::from_static("x-content-type-options"), "nosniff");
        }
        answer
    }
}
