//! Transport of requests: over the network, or by a call within the process.

mod connections;
mod exec;
pub(crate) mod insecure;
mod network;

use std::pin::Pin;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use telemetry::metrics::Registry;
use tower_service::Service;

pub(crate) use self::network::Network;

pub(crate) type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// The body of an answer, which comes in pieces.
pub(crate) type Body = UnsyncBoxBody<Bytes, AnyError>;

/// A response in progress.
pub(crate) type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, AnyError>> + Send>>;

/// A connection that answers requests.
pub(crate) trait Transport: Send + Sync {
    fn send(&self, request: Request<Full<Bytes>>) -> Answer;

    /// Shows the metrics of its connections; a transport without connections has none.
    fn publish(&self, _: &Registry) {}

    /// Uses another client certificate, given with its key as PEM, for all further requests.
    fn replace_certificate(
        &self,
        _: Vec<u8>,
        _: Vec<u8>,
    ) -> Pin<Box<dyn Future<Output = Result<(), AnyError>> + Send>> {
        Box::pin(async { Err("this connection has no client certificate".into()) })
    }
}

/// A service in this process, called without a socket or a task: a client costs no more than its service.
pub(crate) struct InProcess<S>(pub(crate) S);

impl<S, B> Transport for InProcess<S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<AnyError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<AnyError>,
{
    fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        let mut service = self.0.clone();
        Box::pin(async move {
            std::future::poll_fn(|context| service.poll_ready(context)).await.map_err(Into::into)?;
            let response = service.call(request).await.map_err(Into::into)?;
            Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
        })
    }
}
