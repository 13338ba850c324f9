//! Connections: TLS with client certificates, HTTP/1.1 and HTTP/2, and an end that lets requests finish.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
pub use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use super::connections::{Connections, Tracked, is_essential};
use super::linger::{Linger, Wanted};
use super::unread::Returned;
use super::write_timeout::WriteTimeout;
use super::{AnyError, Server};
use crate::audit::Peer;
use crate::http::body::Body;
use crate::identity::{User, subject};
use crate::serving::certificates::{Bundle, CertificateError};

/// Requests that are being handled at the end get so long to finish.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// More than there ever are.
const PERMITS: u32 = 1 << 24;
/// A client of HTTP/2 that says nothing is asked so often whether it is there,
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(30);
/// and has this long to answer.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// So much of an answer waits in memory for each request of an HTTP/2 connection.
const SEND_BUFFER: usize = 64 << 10;
/// A request has at most this many lines in its head.
const HEADERS_MAX: usize = 1000;
/// Who does not speak TLS is told so within this time.
const PLAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Watches of one client over one HTTP/2 connection.
const STREAMS_MAX: u32 = 1000;

/// Why connections cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The certificates cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// TLS cannot be set up.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
    /// The client certificates' authority cannot be used.
    #[error("cannot verify client certificates")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// The TLS configuration for a bundle of certificates.
///
/// # Errors
/// [`ListenError`].
pub fn tls(bundle: &Bundle) -> Result<TlsAcceptor, ListenError> {
    tls_from_pem(&bundle.server.certificate, &bundle.server.key, bundle.authority.certificate())
}

/// The TLS configuration for a server certificate with its chain, its key, and the authorities of client certificates.
///
/// # Errors
/// [`ListenError`].
pub fn tls_from_pem(chain: &str, key: &str, client_authorities: &str) -> Result<TlsAcceptor, ListenError> {
    let provider = Arc::new(ring::default_provider());
    let unreadable = |what: &str| CertificateError::Unreadable(what.to_owned());
    let certificates = |pem: &str, what: &str| {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        all.ok().filter(|all| !all.is_empty()).ok_or_else(|| unreadable(what))
    };
    let mut roots = RootCertStore::empty();
    for authority in certificates(client_authorities, "client authority")? {
        roots.add(authority)?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| unreadable("server key"))?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates(chain, "server certificate")?, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves connections until `stop` becomes true, then lets requests finish.
pub fn serve(
    server: Arc<Server>,
    listener: TcpListener,
    tls: TlsAcceptor,
    stop: watch::Receiver<bool>,
) -> BoxFuture<'static, ()> {
    let (sender, tls) = watch::channel(tls);
    Box::pin(async move {
        accept(server, listener, tls, stop).await;
        drop(sender);
    })
}

/// As [`serve`]; every new connection uses the newest certificates, while old ones live on.
pub fn serve_rotating(
    server: Arc<Server>,
    listener: TcpListener,
    tls: watch::Receiver<TlsAcceptor>,
    stop: watch::Receiver<bool>,
) -> BoxFuture<'static, ()> {
    Box::pin(accept(server, listener, tls, stop))
}

async fn accept(
    server: Arc<Server>,
    listener: TcpListener,
    tls: watch::Receiver<TlsAcceptor>,
    mut stop: watch::Receiver<bool>,
) {
    let connections = Connections::new(server.options.connections_max);
    let permits = Arc::new(tokio::sync::Semaphore::new(usize::try_from(PERMITS).unwrap_or(usize::MAX)));
    let (closing, _) = watch::channel(false);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Most often there are no more file descriptors: wait until there are.
                warn!(err = %error, "Could not accept a connection");
                connections.give_way(Instant::now());
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Some(tracked) = connections.admit(peer.ip(), Instant::now()) else { continue };
        let Ok(permit) = permits.clone().try_acquire_owned() else { continue };
        let (server, tls, closing) = (server.clone(), tls.borrow().clone(), closing.subscribe());
        tokio::spawn(async move {
            let address = Peer(peer.ip());
            if let Err(error) = connection(server, stream, address, tls, closing, tracked).await {
                debug!(err = %error, "Connection ended");
            }
            drop(permit);
        });
    }
    drop(listener);
    server.end_watches();
    closing.send_replace(true);
    // An error means that some did not finish in time.
    let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, permits.acquire_many(PERMITS)).await;
}

