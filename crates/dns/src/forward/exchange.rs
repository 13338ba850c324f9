//! One query to one server: over UDP, and over TCP if the response does not fit.
//!
//! Each query has its own socket and thus a random source port, a random id, and letters of random case, which servers repeat in the
//! question of the response. The socket is connected: the kernel drops packets of other senders.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query as Question};
use hickory_proto::rr::Name;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};

use super::accept;
use crate::cache::Key;
use crate::message::{self, UDP_BYTES_MAX};

/// Packets that are not the response. A server that sends more is not waited for.
const STRAYS_MAX: usize = 64;
/// Bytes of a packet.
const PACKET_BYTES_MAX: usize = 4096;

/// A query without a response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The time is up.
    #[error("no response in time")]
    Late,
    /// Too many packets that are not the response.
    #[error("too many packets that do not answer the query")]
    Strays,
    /// A network failure.
    #[error("cannot reach the server")]
    Network(#[from] io::Error),
    /// A response that cannot be read, or answers another question.
    #[error("the response does not answer the query")]
    Mismatch,
}

/// Random bytes of the system.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the system has no random bytes"))?;
    Ok(bytes)
}

/// Sends a question and returns the response.
pub(crate) async fn ask(server: SocketAddr, key: &Key, timeout: Duration) -> Result<Message, Failure> {
    let exchange = async {
        let id = u16::from_be_bytes(random()?);
        let name = mixed_case(&key.name, random()?)?;
        let query = query(id, key, &name)?;
        let response = over_udp(server, id, key, &query).await?;
        // A forged packet, or one of the few servers that change the case: a connection cannot be forged that easily.
        let has_case = response.queries.first().is_some_and(|question| question.name().eq_case(&name));
        if response.metadata.truncation || !has_case { over_tcp(server, id, key, &query).await } else { Ok(response) }
    };
    tokio::time::timeout(timeout, exchange).await.unwrap_or(Err(Failure::Late))
}

/// The name with the case of each letter chosen by a bit. A name has at most 255 bytes.
fn mixed_case(name: &Name, bits: [u8; 32]) -> io::Result<Name> {
    let mut bits = bits.into_iter().flat_map(|byte| [1, 2, 4, 8, 16, 32, 64, 128].map(|mask| byte & mask != 0));
    let mut mixed = |byte: &u8| if bits.next() == Some(true) { byte.to_ascii_uppercase() } else { *byte };
    let labels: Vec<Vec<u8>> = name.iter().map(|label| label.iter().map(&mut mixed).collect()).collect();
    Name::from_labels(labels.iter().map(Vec::as_slice)).map_err(io::Error::other)
}

fn query(id: u16, key: &Key, name: &Name) -> io::Result<Vec<u8>> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.metadata.checking_disabled = key.checking_disabled;
    message.queries = vec![Question::query(name.clone(), key.record_type)];
    let mut edns = Edns::new();
    edns.set_max_payload(UDP_BYTES_MAX).set_dnssec_ok(key.dnssec_ok);
    message.set_edns(edns);
    message.to_vec().map_err(io::Error::other)
}

async fn over_udp(server: SocketAddr, id: u16, key: &Key, query: &[u8]) -> Result<Message, Failure> {
    let local: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(local).await?;
    socket.connect(server).await?;
    socket.send(query).await?;
    let mut packet = vec![0; PACKET_BYTES_MAX];
    for _ in 0..STRAYS_MAX {
        let length = socket.recv(&mut packet).await?;
        if let Some(message) = packet.get(..length).and_then(|bytes| response(bytes, id, key)) {
            return Ok(message);
        }
    }
    Err(Failure::Strays)
}

async fn over_tcp(server: SocketAddr, id: u16, key: &Key, query: &[u8]) -> Result<Message, Failure> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(query.len()).map_err(|_| Failure::Mismatch)?;
    stream.write_all(&[&length.to_be_bytes(), query].concat()).await?;
    let length = stream.read_u16().await?;
    let mut bytes = vec![0; usize::from(length)];
    stream.read_exact(&mut bytes).await?;
    response(&bytes, id, key).ok_or(Failure::Mismatch)
}

/// The response to a query; none for other messages. The id is compared before the message is decoded.
fn response(bytes: &[u8], id: u16, key: &Key) -> Option<Message> {
    let header = bytes.first_chunk::<12>()?;
    let [high, low, flags, _, q1, q2, ..] = *header;
    if u16::from_be_bytes([high, low]) != id || flags & 0x80 == 0 || [q1, q2] != [0, 1] {
        return None;
    }
    message::decode(bytes).filter(|message| accept::is_response(message, id, key))
}
