//! A server behind TLS on a loopback port, and connections to it.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part of it")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use apiserver::server::listen::{self, TlsAcceptor};
use apiserver::serving::certificates::Bundle;
use apiserver::{Options, Server};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use serde_json::Value;
use store::EmbeddedStore;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Address of a server, and credentials for it.
pub struct Place {
    pub bundle: Bundle,
    address: SocketAddr,
}

/// A server that listens.
pub struct Network {
    pub server: Arc<Server>,
    pub place: Arc<Place>,
    pub tls: watch::Sender<TlsAcceptor>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    pub directory: tempfile::TempDir,
}

/// One HTTP/2 connection.
#[derive(Clone)]
pub struct Connection(pub SendRequest<Full<Bytes>>);

pub fn addresses() -> [IpAddr; 1] {
    [IpAddr::V4(Ipv4Addr::LOCALHOST)]
}

impl Network {
    pub async fn start() -> Self {
        Self::start_on(store::Options::default()).await
    }

    pub async fn start_on(options: store::Options) -> Self {
        Self::start_with(options, Options::without_controllers()).await
    }

    pub async fn start_with(store_options: store::Options, options: Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let bundle = Bundle::load_or_create(directory.path(), &addresses()).unwrap();
        let store = Arc::new(EmbeddedStore::in_memory(store_options).unwrap());
        let server = Server::start(store, options).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tls, newest) = watch::channel(listen::tls(&bundle).unwrap());
        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(listen::serve_rotating(server.clone(), listener, newest, stopped));
        let place = Arc::new(Place { bundle, address });
        Self { server, place, tls, stop, serving, directory }
    }

    pub async fn stop(self) {
        self.stop.send_replace(true);
        self.serving.await.unwrap();
        self.server.stop().await.unwrap();
    }

    /// As [`Network::stop`], without waiting for connections.
    pub async fn end(&self) {
        self.stop.send_replace(true);
        self.server.stop().await.unwrap();
    }
}

impl std::ops::Deref for Network {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl Place {
    pub fn new(bundle: Bundle, address: SocketAddr) -> Self {
        Self { bundle, address }
    }

    /// Address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A TLS stream with the administrator's certificate.
    pub async fn stream(&self) -> tokio_rustls::client::TlsStream<TcpStream> {
        self.stream_as(&self.bundle).await
    }

    /// A TLS stream that shows and trusts the certificates of a bundle.
    pub async fn stream_as(&self, bundle: &Bundle) -> tokio_rustls::client::TlsStream<TcpStream> {
        self.stream_with(Some(bundle)).await.unwrap()
    }

    /// A TLS stream that shows a certificate, or none.
    pub async fn stream_with(
        &self,
        bundle: Option<&Bundle>,
    ) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        self.stream_speaking(bundle, b"h2").await
    }

    /// A TLS stream with the administrator's certificate, for HTTP/1.1.
    pub async fn stream_http1(&self) -> tokio_rustls::client::TlsStream<TcpStream> {
        self.try_stream_http1().await.unwrap()
    }

    /// The same; an error if the server closes the connection.
    pub async fn try_stream_http1(&self) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        self.stream_speaking(Some(&self.bundle), b"http/1.1").await
    }

    async fn stream_speaking(
        &self,
        bundle: Option<&Bundle>,
        protocol: &[u8],
    ) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        use rustls::pki_types::CertificateDer;
        use rustls::pki_types::pem::PemObject as _;
        let mut roots = rustls::RootCertStore::empty();
        let authority = self.bundle.authority.certificate();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match bundle {
            Some(bundle) => {
                let certificate = vec![bundle.admin.certificate_der().unwrap()];
                builder.with_client_auth_cert(certificate, bundle.admin.key_der().unwrap()).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        let stream = TcpStream::connect(self.address).await?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        connector.connect(ServerName::from(self.address.ip()), stream).await
    }

    /// A connection with the administrator's certificate, or without one.
    pub async fn connect_as(&self, is_admin: bool) -> Connection {
        if is_admin { self.connect().await } else { self.try_connect().await.unwrap() }
    }

    /// A connection without a certificate; `None` if the server rejects it.
    pub async fn try_connect(&self) -> Option<Connection> {
        self.try_connect_as(false).await
    }

    /// A connection with the administrator's certificate, or without one; `None` if the server rejects it.
    pub async fn try_connect_as(&self, is_admin: bool) -> Option<Connection> {
        let stream = TokioIo::new(self.stream_with(is_admin.then_some(&self.bundle)).await.ok()?);
        let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.ok()?;
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Some(Connection(sender))
    }

    pub async fn connect(&self) -> Connection {
        let stream = TokioIo::new(self.stream().await);
        let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(async move {
            // Ends when the test drops its side.
            let _ = connection.await;
        });
        Connection(sender)
    }
}

impl Connection {
    pub async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> http::Response<Incoming> {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let mut request = Request::builder().method(method).uri(format!("https://localhost{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.0.ready().await.unwrap();
        self.0.send_request(request.body(Full::new(body)).unwrap()).await.unwrap()
    }

    /// As [`Connection::send`], but the connection may end.
    pub async fn try_send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Result<http::Response<Incoming>, hyper::Error> {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let mut request = Request::builder().method(method).uri(format!("https://localhost{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.0.ready().await?;
        self.0.send_request(request.body(Full::new(body)).unwrap()).await
    }

    pub async fn ask(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let response = self.send(method, path, &[], body).await;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }
}
