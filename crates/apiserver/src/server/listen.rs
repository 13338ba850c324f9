//! Connections: TLS with client certificates, HTTP/1.1 and HTTP/2, and an end that lets requests finish.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::clock::Clock;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::time_provider::TimeProvider;
use telemetry::logs::chain;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
pub use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use super::Options;
use super::connections::{Carrier, Connections, TrackedConnection, is_essential};
use super::linger::{Linger, LingerFlag};
use super::unread::ReturnedBody;
use super::write_timeout::WriteTimeout;
use super::{AnyError, Server};
use crate::audit::Peer;
use crate::certificates::{Bundle, CertificateError};
use crate::identity::{User, subject};
use crate::wire::body::Body;

/// Time limit for running requests at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// More than there ever are.
const PERMITS: u32 = 1 << 24;
/// Interval of HTTP/2 pings to a silent client.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(30);
/// Time limit for the answer to a ping.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of a response that are buffered for each request of an HTTP/2 connection.
const SEND_BUFFER: usize = 64 << 10;
/// A request has at most this many lines in its head.
const HEADERS_MAX: usize = 1000;
/// Time limit for the response to a client without TLS.
const PLAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Connections to the pages of a component: health, metrics and profiles have few readers.
const PAGE_CONNECTIONS_MAX: usize = 1000;

/// A reason why connections cannot be served.
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
    tls_by_clock(chain, key, client_authorities, &Clock::system())
}

/// As [`tls_from_pem`]; client certificates expire by this clock.
///
/// # Errors
/// [`ListenError`].
pub fn tls_by_clock(
    chain: &str,
    key: &str,
    client_authorities: &str,
    clock: &Clock,
) -> Result<TlsAcceptor, ListenError> {
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
    let mut config = rustls::ServerConfig::builder_with_details(provider, Arc::new(ClusterTime(clock.clone())))
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates(chain, "server certificate")?, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The time by which client certificates are verified.
#[derive(Debug)]
struct ClusterTime(Clock);

impl TimeProvider for ClusterTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.now().seconds).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
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
        accept(Handler::Server(server), listener, Some(tls), stop).await;
        drop(sender);
    })
}

/// Answers a request of a user; none where there is no TLS, or no certificate. The client's address is in the extensions of the request.
pub type Page =
    Arc<dyn Fn(Request<Incoming>, Option<Arc<User>>) -> BoxFuture<'static, Response<PageBody>> + Send + Sync>;

/// The body of a page.
#[derive(Debug)]
pub enum PageBody {
    /// All of it.
    Whole(Bytes),
    /// Piece by piece, until the sender is dropped.
    Stream(mpsc::Receiver<Bytes>),
}

impl<T: Into<Bytes>> From<T> for PageBody {
    fn from(bytes: T) -> Self {
        Self::Whole(bytes.into())
    }
}

impl From<PageBody> for Body {
    fn from(body: PageBody) -> Self {
        match body {
            PageBody::Whole(bytes) => Self::Full(bytes),
            PageBody::Stream(receiver) => Self::Stream(receiver),
        }
    }
}

/// Serves the pages of another component as long as the future is polled, under the limits and timeouts of a server. In
/// plain text without TLS.
pub fn serve_pages(page: Page, listener: TcpListener, tls: Option<TlsAcceptor>) -> BoxFuture<'static, ()> {
    let (senders, tls) = tls.map(watch::channel).unzip();
    let (stop, stopped) = watch::channel(false);
    Box::pin(async move {
        accept(Handler::Page(page), listener, tls, stopped).await;
        drop((senders, stop));
    })
}

/// As [`serve_pages`], over TLS with a certificate that is renewed.
pub fn serve_renewed_pages(
    page: Page,
    listener: TcpListener,
    tls: watch::Receiver<TlsAcceptor>,
) -> BoxFuture<'static, ()> {
    let (stop, stopped) = watch::channel(false);
    Box::pin(async move {
        accept(Handler::Page(page), listener, Some(tls), stopped).await;
        drop(stop);
    })
}

/// The handler of the requests of a listener.
#[derive(Clone)]
enum Handler {
    Server(Arc<Server>),
    Page(Page),
}

/// Limits of a listener.
#[derive(Clone, Copy)]
struct Limits {
    connections_max: usize,
    first_request_timeout: Duration,
    head_timeout: Duration,
    idle_timeout: Duration,
    write_timeout: Duration,
    streams_max: u32,
}

