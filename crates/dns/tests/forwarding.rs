//! Forwarding to played servers on loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hickory_proto::op::{Message, MessageType, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, CNAME, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Semaphore;

use crate::support::{self, ask, data, start};

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn address(owner: &Name, last: u8) -> Record {
    Record::from_rdata(owner.clone(), 3600, RData::A(A([192, 0, 2, last].into())))
}

/// A played server.
struct ScriptedServer {
    address: SocketAddr,
    queries: Arc<AtomicUsize>,
}

impl ScriptedServer {
    /// Sends each of the messages that `respond` returns for a query.
    async fn start(respond: impl Fn(Message) -> Vec<Message> + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (address, queries) = (socket.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let counted = queries.clone();
        tokio::spawn(async move {
            let mut packet = [0; 4096];
            loop {
                let (length, client) = socket.recv_from(&mut packet).await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                for message in respond(Message::from_vec(&packet[..length]).unwrap()) {
                    socket.send_to(&message.to_vec().unwrap(), client).await.unwrap();
                }
            }
        });
        Self { address, queries }
    }

    fn queries(&self) -> usize {
        self.queries.load(Ordering::SeqCst)
    }
}

/// A response with an address of the queried name.
fn response(query: &Message, last: u8) -> Message {
    let mut message = query.clone();
    message.edns = None;
    message.metadata.message_type = MessageType::Response;
    message.answers = vec![address(query.queries[0].name(), last)];
    message
}

fn empty() -> dns::zone::Zone {
    support::zone(include_str!("cases/objects.yaml"))
}

#[tokio::test]
async fn names_of_others_are_forwarded_and_kept() {
    let played = ScriptedServer::start(|query| vec![response(&query, 1)]).await;
    let running = start(empty(), vec![played.address]);
    for text in ["www.example.com.", "WWW.example.com."] {
        let response = ask(running.address, text, RecordType::A).await;
        assert_eq!(data(&response), ["A 192.0.2.1"]);
        assert_eq!(response.answers[0].name.to_string(), text);
        assert!(!response.metadata.authoritative && response.answers[0].ttl <= 30);
    }
    assert_eq!(played.queries(), 1);
    let metrics = running.registry.text();
    assert!(
        metrics.contains("coredns_cache_hits_total{server=\"dns://:53\",type=\"success\",zones=\".\",view=\"\"} 1"),
        "{metrics}"
    );
}

#[tokio::test]
async fn external_names_are_resolved() {
    let played = ScriptedServer::start(|query| vec![response(&query, 53)]).await;
    let running = start(empty(), vec![played.address]);
    let response = ask(running.address, "foo.default.svc.cluster.local.", RecordType::A).await;
    assert_eq!(data(&response), ["CNAME www.example.com.", "A 192.0.2.53"]);
    assert_eq!(response.answers[1].name, name("www.example.com."));
}

#[tokio::test]
async fn spoofed_responses_are_ignored() {
    let played = ScriptedServer::start(|query| {
        let mut other_id = response(&query, 66);
        other_id.metadata.id = query.metadata.id.wrapping_add(1);
        let mut other_question = response(&query, 66);
        other_question.queries = vec![Query::query(name("shop.example.com."), RecordType::A)];
        let mut no_response = response(&query, 66);
        no_response.metadata.message_type = MessageType::Query;
        let mut right = response(&query, 1);
        // Records that were not asked for.
        right.answers.push(address(&name("bank.example.com."), 66));
        vec![other_id, other_question, no_response, right]
    })
    .await;
    let running = start(empty(), vec![played.address]);
    assert_eq!(data(&ask(running.address, "www.example.com.", RecordType::A).await), ["A 192.0.2.1"]);
    // Nothing of them is kept.
    let asked = played.queries();
    ask(running.address, "bank.example.com.", RecordType::A).await;
    assert_eq!(played.queries(), asked + 1);
}

/// A forger may guess port and id, but not the case of every letter. What it sends leads to a connection, which it does not have.
#[tokio::test]
async fn responses_in_another_case_are_confirmed_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let socket = UdpSocket::bind(server).await.unwrap();
    let long = "abcdefghijklmnopqrstuvwxyz.abcdefghijklmnopqrstuvwxyz.example.";
    let played = tokio::spawn(async move {
        let mut packet = [0; 4096];
        let (length, client) = socket.recv_from(&mut packet).await.unwrap();
        let query = Message::from_vec(&packet[..length]).unwrap();
        let sent = query.queries[0].name().to_string();
        let mut forged = response(&query, 66);
        forged.queries = vec![Query::query(name(long), RecordType::A)];
        socket.send_to(&forged.to_vec().unwrap(), client).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let length = stream.read_u16().await.unwrap();
        let mut bytes = vec![0; usize::from(length)];
        stream.read_exact(&mut bytes).await.unwrap();
        let bytes = response(&Message::from_vec(&bytes).unwrap(), 1).to_vec().unwrap();
        stream.write_u16(u16::try_from(bytes.len()).unwrap()).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        sent
    });
    let running = start(empty(), vec![server]);
    let answer = ask(running.address, long, RecordType::A).await;
    assert_eq!(data(&answer), ["A 192.0.2.1"]);
    assert_eq!(answer.answers[0].name.to_string(), long);
    // 59 letters are all small with a probability of 2^-59.
    let sent = played.await.unwrap();
    assert!(sent != long && sent.eq_ignore_ascii_case(long), "{sent}");
}

