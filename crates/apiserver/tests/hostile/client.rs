//! A client that sends any bytes, valid or not: blocking, HTTP/1.1, bytes in and bytes out.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part of it")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// No test waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// Address of the server, and our identity.
#[derive(Clone)]
pub struct Endpoint {
    pub address: SocketAddr,
    config: Arc<ClientConfig>,
}

impl Endpoint {
    pub fn new(
        address: SocketAddr,
        authority: CertificateDer<'static>,
        identity: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(authority).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match identity {
            Some((certificate, key)) => builder.with_client_auth_cert(vec![certificate], key).unwrap(),
            None => builder.with_no_client_auth(),
        };
        Self { address, config: Arc::new(config) }
    }

    pub fn tcp(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub fn try_connect(&self) -> io::Result<Client> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let name = ServerName::from(self.address.ip());
        let connection = ClientConnection::new(self.config.clone(), name).map_err(io::Error::other)?;
        Ok(Client { stream: StreamOwned::new(connection, stream), buffer: Vec::new() })
    }

    pub fn connect(&self) -> Client {
        self.try_connect().unwrap()
    }

    /// Sends one request on a new connection.
    pub fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> io::Result<Response> {
        self.try_connect()?.request(method, path, headers, body)
    }
}

pub struct Client {
    pub stream: StreamOwned<ClientConnection, TcpStream>,
    buffer: Vec<u8>,
}

#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<String> {
        header(&self.head, name)
    }
}

fn header(head: &str, name: &str) -> Option<String> {
    let lines = head.split("\r\n").filter_map(|line| line.split_once(':'));
    lines.filter(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned()).next()
}

impl Client {
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    pub fn request(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> io::Result<Response> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        // The server may respond before everything is sent, and then close.
        let sent = self.send(head.as_bytes()).and_then(|()| self.send(body));
        self.response().map_err(|error| sent.err().unwrap_or(error))
    }

    /// The next answer with its whole body.
    pub fn response(&mut self) -> io::Result<Response> {
        let (status, head) = self.head()?;
        let mut body = Vec::new();
        if header(&head, "transfer-encoding").is_some() {
            while let Some(chunk) = self.chunk()? {
                body.extend(chunk);
            }
        } else {
            let length = header(&head, "content-length").map_or(0, |value| value.parse().unwrap());
            body = self.take(length)?;
        }
        Ok(Response { status, head, body })
    }

    /// The head of the next answer.
    pub fn head(&mut self) -> io::Result<(u16, String)> {
        let head = self.until(b"\r\n\r\n")?;
        let head = String::from_utf8(head).map_err(io::Error::other)?;
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Ok((status.ok_or_else(|| io::Error::other(format!("no status in {head:?}")))?, head))
    }

    /// The next chunk of a body that has no known length; none after the last.
    pub fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line = self.until(b"\r\n")?;
        let text = std::str::from_utf8(&line).map_err(io::Error::other)?;
        let length = usize::from_str_radix(text.trim(), 16).map_err(io::Error::other)?;
        let chunk = self.take(length)?;
        self.take(2)?;
        Ok((length > 0).then_some(chunk))
    }

    /// Whether the server closes the connection instead of sending anything more than what is passed over here.
    pub fn is_closed(&mut self) -> bool {
        loop {
            match self.fill() {
                Ok(()) => self.buffer.clear(),
                Err(error) => return !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
            }
        }
    }

    fn until(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|window| window == end) {
                let rest = self.buffer.split_off(at + end.len());
                return Ok(std::mem::replace(&mut self.buffer, rest));
            }
            self.fill()?;
        }
    }

    fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < length {
            self.fill()?;
        }
        let rest = self.buffer.split_off(length);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut part = [0; 16 << 10];
        let count = self.stream.read(&mut part)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.buffer.extend_from_slice(&part[..count]);
        Ok(())
    }
}