impl Limits {
    fn of(options: &Options) -> Self {
        Self {
            connections_max: options.connections_max,
            first_request_timeout: options.first_request_timeout,
            head_timeout: options.head_timeout,
            idle_timeout: options.idle_timeout,
            write_timeout: options.write_timeout,
            streams_max: options.streams_max,
        }
    }
}

impl Handler {
    fn limits(&self) -> Limits {
        match self {
            Self::Server(server) => Limits::of(&server.options),
            Self::Page(_) => Limits { connections_max: PAGE_CONNECTIONS_MAX, ..Limits::of(&Options::default()) },
        }
    }

    fn service(
        &self,
        user: Option<Arc<User>>,
        peer: Peer,
        tracked: Arc<TrackedConnection>,
        lingers: LingerFlag,
    ) -> Service {
        match self.clone() {
            Self::Server(server) => {
                Service::Server(Connection { server, user, peer: Some(peer), tracked: Some(tracked), lingers })
            }
            Self::Page(page) => Service::Page(page, user, peer, tracked),
        }
    }
}

/// As [`serve`]; every new connection uses the newest certificates, while old ones live on.
pub fn serve_rotating(
    server: Arc<Server>,
    listener: TcpListener,
    tls: watch::Receiver<TlsAcceptor>,
    stop: watch::Receiver<bool>,
) -> BoxFuture<'static, ()> {
    Box::pin(accept(Handler::Server(server), listener, Some(tls), stop))
}

async fn accept(
    handler: Handler,
    listener: TcpListener,
    tls: Option<watch::Receiver<TlsAcceptor>>,
    mut stop: watch::Receiver<bool>,
) {
    let connections = Connections::new(handler.limits().connections_max);
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
                warn!(err = %chain(&error), "Could not accept a connection");
                connections.give_way(Instant::now());
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Some(tracked) = connections.admit(peer.ip(), Instant::now()) else { continue };
        let Ok(permit) = permits.clone().try_acquire_owned() else { continue };
        let (handler, closing) = (handler.clone(), closing.subscribe());
        let tls = tls.as_ref().map(|tls| tls.borrow().clone());
        tokio::spawn(async move {
            let accepted = AcceptedConnection { handler, peer: Peer(peer.ip()), closing, tracked };
            if let Err(error) = accepted.serve(stream, tls).await {
                debug!(err = %chain(&*error), "Connection ended");
            }
            drop(permit);
        });
    }
    drop(listener);
    if let Handler::Server(server) = &handler {
        server.end_watches();
    }
    closing.send_replace(true);
    // An error means that some did not finish in time.
    let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, permits.acquire_many(PERMITS)).await;
}

/// A connection that was let in.
struct AcceptedConnection {
    handler: Handler,
    peer: Peer,
    closing: watch::Receiver<bool>,
    tracked: Arc<TrackedConnection>,
}

impl AcceptedConnection {
    async fn serve(self, stream: TcpStream, tls: Option<TlsAcceptor>) -> Result<(), AnyError> {
        stream.set_nodelay(true)?;
        let limits = self.handler.limits();
        let first_request = tokio::time::sleep(limits.first_request_timeout);
        tokio::pin!(first_request);
        let Some(tls) = tls else { return self.converse(stream, None, first_request).await };
        let mut first = [0];
        let accepted = async {
            tokio::time::timeout(limits.head_timeout, stream.peek(&mut first)).await??;
            if first.iter().all(u8::is_ascii_uppercase) {
                // The first letter of a method: this is HTTP without TLS.
                refuse_plain(stream).await?;
                return Ok(None);
            }
            let stream = tokio::time::timeout(limits.head_timeout, tls.accept(stream)).await??;
            Ok::<_, AnyError>(Some(stream))
        };
        let stream = tokio::select! {
            accepted = accepted => match accepted? {
                Some(stream) => stream,
                None => return Ok(()),
            },
            () = first_request.as_mut() => return Err("the TLS handshake timed out".into()),
            () = self.tracked.closed() => return Err("closed in favor of another connection".into()),
        };
        let certificates = stream.get_ref().1.peer_certificates();
        // The subject of a certificate must be valid before any response.
        let user = certificates.and_then(|chain| chain.first()).map(|certificate| subject(certificate)).transpose()?;
        let user = user.flatten();
        if self.tracked.is_reserved && !user.as_ref().is_some_and(is_essential) {
            return Err("only reserved connections are left".into());
        }
        if let Some(user) = &user
            && !self.tracked.identify(user, Instant::now())
        {
            return Err("this user has too many connections".into());
        }
        self.converse(stream, user.map(Arc::new), first_request).await
    }

