//! Connections from the API server to node agents: over TLS, with a client certificate, to agents whose certificate the
//! cluster's authority signed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use api::well_known::GROUP_MASTERS;
use apiserver::serving::certificates::Authority;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The API server's name towards node agents.
const NAME: &str = "kube-apiserver-kubelet-client";
/// Time limit for a connection.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to node agents.
#[derive(Clone)]
pub struct AgentTls(TlsConnector);

impl AgentTls {
    /// A client certificate of the cluster's authority, which also signs the certificates of agents.
    ///
    /// # Errors
    /// Certificates that cannot be made.
    pub fn new(authority: &Authority) -> Result<Self> {
        let pair = authority.client(NAME, GROUP_MASTERS)?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority.certificate().as_bytes()) {
            roots.add(certificate?)?;
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![pair.certificate_der()?], pair.key_der()?)?;
        // Upgrades exist in HTTP/1.1 only.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Connects to the agent of a node. A certificate for another subject is refused before anything is sent: this server's
    /// identity may do everything, and a Node can name the address of an API server or of another node.
    pub(super) async fn connect(&self, node: &str, address: SocketAddr) -> Result<TlsStream<TcpStream>> {
        let connecting = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let stream = self.0.connect(ServerName::IpAddress(address.ip().into()), stream).await?;
            let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
            let names = certificate.and_then(|certificate| api::x509::certificate_subject(certificate));
            let (subject, expected) = (names.unwrap_or_default().common_name, format!("system:node:{node}"));
            ensure!(subject == expected, "its certificate is for {}, not {expected}", api::go_text::quote(&subject));
            anyhow::Ok(stream)
        };
        tokio::time::timeout(TIMEOUT, connecting).await.context("it does not answer")?
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use apiserver::serving::certificates::Pair;
    use rustls::ServerConfig;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// Connects as to the agent of `n1`, and returns the error and the bytes that the other side received.
    async fn connect_to(authority: &Authority, pair: Pair) -> (Option<String>, usize) {
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![pair.certificate_der().unwrap()], pair.key_der().unwrap())
            .unwrap();
        let listener = TcpListener::bind((HERE, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await.unwrap();
            let mut received = Vec::new();
            let _ = stream.read_to_end(&mut received).await;
            received.len()
        });
        let connected = AgentTls::new(authority).unwrap().connect("n1", address).await;
        (connected.err().map(|error| error.to_string()), server.await.unwrap())
    }

    #[tokio::test]
    async fn only_the_certificate_of_the_node_is_accepted() {
        let authority = Authority::generate().unwrap();
        assert_eq!(connect_to(&authority, authority.node("n1", &[HERE]).unwrap()).await, (None, 0));
        let other = "its certificate is for \"system:node:n2\", not system:node:n1";
        assert_eq!(connect_to(&authority, authority.node("n2", &[HERE]).unwrap()).await, (Some(other.to_owned()), 0));
        let server = "its certificate is for \"celplane-apiserver\", not system:node:n1";
        assert_eq!(connect_to(&authority, authority.server(&[HERE]).unwrap()).await, (Some(server.to_owned()), 0));
    }
}
