//! Reads that are sent to the API server.

use client::Client;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;

use crate::paths::ReadRequest;
use crate::responses::{self, Body};
use crate::secrets;

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// Maximum size of a response with Secrets, which is read completely before it is forwarded.
const SECRETS_BYTES_MAX: usize = 16 << 20;

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    /// Rows with the server's columns.
    Table,
    /// Groups with all their resources.
    Discovery,
}

impl Form {
    /// The form that a page accepts.
    pub(crate) fn of(accept: &str) -> Self {
        if accept.contains("as=Table") {
            Self::Table
        } else if accept.contains("as=APIGroupDiscoveryList") {
            Self::Discovery
        } else {
            Self::Json
        }
    }

    fn accept(self) -> &'static str {
        match self {
            Self::Json => JSON,
            Self::Table => TABLE,
            Self::Discovery => DISCOVERY,
        }
    }
}

/// Sends a read and returns the answer: piece by piece, or without the values of Secrets.
pub(crate) async fn send(client: &Client, read: &ReadRequest, form: Form) -> Response<Body> {
    let is_log = read.target.split('?').next().is_some_and(|path| path.ends_with("/log"));
    let body = match client.read_stream(&read.target, if is_log { "*/*" } else { form.accept() }).await {
        Ok(body) => body,
        Err(error) => return responses::cluster_error(&error),
    };
    if !read.is_secret {
        let media_type = if is_log { "text/plain; charset=utf-8" } else { JSON };
        return responses::with_type(StatusCode::OK, media_type, body);
    }
    let unreadable =
        || responses::error(StatusCode::BAD_GATEWAY, "Unreadable", "the answer about Secrets could not be read");
    let Some(whole) = read_whole(body, SECRETS_BYTES_MAX).await else { return unreadable() };
    match api::json::parse(&whole) {
        Ok(mut document) => {
            secrets::redact(&mut document);
            responses::document(&document)
        }
        Err(_) => unreadable(),
    }
}

/// The whole body; none if it breaks off or is larger than `max`.
async fn read_whole(mut body: Body, max: usize) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.ok()?.into_data() {
            if whole.len().saturating_add(data.len()) > max {
                return None;
            }
            whole.extend_from_slice(&data);
        }
    }
    Some(whole)
}
