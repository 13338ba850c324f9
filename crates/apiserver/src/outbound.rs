//! Outgoing HTTPS requests: calls of webhooks, and requests that are passed on to aggregated API servers.
//!
//! [`Outbound`] is what callers of webhooks see; [`Https`] is the one that dials; `forward` passes requests on. Connections are
//! kept and used again. Proxy variables of the environment are not read. Answers are bounded in bytes, and the caller bounds the time. Texts of errors are Go's,
//! because they reach users.

pub mod addresses;
pub(crate) mod backends;
pub(crate) mod forward;
pub(crate) mod reviews;
pub(crate) mod verifier;

use locks::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

use api::time::Timestamp;
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::header::{HOST, HeaderMap, HeaderValue};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;

/// At most this many idle connections to one server are kept.
const IDLE_MAX: usize = 8;
/// At most this many servers have idle connections.
const SERVERS_MAX: usize = 256;
/// A longer answer is large.
const LARGE_BYTES: usize = 256 << 10;
/// At most this many large answers are read at a time; others wait, within the time of their calls.
const LARGE_MAX: usize = 8;

/// A request to a server.
#[derive(Debug, Clone)]
pub struct OutboundRequest {
    /// Host and port to connect to.
    pub address: String,
    /// Host and port for the `Host` header.
    pub host: String,
    /// The name that the certificate must have.
    pub server_name: String,
    /// Certificates of the authorities to trust, in PEM; with none nothing is trusted.
    pub authorities: Bytes,
    /// Path and query.
    pub path: String,
    /// Headers in addition to those that every request has.
    pub headers: HeaderMap,
    /// The body of the POST request.
    pub body: Bytes,
    /// A longer answer is an error.
    pub answer_bytes_max: usize,
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub struct OutboundResponse {
    /// The HTTP code.
    pub code: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// Sends requests to other servers.
pub trait Outbound: Send + Sync {
    /// Sends a POST request. Fails with a text in Go's words.
    fn post(&self, request: OutboundRequest) -> BoxFuture<'_, Result<OutboundResponse, String>>;
}

type Sender = SendRequest<Full<Bytes>>;
/// Address, name in the certificate, and authorities.
type Peer = (String, String, Bytes);

/// Sends requests over TLS, HTTP/1.1.
pub struct Https {
    idle: Mutex<HashMap<Peer, Vec<Sender>>>,
    /// Permits to read large answers, which bound their memory.
    large: Semaphore,
}

impl Default for Https {
    fn default() -> Self {
        Self { idle: Mutex::default(), large: Semaphore::new(LARGE_MAX) }
    }
}

impl Outbound for Https {
    fn post(&self, request: OutboundRequest) -> BoxFuture<'_, Result<OutboundResponse, String>> {
        Box::pin(self.send(request))
    }
}

impl Https {
    fn take(&self, peer: &Peer) -> Option<Sender> {
        let mut idle = self.idle.lock();
        let senders = idle.get_mut(peer)?;
        while let Some(sender) = senders.pop() {
            if !sender.is_closed() && sender.is_ready() {
                return Some(sender);
            }
        }
        idle.remove(peer);
        None
    }

    fn put_back(&self, peer: Peer, sender: Sender) {
        let mut idle = self.idle.lock();
        if idle.len() >= SERVERS_MAX && !idle.contains_key(&peer) {
            idle.clear();
        }
        let senders = idle.entry(peer).or_default();
        if senders.len() < IDLE_MAX {
            senders.push(sender);
        }
    }

    async fn send(&self, request: OutboundRequest) -> Result<OutboundResponse, String> {
        let peer = (request.address.clone(), request.server_name.clone(), request.authorities.clone());
        if let Some(mut sender) = self.take(&peer) {
            // A server may close an idle connection at any time: then the request goes over a new one.
            match exchange(&mut sender, &request, &self.large).await {
                Err(LostConnection::BeforeSending) => {}
                Err(LostConnection::AfterSending) => return Err("EOF".to_owned()),
                Ok(answer) => {
                    let answer = answer?;
                    self.put_back(peer, sender);
                    return Ok(answer);
                }
            }
        }
        let mut sender = connect(&request).await?;
        let answer = exchange(&mut sender, &request, &self.large).await.map_err(|_| "EOF".to_owned())??;
        self.put_back(peer, sender);
        Ok(answer)
    }
}

/// A connection that ended without an answer.
enum LostConnection {
    BeforeSending,
    AfterSending,
}

/// Sends one request; the outer error means that the connection failed before an answer.
async fn exchange(
    sender: &mut Sender,
    request: &OutboundRequest,
    large: &Semaphore,
) -> Result<Result<OutboundResponse, String>, LostConnection> {
    let Ok(mut message) = http::Request::post(&request.path).body(Full::new(request.body.clone())) else {
        return Ok(Err(format!("invalid path {}", api::go_text::quote(&request.path))));
    };
    *message.headers_mut() = request.headers.clone();
    let Ok(host) = HeaderValue::from_str(&request.host) else {
        return Ok(Err(format!("invalid host {}", api::go_text::quote(&request.host))));
    };
    message.headers_mut().insert(HOST, host);
    let lost = |error: hyper::Error| {
        if error.is_canceled() { LostConnection::BeforeSending } else { LostConnection::AfterSending }
    };
    let answer = sender.send_request(message).await.map_err(lost)?;
    let (parts, body) = answer.into_parts();
    let body = match read_body(body, request.answer_bytes_max, large).await {
        Ok(body) => body,
        Err(why) => return Ok(Err(why)),
    };
    // The connection is ready again once the whole answer is read.
    let _ = sender.ready().await;
    Ok(Ok(OutboundResponse { code: parts.status.as_u16(), headers: parts.headers, body }))
}

/// Reads the body of an answer.
async fn read_body(mut body: hyper::body::Incoming, bytes_max: usize, large: &Semaphore) -> Result<Bytes, String> {
    let (mut read, mut permit) = (BytesMut::new(), None);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| "unexpected EOF".to_owned())?;
        let Some(data) = frame.data_ref() else { continue };
        let length = read.len().saturating_add(data.len());
        if length > bytes_max {
            return Err(format!("the response is larger than {bytes_max} bytes"));
        }
        if length > LARGE_BYTES && permit.is_none() {
            permit = large.acquire().await.ok();
        }
        read.extend_from_slice(data);
    }
    Ok(read.freeze())
}