/// Ports and ids of queries, each from a socket of its own.
#[tokio::test]
async fn ports_and_ids_of_queries_are_random() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let server = socket.local_addr().unwrap();
    let played = tokio::spawn(async move {
        let (mut packet, mut seen) = ([0; 4096], Vec::new());
        while seen.len() < 32 {
            let (length, client) = socket.recv_from(&mut packet).await.unwrap();
            let query = Message::from_vec(&packet[..length]).unwrap();
            seen.push((client.port(), query.metadata.id));
            socket.send_to(&response(&query, 1).to_vec().unwrap(), client).await.unwrap();
        }
        seen
    });
    let running = start(empty(), vec![server]);
    for number in 0..32 {
        ask(running.address, &format!("n{number}.example."), RecordType::A).await;
    }
    let seen = played.await.unwrap();
    let steps = |values: Vec<u16>| {
        let steps = values.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
        steps.collect::<std::collections::BTreeSet<u16>>().len()
    };
    // Counters would have few different steps; of 31 random ones, nearly all differ.
    let (ports, ids) = (steps(seen.iter().map(|it| it.0).collect()), steps(seen.iter().map(|it| it.1).collect()));
    assert!(ports > 20 && ids > 20, "{seen:?}");
}

#[tokio::test]
async fn packets_of_other_senders_are_ignored() {
    let other = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut packet = [0; 4096];
        let (length, client) = socket.recv_from(&mut packet).await.unwrap();
        let query = Message::from_vec(&packet[..length]).unwrap();
        other.send_to(&response(&query, 66).to_vec().unwrap(), client).await.unwrap();
        socket.send_to(&response(&query, 1).to_vec().unwrap(), client).await.unwrap();
    });
    let running = start(empty(), vec![address]);
    assert_eq!(data(&ask(running.address, "www.example.com.", RecordType::A).await), ["A 192.0.2.1"]);
}

#[tokio::test]
async fn next_server_is_used_if_one_fails() {
    let refusing = ScriptedServer::start(|query| {
        let mut refusal = response(&query, 66);
        refusal.answers.clear();
        refusal.metadata.response_code = ResponseCode::Refused;
        vec![refusal]
    })
    .await;
    let closed = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let working = ScriptedServer::start(|query| vec![response(&query, 1)]).await;
    let running = start(empty(), vec![refusing.address, closed, working.address]);
    assert_eq!(data(&ask(running.address, "a.example.", RecordType::A).await), ["A 192.0.2.1"]);
    // The one that answered is asked first from then on.
    assert_eq!(data(&ask(running.address, "b.example.", RecordType::A).await), ["A 192.0.2.1"]);
    assert_eq!((refusing.queries(), working.queries()), (1, 2));
}

#[tokio::test]
async fn without_a_working_server_names_fail() {
    let running = start(empty(), Vec::new());
    let response = ask(running.address, "www.example.com.", RecordType::A).await;
    assert_eq!(response.metadata.response_code, ResponseCode::ServFail);
    let closed = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let running = start(empty(), vec![closed]);
    let response = ask(running.address, "www.example.com.", RecordType::A).await;
    assert_eq!(response.metadata.response_code, ResponseCode::ServFail);
    // Names of the cluster do not depend on others.
    let own = ask(running.address, "kubernetes.default.svc.cluster.local.", RecordType::A).await;
    assert_eq!(data(&own), ["A 10.3.0.1"]);
}

#[tokio::test]
async fn silent_server_is_given_up() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let working = ScriptedServer::start(|query| vec![response(&query, 1)]).await;
    let running = start(empty(), vec![silent.local_addr().unwrap(), working.address]);
    assert_eq!(data(&ask(running.address, "www.example.com.", RecordType::A).await), ["A 192.0.2.1"]);
    assert_eq!(working.queries(), 1);
}

