//! Sockets of the server.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use tokio::net::{TcpListener, TcpSocket, UdpSocket};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 128;
/// Attempts to find a port that is free for UDP and TCP.
const PORT_ATTEMPTS: usize = 16;

/// The addresses whose queries are answered; by default all.
#[derive(Clone, Default)]
pub(crate) struct Clients(Option<Arc<dyn Fn(IpAddr) -> bool + Send + Sync>>);

impl Clients {
    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        self.0.as_ref().is_none_or(|contains| contains(address))
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Clients(some)" } else { "Clients(all)" })
    }
}

/// A port that is bound for UDP and TCP.
#[derive(Debug)]
pub struct Sockets {
    pub(crate) udp: Arc<UdpSocket>,
    pub(crate) tcp: TcpListener,
    pub(crate) clients: Clients,
    address: SocketAddr,
}

impl Sockets {
    /// Binds an address; port 0 takes a free one. The address need not exist yet: the bridge of pods is created with the first pod.
    /// Requires a Tokio runtime.
    ///
    /// # Errors
    /// The port cannot be used.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let mut last = None;
        for _ in 0..if address.port() == 0 { PORT_ATTEMPTS } else { 1 } {
            let udp = udp(address)?;
            let address = SocketAddr::new(address.ip(), udp.local_addr()?.port());
            match tcp(address) {
                Ok(tcp) => return Ok(Self { udp: Arc::new(udp), tcp, clients: Clients::default(), address }),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
    }

    /// Answers only the queries of addresses for which `is_client` returns true: datagrams of others are ignored, and their connections closed.
    /// It is called for every datagram and connection.
    #[must_use]
    pub fn only_for(mut self, is_client: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        self.clients = Clients(Some(Arc::new(is_client)));
        self
    }

    /// The address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    sockopt::set_ip_freebind(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    UdpSocket::from_std(socket.into())
}

fn tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    sockopt::set_ip_freebind(&socket, true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
