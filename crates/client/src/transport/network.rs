//! Requests over the network, as a kubeconfig describes it: TLS, credentials, and their renewal.
//!
//! With HTTP/2, one connection carries the requests and another one the watches, until their streams run out (see
//! `connections`). Credentials from a program or a file are refreshed when they expire.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use http::{Request, Uri};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::Mutex;

use telemetry::metrics::Registry;

use super::connections::{Connections, Purpose, Stream, Waits};
use super::exec::{self, ExecCredentials};
use super::{Answer, AnyError, Transport, insecure};
use crate::kubeconfig::Kubeconfig;

/// Time limit for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Time without data after which a connection is checked with a ping.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// A file with a token is read again after this many seconds, as Kubernetes' clients do.
const TOKEN_FILE_SECONDS: u64 = 60;

type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A server on the network. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Network(Arc<Inner>);

struct Inner {
    kubeconfig: Kubeconfig,
    headers: Vec<(HeaderName, HeaderValue)>,
    waits: Arc<Waits>,
    /// The client certificate and its key: the kubeconfig's until it is replaced.
    certificate: locks::Mutex<Option<(Vec<u8>, Vec<u8>)>>,
    session: Mutex<Option<Arc<Session>>>,
}

/// Connections with the credentials of the moment.
struct Session {
    watches: Arc<Connections<HttpClient>>,
    requests: Arc<Connections<HttpClient>>,
    authorization: Option<HeaderValue>,
    /// In seconds since 1970; none for credentials that last.
    until: Option<u64>,
}

impl Network {
    /// Creates the transport of a kubeconfig. Credentials are loaded, but no connection is made yet.
    pub(crate) async fn new(kubeconfig: Kubeconfig) -> Result<Self, AnyError> {
        let _: Uri = kubeconfig.server.parse()?;
        let mut headers = Vec::new();
        for (name, value) in &kubeconfig.user.impersonate {
            headers.push((HeaderName::try_from(name)?, HeaderValue::from_bytes(value.as_bytes())?));
        }
        let network = Self(Arc::new(Inner {
            headers,
            waits: Arc::default(),
            certificate: locks::Mutex::new(kubeconfig.user.certificate.clone()),
            kubeconfig,
            session: Mutex::new(None),
        }));
        network.0.session().await?;
        Ok(network)
    }
}

impl Transport for Network {
    fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        let inner = self.0.clone();
        Box::pin(async move {
            let session = inner.session().await?;
            let (mut head, body) = request.into_parts();
            let path = head.uri.path_and_query().map_or("/", |it| it.as_str());
            head.uri = format!("{}{path}", inner.kubeconfig.server).parse()?;
            if let Some(authorization) = &session.authorization {
                head.headers.insert(AUTHORIZATION, authorization.clone());
            }
            for (name, value) in &inner.headers {
                head.headers.append(name, value.clone());
            }
            let connections = match Purpose::of(&head.uri) {
                Purpose::Watch => &session.watches,
                Purpose::Request => &session.requests,
            };
            let (client, stream) = connections.stream().await?;
            let response = client.request(Request::from_parts(head, body)).await.map_err(explain)?;
            if response.status() == http::StatusCode::UNAUTHORIZED && session.until.is_some() {
                // The credentials are no longer accepted: the next request loads new ones.
                inner.forget(&session).await;
            }
            Ok(response.map(|body| StreamBody { body, _stream: stream }.boxed_unsync()))
        })
    }

    fn publish(&self, registry: &Registry) {
        self.0.waits.publish(registry);
    }

    fn replace_certificate(
        &self,
        chain: Vec<u8>,
        key: Vec<u8>,
    ) -> Pin<Box<dyn Future<Output = Result<(), AnyError>> + Send>> {
        let inner = self.0.clone();
        Box::pin(async move {
            let new = Some((chain, key));
            // A certificate that cannot be used does not replace one that can.
            tls(&inner.kubeconfig, new.as_ref())?;
            let mut session = inner.session.lock().await;
            *inner.certificate.lock() = new;
            // Requests and watches that are under way end on the old connections; all others use new ones.
            *session = None;
            Ok(())
        })
    }
}

/// The body of an answer, which holds its stream until it is read or dropped.
struct StreamBody<B> {
    body: B,
    _stream: Stream,
}