    async fn converse<S>(
        self,
        stream: S,
        user: Option<Arc<User>>,
        mut first_request: Pin<&mut tokio::time::Sleep>,
    ) -> Result<(), AnyError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { handler, peer, mut closing, tracked } = self;
        let limits = handler.limits();
        // After an upgrade, only the stream is left: it keeps the place of the connection.
        let (stream, lingers) = Linger::new(WriteTimeout::new(stream, limits.write_timeout), Some(tracked.clone()));
        let builder = builder(limits.idle_timeout, limits.streams_max);
        let service = handler.service(user, peer, tracked.clone(), lingers);
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let (mut is_closing, mut is_awaited, mut is_stalled) = (false, true, false);
        let drained = tokio::time::sleep(Duration::ZERO);
        tokio::pin!(drained);
        loop {
            tokio::select! {
                result = connection.as_mut() => return result,
                _ = closing.wait_for(|closing| *closing), if !is_closing => {
                    is_closing = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = first_request.as_mut(), if is_awaited => {
                    is_awaited = false;
                    if !tracked.has_received() {
                        return Err("timed out waiting for the first request".into());
                    }
                }
                () = tracked.closed() => return Err("closed in favor of another connection".into()),
                // A stream cannot be reset from here. Other streams of the connection get as much time to end.
                () = tracked.stalled(), if !is_stalled => {
                    is_stalled = true;
                    let until = tokio::time::Instant::now().checked_add(limits.write_timeout);
                    drained.as_mut().reset(until.unwrap_or_else(tokio::time::Instant::now));
                    connection.as_mut().graceful_shutdown();
                }
                () = drained.as_mut(), if is_stalled => return Err("the client does not read".into()),
            }
        }
    }
}

fn builder(idle_timeout: Duration, streams_max: u32) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(idle_timeout).max_buf_size(64 << 10);
    builder.http1().max_headers(HEADERS_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams_max)
        .max_header_list_size(64 << 10)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(KEEP_ALIVE_EVERY)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
    builder
}

/// The handler of the requests of one connection.
enum Service {
    Server(Connection),
    Page(Page, Option<Arc<User>>, Peer, Arc<TrackedConnection>),
}

impl hyper::service::Service<Request<Incoming>> for Service {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        match self {
            Self::Server(connection) => connection.call(request),
            Self::Page(page, user, peer, tracked) => {
                let underway = tracked.request();
                request.extensions_mut().insert(*peer);
                let answer = page(request, user.clone());
                Box::pin(async move {
                    let response = answer.await.map(Body::from);
                    if outlives_request(&response) {
                        underway.stays();
                    }
                    Ok(response)
                })
            }
        }
    }
}

/// Whether a connection stays in use after a response: its body is a stream, or its protocol changes.
fn outlives_request(response: &Response<Body>) -> bool {
    response.body().len().is_none() || response.status() == http::StatusCode::SWITCHING_PROTOCOLS
}

/// Responds to a client that does not use TLS.
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
    tracked: Option<Arc<TrackedConnection>>,
    /// Set once the stream is to be drained for a client that is still sending.
    lingers: LingerFlag,
}

impl Connection {
    /// The server without a network: requests come from `user`.
    #[must_use]
    pub fn new(server: Arc<Server>, user: Option<User>) -> Self {
        Self { server, user: user.map(Arc::new), peer: None, tracked: None, lingers: LingerFlag::default() }
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
        let underway = tracked.as_ref().map(TrackedConnection::request);
        if let Some(tracked) = &tracked {
            request.extensions_mut().insert(Carrier(tracked.clone()));
        }
        if let Some(tracked) = tracked.filter(|it| !it.is_identified()) {
            request.extensions_mut().insert(tracked);
        }
        let closes = request.version() <= http::Version::HTTP_11;
        let (parts, body) = request.into_parts();
        let (body, rest) = ReturnedBody::new(body);
        let request = Request::from_parts(parts, body);
        let bytes_max = u64::try_from(server.options.body_bytes_max).unwrap_or(u64::MAX);
        Box::pin(async move {
            let mut response = server.handle(request, user.as_deref()).await;
            if let Some(underway) = underway.filter(|_| outlives_request(&response)) {
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
