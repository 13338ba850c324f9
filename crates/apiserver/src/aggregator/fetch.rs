//! Requests of the aggregator itself: short, bounded, and under identities of its own.

use api::well_known::GROUP_MASTERS;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, Request};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use super::Aggregator;
use super::endpoint::Endpoint;
use super::headers;
use crate::identity::User;
use crate::outbound::forward::{Exchange, empty};

/// Time for one request.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

/// The identity of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity {
    /// Availability, and discovery in one document: may read everything.
    Administrator,
    /// Discovery of one version.
    Aggregator,
    /// OpenAPI.
    OpenApi,
}

impl Identity {
    fn user(self) -> User {
        let (name, groups) = match self {
            Self::Administrator => ("system:kube-aggregator", vec![GROUP_MASTERS.to_owned()]),
            Self::Aggregator => ("system:kube-aggregator", Vec::new()),
            Self::OpenApi => ("system:aggregator", Vec::new()),
        };
        User { name: name.to_owned(), groups, ..User::default() }
    }
}

/// An answer.
pub(super) struct FetchResponse {
    pub(super) code: u16,
    pub(super) content_type: String,
    pub(super) body: Bytes,
}

impl Aggregator {
    /// Asks a server whether it is there, and returns the HTTP code of its answer. The body is not read.
    ///
    /// # Errors
    /// A text in Go's words.
    pub(super) async fn probe(&self, endpoint: &Endpoint, path: &str) -> Result<u16, String> {
        let work = self.begin(endpoint, path, Identity::Administrator, None);
        let exchange = tokio::time::timeout(TIMEOUT, work).await.unwrap_or_else(|_| Err(late()))?;
        Ok(exchange.response.status().as_u16())
    }

    /// Reads a document of a server: at most `bytes_max` of it, within [`TIMEOUT`].
    ///
    /// # Errors
    /// A text in Go's words.
    pub(super) async fn fetch(
        &self,
        endpoint: &Endpoint,
        path: &str,
        (identity, accept): (Identity, &'static str),
        bytes_max: usize,
    ) -> Result<FetchResponse, String> {
        let work = async {
            let exchange = self.begin(endpoint, path, identity, Some(accept)).await?;
            let (response, connection) = exchange.into_parts();
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, bytes_max).collect().await.map_err(|error| {
                match error.is::<LengthLimitError>() {
                    true => format!("the response is larger than {bytes_max} bytes"),
                    false => "unexpected EOF".to_owned(),
                }
            })?;
            self.forwarder.put_back(connection);
            let content_type = text(&parts.headers, &CONTENT_TYPE).to_owned();
            Ok(FetchResponse { code: parts.status.as_u16(), content_type, body: body.to_bytes() })
        };
        tokio::time::timeout(TIMEOUT, work).await.unwrap_or_else(|_| Err(late()))
    }

    async fn begin(
        &self,
        endpoint: &Endpoint,
        path: &str,
        identity: Identity,
        accept: Option<&'static str>,
    ) -> Result<Exchange, String> {
        let mut request = Request::new(empty());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = path.parse().map_err(|_| format!("invalid path {}", api::go_text::quote(path)))?;
        let mut head = HeaderMap::new();
        if let Some(accept) = accept {
            head.insert(ACCEPT, HeaderValue::from_static(accept));
            headers::set_forwarded(&mut head, &endpoint.host, path)?;
        } else {
            head.insert(USER_AGENT, HeaderValue::from_static("Go-http-client/1.1"));
        }
        head.insert(HOST, headers::value(&HOST, endpoint.host.as_bytes())?);
        headers::set_user(&mut head, &identity.user())?;
        *request.headers_mut() = head;
        self.forwarder.send(&endpoint.destination, self.certificate(), request).await
    }
}

fn late() -> String {
    "context deadline exceeded (Client.Timeout exceeded while awaiting headers)".to_owned()
}

/// A header as text, empty if it is missing or none.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
