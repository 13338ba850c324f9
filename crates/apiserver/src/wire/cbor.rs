//! CBOR at the edge, behind the gate `CBORServingAndStorage`.
//!
//! A CBOR body is converted to JSON before anything else reads it, and a JSON response to CBOR when it is sent:
//! all code in between handles one form. With the gate off, as in Kubernetes, nothing here runs: such bodies
//! are rejected with 415, which makes client-go fall back to JSON, and `Accept: application/cbor` is ignored
//! like any unknown type.

use api::{cbor, json};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, request};

use crate::wire::answer::Answer;
use crate::wire::body::Body;
use crate::wire::negotiation;
use crate::wire::payload;
use crate::wire::status::Result;
use crate::wire::transcoding::Form;

const ONE: &str = "application/cbor";
const SEQUENCE: &str = "application/cbor-seq";

/// Marks a request whose body is in CBOR, regardless of its present headers.
#[derive(Debug, Clone, Copy)]
struct CborBody;

/// Replaces CBOR by JSON in the headers of a request; returns whether the response is wanted in CBOR.
pub(crate) fn enter(parts: &mut request::Parts) -> bool {
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let json = match media(content_type) {
        ONE => Some("application/json"),
        "application/apply-patch+cbor" => Some("application/apply-patch+yaml"),
        _ => None,
    };
    if let Some(json) = json {
        parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(json));
        parts.extensions.insert(CborBody);
    }
    let wanted = is_wanted(&parts.headers);
    if wanted {
        let accept = negotiation::accept(&parts.headers).replace(SEQUENCE, "application/json");
        if let Ok(accept) = HeaderValue::from_str(&accept.replace(ONE, "application/json")) {
            parts.headers.insert(ACCEPT, accept);
        }
    }
    wanted
}

/// The body as JSON.
pub(crate) fn read(parts: &request::Parts, body: Bytes, kind: &str) -> Result<Bytes> {
    if body.is_empty() || parts.extensions.get::<CborBody>().is_none() {
        return Ok(body);
    }
    let value = cbor::parse(&body).map_err(|error| payload::unrecognized(kind, &error.to_string(), &body))?;
    Ok(json::to_string(&value).into())
}

/// Converts a JSON response to CBOR; other responses stay as they are.
pub(crate) fn leave(mut answer: Answer) -> Answer {
    if answer.content_type != "application/json" {
        return answer;
    }
    if let Body::Stream(receiver) = answer.body {
        return Answer { content_type: SEQUENCE, body: Body::Written(receiver, events), ..answer };
    }
    if let Some(body) = answer.body.transcoded(Form::Cbor) {
        return Answer { content_type: ONE, body, ..answer };
    }
    match answer.body.whole().and_then(|document| json::parse(&document).ok()) {
        Some(value) => Answer { content_type: ONE, body: cbor::to_bytes(&value).into(), ..answer },
        None => answer,
    }
}

/// Whole lines, each an event.
fn events(lines: &Bytes) -> Bytes {
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.filter_map(|line| json::parse(line).ok()).flat_map(|event| cbor::to_bytes(&event)).collect()
}

/// Whether CBOR is the first of the forms that can be sent.
fn is_wanted(headers: &HeaderMap) -> bool {
    let accept = negotiation::accept(headers);
    let clauses = negotiation::by_quality(&accept);
    let first = clauses.into_iter().map(media).find(|it| {
        matches!(*it, ONE | SEQUENCE | "application/json" | "application/yaml" | "*/*" | negotiation::PROTOBUF)
    });
    matches!(first, Some(ONE | SEQUENCE))
}

fn media(clause: &str) -> &str {
    clause.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_form_that_can_be_sent_wins() {
        let check = |accept: &str, expected: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            assert_eq!(is_wanted(&headers), expected, "{accept}");
        };
        check("application/cbor", true);
        check("application/cbor-seq", true);
        check("application/cbor,application/json;q=0.9", true);
        check("application/cbor;q=0.9,application/json", false);
        check("application/cbor;as=Table;v=v1;g=meta.k8s.io,application/json", true);
        check("text/plain,application/cbor", true);
        check("application/json,application/cbor;q=0.9", false);
        check("*/*", false);
        check("", false);
    }
}
