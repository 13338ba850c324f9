//! The server on loopback: UDP, TCP, limits, and `dig` as a client.

use std::process::Command;

use dns::zone::Zone;
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{self, PATIENCE, ask, data, over_tcp, query, send, start};

const HEADLESS: &str = "headless.default.svc.cluster.local.";

fn sample() -> Zone {
    support::zone(include_str!("cases/objects.yaml"))
}

/// A headless Service with this many endpoints.
fn large(count: u32) -> Zone {
    let address = |number: u32| format!("{{addresses: [10.9.{}.{}]}}", number / 250, number % 250 + 1);
    let addresses: Vec<String> = (0..count).map(address).collect();
    support::zone(&format!(
        "{{kind: Namespace, metadata: {{name: default}}}}\n---\n\
         {{kind: Service, metadata: {{name: headless, namespace: default}}, spec: {{clusterIP: None}}}}\n---\n\
         {{kind: EndpointSlice, metadata: {{name: h, namespace: default, labels: {{kubernetes.io/service-name: headless}}}}, \
         endpoints: [{}]}}",
        addresses.join(", "),
    ))
}

#[tokio::test]
async fn answers_are_served_over_udp_and_tcp() {
    let running = start(sample(), Vec::new());
    let name = "KUBERNETES.default.svc.cluster.local.";
    let response = ask(running.address, name, RecordType::A).await;
    assert_eq!(data(&response), ["A 10.3.0.1"]);
    assert_eq!(response.answers[0].name.to_string(), name);
    assert!(response.metadata.authoritative && response.metadata.recursion_available);
    // Several queries on one connection.
    let messages = [1, 2, 3].map(|id| query(id, name, RecordType::A, None));
    let responses = over_tcp(running.address, &messages).await;
    assert_eq!(responses.iter().map(|it| it.metadata.id).collect::<Vec<_>>(), [1, 2, 3]);
    let metrics = running.registry.text();
    let line = "coredns_dns_requests_total{server=\"dns://:53\",zone=\"cluster.local.\",view=\"\",proto=\"tcp\",family=\"1\",type=\"A\"} 3";
    assert!(metrics.contains(line), "{metrics}");
    assert!(metrics.contains("rcode=\"NOERROR\",plugin=\"kubernetes\"} 4"), "{metrics}");
}

#[tokio::test]
async fn queries_of_other_networks_are_ignored() {
    let sockets = dns::Sockets::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let sockets = sockets.only_for(|address| address == std::net::Ipv4Addr::new(127, 0, 0, 2));
    let running = support::start_on(sockets, sample(), Vec::new());
    let bytes = query(5, HEADLESS, RecordType::A, None).to_vec().unwrap();
    let client = async |address: &str| {
        let socket = tokio::net::UdpSocket::bind((address, 0)).await.unwrap();
        socket.send_to(&bytes, running.address).await.unwrap();
        socket
    };
    let (other, allowed) = (client("127.0.0.1").await, client("127.0.0.2").await);
    let mut packet = [0; 512];
    assert!(tokio::time::timeout(PATIENCE, allowed.recv(&mut packet)).await.unwrap().unwrap() > 12);
    // A connection of another network ends without an answer.
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let read = tokio::time::timeout(PATIENCE, stream.read(&mut packet)).await.unwrap();
    assert!(!matches!(read, Ok(1..)), "{read:?}");
    assert!(other.try_recv(&mut packet).is_err());
    let metrics = running.registry.text();
    assert!(metrics.contains("proto=\"udp\",family=\"1\",type=\"A\"} 1\n"), "{metrics}");
}

#[tokio::test]
async fn large_answers_are_truncated_over_udp() {
    let running = start(large(1000), Vec::new());
    let sizes = async |payload: Option<u16>| {
        let bytes = send(running.address, &query(5, HEADLESS, RecordType::A, payload).to_vec().unwrap()).await;
        let message = Message::from_vec(&bytes).unwrap();
        assert!(message.metadata.truncation && !message.answers.is_empty());
        bytes.len()
    };
    assert!(sizes(None).await <= 512);
    assert!(sizes(Some(800)).await <= 800);
    // At most 16 times the query, so that a forged sender receives little.
    let query_bytes = query(5, HEADLESS, RecordType::A, Some(65_535)).to_vec().unwrap().len();
    let size = sizes(Some(65_535)).await;
    assert!(size > 800 && size <= 16 * query_bytes && 16 * query_bytes < 1232, "{size} for {query_bytes}");
    let responses = over_tcp(running.address, &[query(5, HEADLESS, RecordType::A, None)]).await;
    assert_eq!((responses[0].answers.len(), responses[0].metadata.truncation), (1000, false));
}

