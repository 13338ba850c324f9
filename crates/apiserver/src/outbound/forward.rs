//! Requests that are passed on to another server: bodies are streams in both directions, and connections may change their
//! protocol.
//!
//! HTTP/1.1 over TLS or in plain text. Idle connections are kept and used again. The caller bounds the time until the answer
//! and that of its body; at most a few dozen kilobytes of a body are in memory. Texts of errors are Go's.

use locks::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::verifier::{ClientCertificate, Trust, client_config};
use super::{IDLE_MAX, SERVERS_MAX, dial_text, tls_text};

/// Bytes that are buffered of each connection.
const BUFFER_BYTES: usize = 64 << 10;
/// Lines in the head of an answer.
const HEADERS_MAX: usize = 200;

/// The body of a request.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// No body.
pub(crate) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

type Sender = SendRequest<Body>;

/// The server at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Destination {
    /// Host and port to connect to.
    pub(crate) address: String,
    /// TLS, with the name that the certificate must have; none for plain text.
    pub(crate) tls: Option<(String, Trust)>,
}

/// A response whose body has not been read yet.
pub(crate) struct Exchange {
    /// The answer.
    pub(crate) response: Response<Incoming>,
    connection: Connection,
}

/// The connection of an answer. It ends with this.
pub(crate) struct Connection {
    /// None for a connection that is not used again.
    destination: Option<Destination>,
    sender: Sender,
}

/// A stream of bytes in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Passes requests on.
#[derive(Default)]
pub(crate) struct Forwarder {
    idle: Mutex<HashMap<Destination, Vec<Sender>>>,
}

impl Forwarder {
    fn take(&self, destination: &Destination) -> Option<Sender> {
        let mut idle = self.idle.lock();
        let senders = idle.get_mut(destination)?;
        while let Some(sender) = senders.pop() {
            if !sender.is_closed() && sender.is_ready() {
                return Some(sender);
            }
        }
        idle.remove(destination);
        None
    }

    /// Keeps the connection of an answer whose body was read to its end.
    pub(crate) fn put_back(&self, connection: Connection) {
        let Connection { destination: Some(destination), sender } = connection else { return };
        if sender.is_closed() {
            return;
        }
        let mut idle = self.idle.lock();
        if idle.len() >= SERVERS_MAX && !idle.contains_key(&destination) {
            idle.clear();
        }
        let senders = idle.entry(destination).or_default();
        if senders.len() < IDLE_MAX {
            senders.push(sender);
        }
    }

    /// Sends a request. `certificate` is shown to servers that ask for one. A request that was not sent, because an idle
    /// connection ended, goes over a new one; one without a body that only reads is repeated once.
    ///
    /// # Errors
    /// A text in Go's words.
    pub(crate) async fn send(
        &self,
        destination: &Destination,
        certificate: Option<&ClientCertificate>,
        mut request: Request<Body>,
    ) -> Result<Exchange, String> {
        let repeats =
            matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) && request.body().is_end_stream();
        if let Some(mut sender) = self.take(destination) {
            let again = repeats.then(|| head_of(&request));
            match sender.try_send_request(request).await {
                Ok(response) => return Ok(Exchange::new(response, Some(destination.clone()), sender)),
                Err(mut failed) => match failed.take_message().or(again) {
                    Some(message) => request = message,
                    None => return Err(failure_text(&failed.into_error())),
                },
            }
        }
        let mut sender = connect(destination, certificate).await?;
        let response = sender.send_request(request).await.map_err(|error| failure_text(&error))?;
        Ok(Exchange::new(response, Some(destination.clone()), sender))
    }
}

/// Sends a request over a connection of its own, without a certificate.
///
/// # Errors
/// A text in Go's words.
pub(crate) async fn send_once(destination: &Destination, request: Request<Body>) -> Result<Exchange, String> {
    exchange(connect(destination, None).await?, request).await
}

/// Sends a request over a stream.
///
/// # Errors
/// A text in Go's words.
pub(crate) async fn send_over(stream: Box<dyn Stream>, request: Request<Body>) -> Result<Exchange, String> {
    exchange(begin(stream).await?, request).await
}

async fn exchange(mut sender: Sender, request: Request<Body>) -> Result<Exchange, String> {
    let response = sender.send_request(request).await.map_err(|error| failure_text(&error))?;
    Ok(Exchange::new(response, None, sender))
}

impl Exchange {
    fn new(response: Response<Incoming>, destination: Option<Destination>, sender: Sender) -> Self {
        Self { response, connection: Connection { destination, sender } }
    }

    /// The answer, and the connection for [`Forwarder::put_back`].
    pub(crate) fn into_parts(self) -> (Response<Incoming>, Connection) {
        (self.response, self.connection)
    }
}

/// The same request again, without a body.
fn head_of(request: &Request<Body>) -> Request<Body> {
    let mut again = Request::new(empty());
    *again.method_mut() = request.method().clone();
    *again.uri_mut() = request.uri().clone();
    *again.headers_mut() = request.headers().clone();
    again
}

/// The text that Go's HTTP client returns for a connection that failed during a request.
fn failure_text(error: &hyper::Error) -> String {
    if error.is_parse() {
        return "net/http: HTTP/1.x transport connection broken: malformed HTTP response".to_owned();
    }
    // The client's own body failed: that text is ours.
    if error.is_user()
        && let Some(cause) = std::error::Error::source(error)
    {
        return cause.to_string();
    }
    "EOF".to_owned()
}

async fn connect(destination: &Destination, certificate: Option<&ClientCertificate>) -> Result<Sender, String> {
    let address = &destination.address;
    let stream = TcpStream::connect(address).await.map_err(|error| dial_text(address, &error))?;
    let _ = stream.set_nodelay(true);
    let Some((name, trust)) = &destination.tls else { return begin(stream).await };
    let config = client_config(trust, certificate)?;
    let server_name = ServerName::try_from(name.clone())
        .map_err(|_| format!("tls: invalid server name {}", api::go_text::quote(name)))?;
    let stream = TlsConnector::from(Arc::new(config)).connect(server_name, stream).await;
    begin(stream.map_err(|error| tls_text(&error, name))?).await
}

async fn begin<S>(stream: S) -> Result<Sender, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new();
    builder.max_buf_size(BUFFER_BYTES).max_headers(HEADERS_MAX);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(|_| "EOF".to_owned())?;
    tokio::spawn(async move {
        // The sender reports errors.
        let _ = connection.with_upgrades().await;
    });
    Ok(sender)
}
