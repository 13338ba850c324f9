//! One connection: requests are prepared bytes, and only the needed parts of responses are parsed.

use std::io;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Address of the server, and our identity.
#[derive(Clone)]
pub struct Endpoint {
    /// `host:port`.
    pub address: String,
    connector: TlsConnector,
}

/// Parsed head of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The code.
    pub status: u16,
    /// Length of the body; `None` if it is chunked.
    length: Option<usize>,
}

/// The parts of credentials, as DER.
pub struct Credentials {
    /// CA certificate of the server.
    pub authority: CertificateDer<'static>,
    /// Client certificate.
    pub certificate: CertificateDer<'static>,
    /// Proof of that.
    pub key: PrivateKeyDer<'static>,
}

impl Endpoint {
    /// An endpoint at `host:port`.
    ///
    /// # Errors
    /// If the credentials cannot be used.
    pub fn new(address: String, credentials: Credentials) -> Result<Self, rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(credentials.authority)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![credentials.certificate], credentials.key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { address, connector: TlsConnector::from(Arc::new(config)) })
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// Those of the network and of TLS.
    pub async fn connect(&self) -> io::Result<Connection> {
        self.connect_with(BUFFER).await
    }

    /// Opens a connection that takes less room, for small answers.
    ///
    /// # Errors
    /// Those of the network and of TLS.
    pub async fn connect_small(&self) -> io::Result<Connection> {
        self.connect_with(BUFFER_SMALL).await
    }

    async fn connect_with(&self, room: usize) -> io::Result<Connection> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let host = self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host);
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let stream = self.connector.connect(name, stream).await?;
        Ok(Connection { stream, buffer: vec![0; room], filled: 0 })
    }
}

/// Buffer size for unparsed data.
const BUFFER: usize = 64 << 10;
const BUFFER_SMALL: usize = 8 << 10;

/// An open connection.
pub struct Connection {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
    filled: usize,
}

impl Connection {
    /// Sends a request and waits for the head of its answer.
    ///
    /// # Errors
    /// Those of the network, and answers that are not HTTP.
    pub async fn send(&mut self, request: &[u8]) -> io::Result<Head> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        loop {
            if let Some(end) = find(self.filled_part(), b"\r\n\r\n") {
                let end = end.saturating_add(4);
                let head = read_head(self.filled_part().get(..end).unwrap_or_default())?;
                self.consume(end);
                return Ok(head);
            }
            self.fill().await?;
        }
    }

    /// Reads the body and hands its parts to `each`; how long it is.
    ///
    /// # Errors
    /// Those of the network, and chunks that are none.
    pub async fn body(&mut self, head: Head, mut each: impl FnMut(&[u8])) -> io::Result<usize> {
        if let Some(length) = head.length {
            self.pass(length, &mut each).await?;
            return Ok(length);
        }
        let mut whole = 0_usize;
        while let Some(length) = self.chunk().await? {
            self.pass(length, &mut each).await?;
            self.pass(2, &mut |_| ()).await?;
            whole = whole.saturating_add(length);
        }
        Ok(whole)
    }

    /// Sends a request and throws the body of the answer away.
    ///
    /// # Errors
    /// As [`Connection::send`] and [`Connection::body`].
    pub async fn exchange(&mut self, request: &[u8]) -> io::Result<u16> {
        let head = self.send(request).await?;
        self.body(head, |_| ()).await?;
        Ok(head.status)
    }

    /// As [`Connection::exchange`], with the body.
    ///
    /// # Errors
    /// As [`Connection::send`] and [`Connection::body`].
    pub async fn fetch(&mut self, request: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        let head = self.send(request).await?;
        let mut body = Vec::new();
        self.body(head, |part| body.extend_from_slice(part)).await?;
        Ok((head.status, body))
    }

    /// The length of the next chunk; none after the last.
    ///
    /// # Errors
    /// Those of the network, and chunks that are none.
    pub async fn chunk(&mut self) -> io::Result<Option<usize>> {
        loop {
            if let Some(end) = find(self.filled_part(), b"\r\n") {
                let line = self.filled_part().get(..end).unwrap_or_default();
                let length = std::str::from_utf8(line).ok().and_then(|line| usize::from_str_radix(line, 16).ok());
                let length = length.ok_or_else(|| broken("the length of a chunk"))?;
                self.consume(end.saturating_add(2));
                if length == 0 {
                    self.pass(2, &mut |_| ()).await?;
                    return Ok(None);
                }
                return Ok(Some(length));
            }
            self.fill().await?;
        }
    }

    /// Hands the next `length` bytes to `each`, part by part.
    ///
    /// # Errors
    /// Those of the network.
    pub async fn pass(&mut self, mut length: usize, each: &mut impl FnMut(&[u8])) -> io::Result<()> {
        while length > 0 {
            if self.filled == 0 {
                self.fill().await?;
            }
            let now = self.filled.min(length);
            each(self.filled_part().get(..now).unwrap_or_default());
            self.consume(now);
            length = length.saturating_sub(now);
        }
        Ok(())
    }

    fn filled_part(&self) -> &[u8] {
        self.buffer.get(..self.filled).unwrap_or_default()
    }

    fn consume(&mut self, count: usize) {
        self.buffer.copy_within(count..self.filled, 0);
        self.filled = self.filled.saturating_sub(count);
    }

    async fn fill(&mut self) -> io::Result<()> {
        let room = self.buffer.get_mut(self.filled..).unwrap_or_default();
        if room.is_empty() {
            return Err(broken("a head that is too long"));
        }
        let count = self.stream.read(room).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.filled = self.filled.saturating_add(count);
        Ok(())
    }
}

/// Position of `part` in `text`.
#[must_use]
pub fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server sent {what}"))
}

fn read_head(head: &[u8]) -> io::Result<Head> {
    let head = std::str::from_utf8(head).map_err(|_| broken("a head that is not text"))?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| broken("no status line"))?;
    let mut length = None;
    let mut chunked = false;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok();
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            chunked = true;
        }
    }
    Ok(Head { status, length: if chunked { None } else { Some(length.unwrap_or(0)) } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_say_how_the_body_ends() {
        let read = |text: &str| read_head(text.as_bytes()).unwrap();
        let known = read("HTTP/1.1 201 Created\r\nContent-Length: 12\r\n\r\n");
        assert_eq!(known, Head { status: 201, length: Some(12) });
        let chunked = read("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        assert_eq!(chunked, Head { status: 200, length: None });
        assert!(read_head(b"nonsense\r\n\r\n").is_err());
    }
}
