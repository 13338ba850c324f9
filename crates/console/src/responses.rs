//! Responses: texts, errors, and streams that end with their session.

use std::pin::Pin;
use std::task::{Context, Poll};

use api::json::{self, Value};
use bytes::Bytes;
use client::Error;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use telemetry::logs::chain;
use tokio::sync::OwnedSemaphorePermit;

pub(crate) type AnyError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Body = UnsyncBoxBody<Bytes, AnyError>;

/// A response with a text.
pub(crate) fn text(code: StatusCode, media_type: &'static str, content: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(content.into()).map_err(|never| match never {}).boxed_unsync();
    with_type(code, media_type, body)
}

/// A response with a JSON document.
pub(crate) fn document(value: &Value) -> Response<Body> {
    text(StatusCode::OK, "application/json", json::to_string(value))
}

/// A response with a body that is still to come.
pub(crate) fn with_type(code: StatusCode, media_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(media_type));
    response
}

/// An error of the console itself.
pub(crate) fn error(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let value = api::json!({"error": {"code": (i64::from(code.as_u16())), "reason": reason, "message": message}});
    text(code, "application/json", json::to_string(&value))
}

/// The API server's error, or that it could not be reached.
pub(crate) fn cluster_error(failure: &Error) -> Response<Body> {
    match failure {
        Error::Refused(status) => {
            let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::BAD_GATEWAY);
            // 401 is the page's sign that its session has ended; the cluster's own is another matter.
            let code = if code == StatusCode::UNAUTHORIZED { StatusCode::BAD_GATEWAY } else { code };
            let reason = if status.code == 401 { "ClusterUnauthorized" } else { status.reason.as_str() };
            error(code, reason, &status.to_string())
        }
        other => error(StatusCode::BAD_GATEWAY, "ClusterUnreachable", &chain(other).to_string()),
    }
}

/// A body that ends when its session does, and holds a place among the session's requests until then.
pub(crate) struct SessionBody {
    body: Body,
    over: Pin<Box<dyn Future<Output = ()> + Send>>,
    _place: OwnedSemaphorePermit,
}

impl SessionBody {
    /// Bounds `body` by the future `over`.
    pub(crate) fn new(
        body: Body,
        over: impl Future<Output = ()> + Send + 'static,
        place: OwnedSemaphorePermit,
    ) -> Self {
        Self { body, over: Box::pin(over), _place: place }
    }
}

impl http_body::Body for SessionBody {
    type Data = Bytes;
    type Error = AnyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnyError>>> {
        if self.over.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