impl<B> HttpBody for StreamBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<AnyError>,
{
    type Data = Bytes;
    type Error = AnyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnyError>>> {
        Pin::new(&mut self.body).poll_frame(context).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Extracts the cause: the client's error only states that it could not connect.
fn explain(error: hyper_util::client::legacy::Error) -> AnyError {
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    format!("{error}: {cause}").into()
}

impl Inner {
    /// The session of the moment, renewed if its credentials ran out.
    async fn session(&self) -> Result<Arc<Session>, AnyError> {
        let mut current = self.session.lock().await;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if let Some(session) = current.as_ref().filter(|it| it.until.is_none_or(|until| now < until)) {
            return Ok(session.clone());
        }
        let session = Arc::new(self.renew(now, current.take()).await?);
        *current = Some(session.clone());
        Ok(session)
    }

    async fn forget(&self, session: &Arc<Session>) {
        let mut current = self.session.lock().await;
        if current.as_ref().is_some_and(|it| Arc::ptr_eq(it, session)) {
            *current = None;
        }
    }

    async fn renew(&self, now: u64, before: Option<Arc<Session>>) -> Result<Session, AnyError> {
        let user = &self.kubeconfig.user;
        let mut given = match &user.exec {
            Some(program) => exec::run(program, &self.kubeconfig.server).await?,
            None => ExecCredentials::default(),
        };
        if let Some(path) = &user.token_file {
            let token =
                std::fs::read_to_string(path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
            given.token = Some(token.trim().to_owned());
            given.until = Some(now.saturating_add(TOKEN_FILE_SECONDS));
        }
        let token = given.token.or_else(|| user.token.clone());
        let authorization = match (token, &user.password) {
            (Some(token), _) => Some(format!("Bearer {token}")),
            (None, Some((name, password))) => {
                Some(format!("Basic {}", api::base64::encode(format!("{name}:{password}").as_bytes())))
            }
            (None, None) => None,
        };
        let authorization = authorization.map(|text| HeaderValue::from_str(&text)).transpose()?;
        let authorization = authorization.map(|mut value| {
            value.set_sensitive(true);
            value
        });
        // Connections last longer than tokens; new certificates need new connections.
        let (watches, requests) = match before.filter(|_| given.certificate.is_none()) {
            Some(session) => (session.watches.clone(), session.requests.clone()),
            None => {
                let own = self.certificate.lock().clone();
                let tls = Arc::new(tls(&self.kubeconfig, given.certificate.as_ref().or(own.as_ref()))?);
                let make = |purpose| {
                    let (tls, server_name) = (tls.clone(), self.kubeconfig.server_name.clone());
                    let connect = move || client(&tls, server_name.clone());
                    Arc::new(Connections::new(purpose, self.waits.clone(), connect))
                };
                (make(Purpose::Watch), make(Purpose::Request))
            }
        };
        Ok(Session { watches, requests, authorization, until: given.until })
    }
}

/// A pool of its own, which has one connection to an HTTP/2 server.
fn client(tls: &ClientConfig, server_name: Option<String>) -> Result<HttpClient, AnyError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_keepalive(Some(KEEP_ALIVE));
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http();
    let connector = match server_name {
        Some(name) => {
            let name = ServerName::try_from(name)?;
            connector
                .with_server_name_resolver(FixedServerNameResolver::new(name))
                .enable_all_versions()
                .wrap_connector(tcp)
        }
        None => connector.enable_all_versions().wrap_connector(tcp),
    };
    let mut builder = Client::builder(TokioExecutor::new());
    builder.timer(TokioTimer::new()).pool_timer(TokioTimer::new());
    builder.http2_keep_alive_interval(KEEP_ALIVE).http2_keep_alive_timeout(KEEP_ALIVE).http2_adaptive_window(true);
    Ok(builder.build(connector))
}

fn tls(kubeconfig: &Kubeconfig, certificate: Option<&(Vec<u8>, Vec<u8>)>) -> Result<ClientConfig, AnyError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let builder = if kubeconfig.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(insecure::AnyCertificate::new(&provider)))
    } else {
        builder.with_root_certificates(authorities(kubeconfig)?)
    };
    let Some((chain, key)) = certificate else { return Ok(builder.with_no_client_auth()) };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(key)?;
    Ok(builder.with_client_auth_cert(chain, key)?)
}

fn authorities(kubeconfig: &Kubeconfig) -> Result<RootCertStore, AnyError> {
    let mut store = RootCertStore::empty();
    match &kubeconfig.authority {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                store.add(certificate?)?;
            }
            if store.is_empty() {
                return Err("`certificate-authority` contains no certificate".into());
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
        }
    }
    Ok(store)
}