#[tokio::test]
async fn answers_over_tcp_fit_into_a_message() {
    let running = start(large(5000), Vec::new());
    let responses = over_tcp(running.address, &[query(5, HEADLESS, RecordType::A, None)]).await;
    assert!(responses[0].metadata.truncation && responses[0].answers.len() > 1300);
}

#[tokio::test]
async fn connections_with_long_messages_are_closed() {
    let running = start(sample(), Vec::new());
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(&[0xff, 0xff, 1, 2, 3]).await.unwrap();
    let mut rest = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap();
    assert!(read.is_err() || rest.is_empty());
    // Others are served.
    assert_eq!(ask(running.address, HEADLESS, RecordType::A).await.answers.len(), 3);
}

#[tokio::test]
async fn connections_of_one_client_are_bounded() {
    let running = start(sample(), Vec::new());
    let mut streams = Vec::new();
    for _ in 0..40 {
        streams.push(TcpStream::connect(running.address).await.unwrap());
    }
    let bytes = query(4, HEADLESS, RecordType::A, None).to_vec().unwrap();
    let message = [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes.as_slice()].concat();
    let mut served = 0;
    for mut stream in streams {
        let exchange = async {
            stream.write_all(&message).await?;
            stream.read_u16().await
        };
        served += u32::from(tokio::time::timeout(PATIENCE, exchange).await.unwrap().is_ok());
    }
    assert_eq!(served, 32);
    // The port is free again after the connections have ended.
    assert_eq!(over_tcp(running.address, &[query(5, HEADLESS, RecordType::A, None)]).await.len(), 1);
}

#[tokio::test]
async fn garbage_does_not_stop_the_server() {
    let running = start(sample(), Vec::new());
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for length in [0, 1, 11, 12, 13, 600, 5000] {
        socket.send_to(&vec![0x5a; length], running.address).await.unwrap();
    }
    assert_eq!(ask(running.address, HEADLESS, RecordType::A).await.metadata.response_code, ResponseCode::NoError);
}

#[tokio::test]
async fn port_can_be_used_again_after_a_restart() {
    let running = start(sample(), Vec::new());
    let address = running.address;
    over_tcp(address, &[query(1, HEADLESS, RecordType::A, None)]).await;
    drop(running);
    let bound = async {
        // The tasks that hold the sockets end a moment after they are aborted.
        loop {
            if let Ok(sockets) = dns::Sockets::bind(address) {
                return sockets;
            }
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, bound).await.unwrap().address(), address);
}

#[test]
fn addresses_that_do_not_exist_yet_can_be_bound() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // TEST-NET-1: no machine has it.
    let bound = runtime.block_on(async { dns::Sockets::bind("192.0.2.1:0".parse().unwrap()) });
    assert!(bound.unwrap().address().port() > 0);
}

/// The messages as other programs decode them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dig_reads_the_answers() {
    let running = start(sample(), Vec::new());
    let port = running.address.port().to_string();
    let dig = async |arguments: &'static [&'static str]| {
        let port = port.clone();
        let run = move || {
            Command::new("dig").args(["@127.0.0.1", "-p", &port, "+tries=1", "+short"]).args(arguments).output()
        };
        tokio::task::spawn_blocking(run).await.unwrap()
    };
    let output = match dig(&["kubernetes.default.svc.cluster.local"]).await {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: dig cannot be run: {error}");
            return;
        }
    };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "10.3.0.1\n");
    let srv = dig(&["_https._tcp.kubernetes.default.svc.cluster.local", "SRV", "+tcp"]).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&srv.stdout), "0 100 443 kubernetes.default.svc.cluster.local.\n");
    let reverse = dig(&["-x", "10.3.0.1"]).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&reverse.stdout), "kubernetes.default.svc.cluster.local.\n");
    let version = dig(&["dns-version.cluster.local", "TXT", "+bufsize=4096", "+dnssec"]).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&version.stdout), "\"1.1.0\"\n");
}