#[tokio::test]
async fn truncated_responses_are_requested_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let socket = UdpSocket::bind(listener.local_addr().unwrap()).await.unwrap();
    let server = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut packet = [0; 4096];
        let (length, client) = socket.recv_from(&mut packet).await.unwrap();
        let mut short = response(&Message::from_vec(&packet[..length]).unwrap(), 66);
        short.answers.clear();
        short.metadata.truncation = true;
        socket.send_to(&short.to_vec().unwrap(), client).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let length = stream.read_u16().await.unwrap();
        let mut bytes = vec![0; usize::from(length)];
        stream.read_exact(&mut bytes).await.unwrap();
        let query = Message::from_vec(&bytes).unwrap();
        let mut long = response(&query, 0);
        long.answers = (0..200).map(|last| address(query.queries[0].name(), last)).collect();
        let bytes = long.to_vec().unwrap();
        stream.write_u16(u16::try_from(bytes.len()).unwrap()).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
    });
    let running = start(empty(), vec![server]);
    let query = support::query(3, "www.example.com.", RecordType::A, None);
    let responses = support::over_tcp(running.address, std::slice::from_ref(&query)).await;
    assert_eq!(responses[0].answers.len(), 200);
    // Over UDP the answer is truncated, so that the client does the same.
    let response = ask(running.address, "www.example.com.", RecordType::A).await;
    assert!(response.metadata.truncation);
}

#[tokio::test]
async fn negative_answers_are_kept() {
    let played = ScriptedServer::start(|query| {
        let mut missing = response(&query, 1);
        missing.answers.clear();
        missing.metadata.response_code = ResponseCode::NXDomain;
        let start = RData::SOA(SOA::new(name("ns.example."), name("mail.example."), 1, 1, 1, 1, 600));
        missing.authorities = vec![Record::from_rdata(name("example."), 3600, start)];
        vec![missing]
    })
    .await;
    let running = start(empty(), vec![played.address]);
    for _ in 0..2 {
        let response = ask(running.address, "missing.example.", RecordType::A).await;
        assert_eq!(response.metadata.response_code, ResponseCode::NXDomain);
        assert_eq!(response.authorities.len(), 1);
    }
    assert_eq!(played.queries(), 1);
}

#[tokio::test]
async fn aliases_are_followed_in_a_response() {
    let played = ScriptedServer::start(|query| {
        let mut aliased = response(&query, 1);
        let target = name("target.example.");
        let alias = RData::CNAME(CNAME(target.clone()));
        aliased.answers = vec![Record::from_rdata(query.queries[0].name().clone(), 60, alias), address(&target, 9)];
        vec![aliased]
    })
    .await;
    let running = start(empty(), vec![played.address]);
    let response = ask(running.address, "www.example.", RecordType::A).await;
    assert_eq!(data(&response), ["CNAME target.example.", "A 192.0.2.9"]);
}

/// A played server that answers when permits are added.
async fn held() -> (SocketAddr, Arc<Semaphore>, Arc<AtomicUsize>) {
    let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let (address, gate) = (socket.local_addr().unwrap(), Arc::new(Semaphore::new(0)));
    let (held, queries) = (gate.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = queries.clone();
    tokio::spawn(async move {
        let mut packet = [0; 4096];
        loop {
            let (length, client) = socket.recv_from(&mut packet).await.unwrap();
            let message = response(&Message::from_vec(&packet[..length]).unwrap(), 1).to_vec().unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            let (socket, held) = (socket.clone(), held.clone());
            tokio::spawn(async move {
                let _permit = held.acquire().await.unwrap();
                socket.send_to(&message, client).await.unwrap();
            });
        }
    });
    (address, gate, queries)
}

#[tokio::test]
async fn equal_questions_share_one_query() {
    let (server, gate, queries) = held().await;
    let running = start(empty(), vec![server]);
    let messages: Vec<Message> = (0..10).map(|id| support::query(id, "www.example.", RecordType::A, None)).collect();
    let asked = tokio::spawn(async move { support::over_tcp(running.address, &messages).await });
    while queries.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    gate.add_permits(100);
    let responses = asked.await.unwrap();
    assert!(responses.iter().all(|response| data(response) == ["A 192.0.2.1"]));
    assert_eq!(queries.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn floods_are_refused_and_leave_names_of_the_cluster() {
    let (server, gate, queries) = held().await;
    let running = start(empty(), vec![server]);
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for id in 0..200_u16 {
        let query = support::query(id, &format!("n{id}.example."), RecordType::A, None);
        socket.send_to(&query.to_vec().unwrap(), running.address).await.unwrap();
    }
    let mut packet = [0; 4096];
    let length = tokio::time::timeout(support::PATIENCE, socket.recv(&mut packet)).await.unwrap().unwrap();
    assert_eq!(Message::from_vec(&packet[..length]).unwrap().metadata.response_code, ResponseCode::ServFail);
    assert!(!running.registry.text().contains("coredns_forward_max_concurrent_rejects_total 0"));
    assert!(queries.load(Ordering::SeqCst) <= 128);
    let own = ask(running.address, "kubernetes.default.svc.cluster.local.", RecordType::A).await;
    assert_eq!(data(&own), ["A 10.3.0.1"]);
    gate.add_permits(1000);
}
