//! Sockets of the server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use tokio::net::{TcpListener, TcpSocket, UdpSocket};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 128;
/// Attempts to find a port that is free for UDP and TCP.
const PORT_ATTEMPTS: usize = 16;

/// A port that is bound for UDP and TCP.
#[derive(Debug)]
pub struct Sockets {
    pub(crate) udp: Arc<UdpSocket>,
    pub(crate) tcp: TcpListener,
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
                Ok(tcp) => return Ok(Self { udp: Arc::new(udp), tcp, address }),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
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
