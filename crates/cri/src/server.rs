//! A gRPC server for unary calls on a Unix socket, small enough to need no code generator.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixListener;
use tonic::Status;

/// The longest request that is read.
const REQUEST_BYTES_MAX: usize = 16 << 20;

/// Answers calls: takes the path of a method and the encoded request, and returns the encoded response.
pub trait Service: Send + Sync + 'static {
    /// Answers one call.
    fn call(self: Arc<Self>, method: String, request: Bytes) -> BoxFuture<'static, Result<Vec<u8>, Status>>;
}

/// Decodes a request.
///
/// # Errors
/// `InvalidArgument`: the bytes are no such message.
pub fn decode<M: Message + Default>(bytes: Bytes) -> Result<M, Status> {
    M::decode(bytes).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// Serves calls on a new Unix socket at `path` until the returned future is dropped.
///
/// # Errors
/// The socket cannot be created.
pub fn serve<S: Service>(path: &Path, service: Arc<S>) -> std::io::Result<impl Future<Output = ()> + Send + use<S>> {
    let listener = UnixListener::bind(path)?;
    Ok(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let service = service.clone();
            let answer = service_fn(move |request| respond(service.clone(), request));
            let connection = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), answer);
            connections.spawn(connection);
            while connections.try_join_next().is_some() {}
        }
    })
}

type Body = http_body_util::combinators::BoxBody<Bytes, Infallible>;

async fn respond(service: Arc<impl Service>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let method = request.uri().path().to_owned();
    let outcome = match Limited::new(request.into_body(), REQUEST_BYTES_MAX).collect().await {
        // The first five bytes are the frame: a flag for compression, which is not offered, and the length.
        Ok(body) => service.call(method, body.to_bytes().slice_from(5)).await,
        Err(_) => Err(Status::invalid_argument("the request is too long")),
    };
    let mut trailers = HeaderMap::new();
    let frame = match outcome {
        Ok(message) => {
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            let mut frame = BytesMut::with_capacity(message.len().saturating_add(5));
            frame.put_u8(0);
            frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
            frame.put_slice(&message);
            frame.freeze()
        }
        Err(status) => {
            // Adding a status to headers fails only for messages that no header can hold.
            let _ = status.add_header(&mut trailers);
            Bytes::new()
        }
    };
    let body = Full::new(frame).with_trailers(async move { Some(Ok(trailers)) });
    let mut response = Response::new(body.boxed());
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    Ok(response)
}

trait SliceFrom {
    fn slice_from(self, start: usize) -> Bytes;
}

impl SliceFrom for Bytes {
    fn slice_from(self, start: usize) -> Bytes {
        if self.len() <= start { Bytes::new() } else { self.slice(start..) }
    }
}
