//! A server on loopback, and a client for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dns::Sockets;
use dns::forward::Forwarder;
use dns::metrics::Metrics;
use dns::server::{self, Server};
use dns::zone::{Service, Slice, Zone};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};
use locks::RwLock;
use telemetry::metrics::Registry;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinHandle;

/// Limit for steps that do not depend on the machine's speed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The zone of the objects in a YAML text.
pub(crate) fn zone(objects: &str) -> Zone {
    let mut zone = Zone::new("cluster.local").unwrap();
    let (documents, error) = api::yaml::parse_documents(objects);
    assert!(error.is_none(), "{error:?}");
    for document in documents {
        let value = document.value;
        let (namespace, name) = (value.text_at(&["metadata", "namespace"]), value.text_at(&["metadata", "name"]));
        match value.text("kind") {
            "Namespace" => zone.set_namespace(name, true),
            "Service" => zone.set_service(namespace, name, Some(Arc::new(Service::read(&value).unwrap()))),
            "EndpointSlice" => zone.set_slice(namespace, name, None, Some(Arc::new(Slice::read(&value).unwrap()))),
            kind => panic!("{kind}"),
        }
    }
    zone.set_serial(1);
    zone.set_synced();
    zone
}

/// A server that ends when dropped.
pub(crate) struct RunningServer {
    pub(crate) address: SocketAddr,
    pub(crate) registry: Arc<Registry>,
    task: JoinHandle<()>,
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves a zone on a free port of loopback and forwards to `servers`.
pub(crate) fn start(zone: Zone, servers: Vec<SocketAddr>) -> RunningServer {
    start_on(Sockets::bind("127.0.0.1:0".parse().unwrap()).unwrap(), zone, servers)
}

/// Serves a zone on a port and forwards to `servers`.
pub(crate) fn start_on(sockets: Sockets, zone: Zone, servers: Vec<SocketAddr>) -> RunningServer {
    let address = sockets.address();
    let registry = Arc::new(Registry::new());
    let metrics = Metrics::new(&registry, 53, "cluster.local");
    let forwarder = Forwarder::new(servers, metrics.clone());
    let server = Server::new(Arc::new(RwLock::new(zone)), forwarder, metrics);
    let task = tokio::spawn(server::serve(sockets, server));
    RunningServer { address, registry, task }
}

/// A query; `payload` is that of EDNS.
pub(crate) fn query(id: u16, name: &str, record_type: RecordType, payload: Option<u16>) -> Message {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), record_type));
    if let Some(payload) = payload {
        let mut edns = Edns::new();
        edns.set_max_payload(payload);
        message.set_edns(edns);
    }
    message
}

/// Sends bytes over UDP and returns the response.
pub(crate) async fn send(server: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(bytes, server).await.unwrap();
    let mut packet = vec![0; 65_536];
    let length = tokio::time::timeout(PATIENCE, socket.recv(&mut packet)).await.unwrap().unwrap();
    packet.truncate(length);
    packet
}

/// Sends a question over UDP and returns the response.
pub(crate) async fn ask(server: SocketAddr, name: &str, record_type: RecordType) -> Message {
    let bytes = query(7, name, record_type, None).to_vec().unwrap();
    Message::from_vec(&send(server, &bytes).await).unwrap()
}

/// Sends messages over one TCP connection and returns as many responses.
pub(crate) async fn over_tcp(server: SocketAddr, messages: &[Message]) -> Vec<Message> {
    let mut stream = TcpStream::connect(server).await.unwrap();
    for message in messages {
        let bytes = message.to_vec().unwrap();
        stream.write_u16(u16::try_from(bytes.len()).unwrap()).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
    }
    let mut responses = Vec::new();
    for _ in messages {
        let length = tokio::time::timeout(PATIENCE, stream.read_u16()).await.unwrap().unwrap();
        let mut bytes = vec![0; usize::from(length)];
        stream.read_exact(&mut bytes).await.unwrap();
        responses.push(Message::from_vec(&bytes).unwrap());
    }
    responses
}

/// Data of the answers as text.
pub(crate) fn data(message: &Message) -> Vec<String> {
    message.answers.iter().map(|record| format!("{} {}", record.record_type(), record.data)).collect()
}