async fn connection(
    server: Arc<Server>,
    stream: TcpStream,
    peer: Peer,
    tls: TlsAcceptor,
    mut closing: watch::Receiver<bool>,
    tracked: Arc<Tracked>,
) -> Result<(), AnyError> {
    stream.set_nodelay(true)?;
    let (head_timeout, write_timeout) = (server.options.head_timeout, server.options.write_timeout);
    let idle_timeout = server.options.idle_timeout;
    let first_request = tokio::time::sleep(server.options.first_request_timeout);
    tokio::pin!(first_request);
    let mut first = [0];
    let accepted = async {
        tokio::time::timeout(head_timeout, stream.peek(&mut first)).await??;
        if first.iter().all(u8::is_ascii_uppercase) {
            // The first letter of a method: this is HTTP without TLS.
            refuse_plain(stream).await?;
            return Ok(None);
        }
        let stream = tokio::time::timeout(head_timeout, tls.accept(stream)).await??;
        Ok::<_, AnyError>(Some(stream))
    };
    let stream = tokio::select! {
        accepted = accepted => match accepted? {
            Some(stream) => stream,
            None => return Ok(()),
        },
        () = first_request.as_mut() => return Err("no handshake in time".into()),
        () = tracked.closed() => return Err("gave way to another connection".into()),
    };
    let certificates = stream.get_ref().1.peer_certificates();
    // Whom a certificate names must be clear before anything is answered.
    let user = certificates.and_then(|chain| chain.first()).map(|certificate| subject(certificate)).transpose()?;
    let user = user.flatten();
    if tracked.is_reserved && !user.as_ref().is_some_and(is_essential) {
        return Err("only the reserve is left".into());
    }
    if let Some(user) = &user
        && !tracked.identify(user, Instant::now())
    {
        return Err("too many connections of this user".into());
    }
    let (stream, lingers) = Linger::new(WriteTimeout::new(stream, write_timeout));
    let user = user.map(Arc::new);
    let service = Connection { server, user, peer: Some(peer), tracked: Some(tracked.clone()), lingers };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(idle_timeout).max_buf_size(64 << 10);
    builder.http1().max_headers(HEADERS_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(64 << 10)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(KEEP_ALIVE_EVERY)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let (mut is_closing, mut is_awaited) = (false, true);
    loop {
        tokio::select! {
            result = connection.as_mut() => return result,
            _ = closing.wait_for(|closing| *closing), if !is_closing => {
                is_closing = true;
                connection.as_mut().graceful_shutdown();
            }
            () = first_request.as_mut(), if is_awaited => {
                is_awaited = false;
                if !tracked.is_heard() {
                    return Err("no request in time".into());
                }
            }
            () = tracked.closed() => return Err("gave way to another connection".into()),
        }
    }
}

/// Tells a client that TLS is spoken here.
async fn refuse_plain(mut stream: TcpStream) -> Result<(), AnyError> {
    let text = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    tokio::time::timeout(PLAIN_TIMEOUT, stream.write_all(text.as_bytes())).await??;
    stream.shutdown().await?;
    // What was sent is taken, so that the answer is not lost with it.
    let mut rest = [0; 1024];
    let read = async { while stream.read(&mut rest).await.is_ok_and(|length| length > 0) {} };
    let _ = tokio::time::timeout(PLAIN_TIMEOUT, read).await;
    Ok(())
}

/// One connection's view of the server.
#[derive(Clone)]
pub struct Connection {
    server: Arc<Server>,
    user: Option<Arc<User>>,
    /// None where there is no network.
    peer: Option<Peer>,
    /// None without a network.
    tracked: Option<Arc<Tracked>>,
    /// Whether the end of the connection is to be heard by who is still sending.
    lingers: Wanted,
}

impl Connection {
    /// The server without a network: requests come from `user`.
    #[must_use]
    pub fn new(server: Arc<Server>, user: Option<User>) -> Self {
        Self { server, user: user.map(Arc::new), peer: None, tracked: None, lingers: Wanted::default() }
    }
}

impl hyper::service::Service<Request<Incoming>> for Connection {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let Self { server, user, peer, tracked, lingers } = self.clone();
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        let underway = tracked.as_ref().map(Tracked::request);
        if let Some(tracked) = tracked.filter(|it| !it.is_identified()) {
            request.extensions_mut().insert(tracked);
        }
        let closes = request.version() <= http::Version::HTTP_11;
        let (parts, body) = request.into_parts();
        let (body, rest) = Returned::new(body);
        let request = Request::from_parts(parts, body);
        let bytes_max = u64::try_from(server.options.body_bytes_max).unwrap_or(u64::MAX);
        Box::pin(async move {
            let mut response = server.handle(request, user.as_deref()).await;
            if let Some(underway) = underway.filter(|_| response.body().len().is_none()) {
                underway.stays();
            }
            if !closes {
                rest.read_meanwhile(bytes_max);
            } else if !rest.read(bytes_max).await {
                // What was not read stands before the next request: there will be none.
                lingers.set();
                response.headers_mut().insert(http::header::CONNECTION, http::HeaderValue::from_static("close"));
            }
            Ok(response)
        })
    }
}

impl<B> tower_service::Service<Request<B>> for Connection
where
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<AnyError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Self { server, user, .. } = self.clone();
        Box::pin(async move { Ok(server.handle(request, user.as_deref()).await) })
    }
}
