//! Queries per second, processor time per query and latencies of the server on loopback: one thread serves, another one asks.
//!
//! `cargo run --release -p celplane-dns --example dns_load [SECONDS]`; each kind of question is sent by 32 clients at a time.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "a measurement"
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use celplane_dns::Sockets;
use celplane_dns::forward::Forwarder;
use celplane_dns::metrics::Metrics;
use celplane_dns::server::{self, Server};
use celplane_dns::zone::{Backing, Endpoint, Port, Service, Slice, Zone};
use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};
use locks::RwLock;
use rustix::time::{ClockId, clock_gettime};
use telemetry::metrics::Registry;
use tokio::net::UdpSocket;

const CLIENTS: usize = 32;
const SERVICES: u32 = 10_000;

/// 10,000 Services, and a headless one with ten endpoints.
fn zone() -> Zone {
    let mut zone = Zone::new("cluster.local").unwrap();
    zone.set_namespace("default", true);
    let ports = || vec![Port { name: "http".into(), protocol: "tcp".into(), number: 80 }];
    for number in 0..SERVICES {
        let address = std::net::Ipv4Addr::from(0x0a60_0000 + number);
        let service = Service { backing: Backing::Cluster(vec![address.into()]), ports: ports() };
        zone.set_service("default", &format!("s{number}"), Some(Arc::new(service)));
    }
    zone.set_service("default", "headless", Some(Arc::new(Service { backing: Backing::Headless, ports: ports() })));
    let endpoint = |last: u8| Endpoint { address: [10, 244, 0, last].into(), host: format!("h{last}").into() };
    let slice = Slice { service: "headless".into(), endpoints: (1..=10).map(endpoint).collect(), ports: ports() };
    zone.set_slice("default", "headless-1", None, Some(Arc::new(slice)));
    zone.set_synced();
    zone
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// Serves on a thread of its own until the switch is set; returns the address, the switch and the thread, which returns its processor time.
fn serve() -> (SocketAddr, tokio::sync::oneshot::Sender<()>, std::thread::JoinHandle<Duration>) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let thread = std::thread::spawn(move || {
        let zone = Arc::new(RwLock::new(zone()));
        let begun = processor_time();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let sockets = Sockets::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            sender.send(sockets.address()).unwrap();
            let metrics = Metrics::new(&Registry::new(), 53, "cluster.local");
            let server = Server::new(zone, Forwarder::new(Vec::new(), metrics.clone()), metrics);
            tokio::select! {
                () = server::serve(sockets, server) => {}
                _ = stopped => {}
            }
        });
        processor_time() - begun
    });
    (receiver.recv().unwrap(), stop, thread)
}

async fn client(server: SocketAddr, question: Vec<u8>, until: Instant) -> Vec<u32> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(server).await.unwrap();
    let (mut packet, mut latencies) = ([0; 2048], Vec::new());
    while Instant::now() < until {
        let sent = Instant::now();
        socket.send(&question).await.unwrap();
        let length = tokio::time::timeout(Duration::from_secs(5), socket.recv(&mut packet)).await.unwrap().unwrap();
        assert!(length > question.len() && packet[2] & 0x80 != 0);
        latencies.push(u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
    latencies
}

fn main() {
    let seconds = std::env::args().nth(1).map_or(10, |text| text.parse().expect("SECONDS"));
    let kinds = [
        ("A of a Service", "s77.default.svc.cluster.local.", RecordType::A),
        ("A of a headless Service", "headless.default.svc.cluster.local.", RecordType::A),
        ("SRV of a headless Service", "_http._tcp.headless.default.svc.cluster.local.", RecordType::SRV),
        ("missing name", "missing.default.svc.cluster.local.", RecordType::A),
    ];
    for (kind, name, record_type) in kinds {
        let (server, stop, thread) = serve();
        let mut message = Message::new(7, MessageType::Query, OpCode::Query);
        message.add_query(Query::query(Name::from_ascii(name).unwrap(), record_type));
        let question = message.to_vec().unwrap();
        let until = Instant::now() + Duration::from_secs(seconds) / u32::try_from(kinds.len()).unwrap();
        let begun = Instant::now();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut latencies: Vec<u32> = runtime.block_on(async {
            let clients: Vec<_> = (0..CLIENTS).map(|_| tokio::spawn(client(server, question.clone(), until))).collect();
            let mut all = Vec::new();
            for client in clients {
                all.extend(client.await.unwrap());
            }
            all
        });
        let elapsed = begun.elapsed();
        stop.send(()).unwrap();
        let used = thread.join().unwrap();
        latencies.sort_unstable();
        let count = latencies.len();
        println!(
            "{kind}: {:.0} queries/s, {:.1} µs of processor time each, p50 {} µs, p99 {} µs",
            count as f64 / elapsed.as_secs_f64(),
            used.as_secs_f64() * 1e6 / count as f64,
            latencies[count / 2],
            latencies[count * 99 / 100],
        );
    }
}
