//! The servers that `resolv.conf` names.

use std::io::Read as _;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;

/// Servers that are used, as in the C library.
const SERVERS_MAX: usize = 3;
/// Bytes of the file that are read.
const BYTES_MAX: u64 = 64 << 10;
/// The port of DNS.
const PORT: u16 = 53;

/// Reads the servers of a file. Servers that are this one are left out and returned separately.
#[must_use]
pub(crate) fn servers(path: &Path, own: &[SocketAddr]) -> (Vec<SocketAddr>, Vec<SocketAddr>) {
    let mut text = Vec::new();
    // Without a file, queries are answered as without servers.
    let _ = std::fs::File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    let (own, others): (Vec<_>, Vec<_>) = parse(&text).into_iter().partition(|server| is_own(*server, own));
    (others, own)
}

fn parse(text: &str) -> Vec<SocketAddr> {
    let named = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next())?
    });
    // An address with a zone, such as `fe80::1%eth0`, is only valid on its link.
    let mut servers: Vec<SocketAddr> =
        named.filter_map(|address| address.parse::<IpAddr>().ok()).map(|address| (address, PORT).into()).collect();
    servers.truncate(SERVERS_MAX);
    servers
}

/// Whether queries to this server would arrive here.
fn is_own(server: SocketAddr, own: &[SocketAddr]) -> bool {
    own.iter().any(|own| {
        let is_address = own.ip() == server.ip() || own.ip().is_unspecified() && is_local(server.ip());
        is_address && own.port() == server.port()
    })
}

/// Whether an address belongs to this machine: only then a socket can be bound to it.
fn is_local(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_in_order() {
        let text = "# nameserver 192.0.2.9\nsearch example.com\nnameserver 192.0.2.1\n nameserver\t2001:db8::1 \n\
                    nameserver nonsense\nnameserver 192.0.2.3\nnameserver 192.0.2.4\n";
        let expected = ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.3:53"].map(|it| it.parse().unwrap());
        assert_eq!(parse(text), expected);
    }

    #[test]
    fn own_addresses_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("resolv.conf");
        std::fs::write(&path, "nameserver 127.0.0.1\nnameserver 10.244.0.1\nnameserver 192.0.2.1\n").unwrap();
        let check = |own: &str, expected: &[&str]| {
            let expected: Vec<SocketAddr> = expected.iter().map(|it| format!("{it}:53").parse().unwrap()).collect();
            assert_eq!(servers(&path, &[own.parse().unwrap()]).0, expected, "{own}");
        };
        check("10.244.0.1:53", &["127.0.0.1", "192.0.2.1"]);
        check("10.244.0.1:5353", &["127.0.0.1", "10.244.0.1", "192.0.2.1"]);
        check("0.0.0.0:53", &["10.244.0.1", "192.0.2.1"]);
        assert_eq!(servers(Path::new("/nonexistent"), &[]), (Vec::new(), Vec::new()));
    }
}