async fn connect(request: &OutboundRequest) -> Result<Sender, String> {
    let address = &request.address;
    let stream = dial(address).await?;
    let _ = stream.set_nodelay(true);
    let config = tls(&request.authorities)?;
    let name = ServerName::try_from(request.server_name.clone())
        .map_err(|_| format!("tls: invalid server name {}", api::go_text::quote(&request.server_name)))?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    let stream = stream.map_err(|error| tls_text(&error, &request.server_name))?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|_| "EOF".to_owned())?;
    tokio::spawn(async move {
        // The sender reports errors.
        let _ = connection.await;
    });
    Ok(sender)
}

/// Connects to the first address of a host that answers. Errors name the address, as Go's do.
async fn dial(address: &str) -> Result<TcpStream, String> {
    let found = tokio::net::lookup_host(address).await.map_err(|error| dial_text(address, &error))?;
    // Go prefers IPv4 where a host has both.
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(std::net::SocketAddr::is_ipv6);
    let mut first = None;
    for found in found {
        match TcpStream::connect(found).await {
            Ok(stream) => return Ok(stream),
            Err(error) => _ = first.get_or_insert_with(|| dial_text(&found.to_string(), &error)),
        }
    }
    Err(first.unwrap_or_else(|| format!("dial tcp: lookup {address}: no such host")))
}

fn dial_text(address: &str, error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    let why = match error.kind() {
        ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        ErrorKind::ConnectionReset => "connect: connection reset by peer".to_owned(),
        _ => {
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            return format!("dial tcp: lookup {host}: no such host");
        }
    };
    format!("dial tcp {address}: {why}")
}

/// Go's words for a certificate at a time outside of its validity.
const INVALID_NOW: &str = "x509: certificate has expired or is not yet valid";

fn shown_time(time: UnixTime) -> Timestamp {
    Timestamp { seconds: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), nanos: 0 }
}

/// Go's words for what is wrong with a certificate.
fn tls_text(error: &std::io::Error, name: &str) -> String {
    let Some(error) = error.get_ref().and_then(|it| it.downcast_ref::<rustls::Error>()) else {
        return "EOF".to_owned();
    };
    let is_address = name.parse::<std::net::IpAddr>().is_ok();
    let why = match error {
        // Another authority of the same name vouches for nothing.
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "x509: certificate signed by unknown authority".to_owned()
        }
        rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { time, not_after }) => {
            format!("{INVALID_NOW}: current time {} is after {}", shown_time(*time), shown_time(*not_after))
        }
        rustls::Error::InvalidCertificate(CertificateError::NotValidYetContext { time, not_before }) => {
            format!("{INVALID_NOW}: current time {} is before {}", shown_time(*time), shown_time(*not_before))
        }
        rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::NotValidYet) => {
            INVALID_NOW.to_owned()
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => {
            if is_address {
                format!("x509: cannot validate certificate for {name} because it doesn't contain any IP SANs")
            } else {
                let presented = match error {
                    rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext {
                        presented, ..
                    }) => names(presented),
                    _ => String::new(),
                };
                format!("x509: certificate is valid for {presented}, not {name}")
            }
        }
        rustls::Error::InvalidMessage(_) => return "tls: first record does not look like a TLS handshake".to_owned(),
        other => return format!("tls: {other}"),
    };
    format!("tls: failed to verify certificate: {why}")
}

/// The names in a certificate, from `DnsName("a")`.
fn names(presented: &[String]) -> String {
    let names = presented.iter().filter_map(|it| it.strip_prefix("DnsName(\"")?.strip_suffix("\")"));
    names.collect::<Vec<_>>().join(", ")
}

/// The configuration that trusts some authorities; with none nothing is trusted.
fn tls(authorities: &Bytes) -> Result<ClientConfig, String> {
    verifier::client_config(&verifier::Trust::Authorities(authorities.clone()), None)
}
