//! Messages of any form: none makes the server panic, or answer more than it may.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use dns::answer::Answer;
use dns::forward::Forwarder;
use dns::message::{self, Reading};
use dns::metrics::{Metrics, Transport};
use dns::server::{Response, Server};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use locks::RwLock;
use proptest::prelude::*;
use telemetry::metrics::Registry;

use crate::support;

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

static SERVER: LazyLock<Arc<Server>> = LazyLock::new(|| {
    let metrics = Metrics::new(&Registry::new(), 53, "cluster.local");
    let zone = support::zone(include_str!("cases/objects.yaml"));
    Server::new(Arc::new(RwLock::new(zone)), Forwarder::new(Vec::new(), metrics.clone()), metrics)
});

/// Properties of every response.
fn check(bytes: &[u8]) {
    for transport in [Transport::Udp, Transport::Tcp] {
        let Response::Ready(response) = SERVER.respond(bytes, CLIENT, transport) else { continue };
        assert_eq!(response[..2], bytes[..2], "the id is that of the query");
        assert_eq!(response[2] & 0x80, 0x80, "it is a response");
        assert_eq!(bytes[2] & 0x80, 0, "responses are not answered");
        Message::from_vec(&response).unwrap();
        if transport == Transport::Udp {
            assert!(response.len() <= 1232);
        }
    }
}

fn names() -> impl Strategy<Value = String> {
    let known = [
        "kubernetes.default.svc.cluster.local.",
        "headless.default.svc.cluster.local.",
        "_https._tcp.headless.default.svc.cluster.local.",
        "foo.default.svc.cluster.local.",
        "10-1-2-3.default.pod.cluster.local.",
        "100.0.3.10.in-addr.arpa.",
        "www.example.com.",
        ".",
    ];
    prop::sample::select(known.to_vec()).prop_map(ToOwned::to_owned)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_are_answered_or_ignored(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        check(&bytes);
    }

    #[test]
    fn random_bytes_behind_a_header_are_answered(
        id in any::<u16>(), counts in prop::array::uniform4(0_u8..3), rest in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let [questions, answers, authorities, additionals] = counts;
        let mut bytes = id.to_be_bytes().to_vec();
        bytes.extend([1, 0, 0, questions, 0, answers, 0, authorities, 0, additionals]);
        bytes.extend(rest);
        check(&bytes);
    }

    #[test]
    fn mutated_queries_are_answered_or_ignored(
        name in names(), record_type in any::<u16>(), payload in prop::option::of(any::<u16>()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6), cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let mut bytes = support::query(9, &name, RecordType::from(record_type), payload).to_vec().unwrap();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if is_cut {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        check(&bytes);
    }

    #[test]
    fn responses_fit_into_every_limit(count in 0_usize..300, limit in 512_u16..4096, has_edns in any::<bool>()) {
        let name = "headless.default.svc.cluster.local.";
        let query = support::query(3, name, RecordType::A, has_edns.then_some(limit)).to_vec().unwrap();
        let Reading::Query(query) = message::read(&query) else { panic!("a query") };
        let record = || Record::from_rdata(Name::from_ascii(name).unwrap(), 5, RData::A(A([192, 0, 2, 1].into())));
        let answers = (0..count).map(|_| record()).collect();
        let additionals = vec![record()];
        let answer = Answer { answers, additionals, ..Answer::empty(ResponseCode::NoError) };
        let bytes = message::write(&query, answer, limit);
        prop_assert!(bytes.len() <= usize::from(limit));
        let response = Message::from_vec(&bytes).unwrap();
        prop_assert_eq!(response.edns.is_some(), has_edns);
        prop_assert_eq!(response.metadata.truncation, response.answers.len() < count);
        // The codec writes the names of the first 120 records as references; the others take 50 bytes.
        let written = response.answers.len();
        let room = usize::from(limit) - written * 16 - written.saturating_sub(118) * 34;
        prop_assert!(written == count || room < 12 + 36 + 4 + 11 + 50, "{} of {} bytes left", room, limit);
    }
}

#[track_caller]
fn check_code(bytes: &[u8], code: ResponseCode) {
    let Response::Ready(response) = SERVER.respond(bytes, CLIENT, Transport::Udp) else { panic!("no answer") };
    // BADVERS and BADSIG have the same number.
    assert_eq!(u16::from(Message::from_vec(&response).unwrap().metadata.response_code), u16::from(code));
}

#[test]
fn unsupported_queries_are_refused() {
    let name = "kubernetes.default.svc.cluster.local.";
    let plain = || support::query(1, name, RecordType::A, None).to_vec().unwrap();
    check_code(&plain(), ResponseCode::NoError);
    let with = |at: usize, byte: u8| {
        let mut bytes = plain();
        bytes[at] = byte;
        bytes
    };
    // Opcode, two questions, an answer in the query, the class CHAOS.
    check_code(&with(2, 0x29), ResponseCode::NotImp);
    check_code(&with(5, 2), ResponseCode::FormErr);
    check_code(&with(7, 1), ResponseCode::FormErr);
    let last = plain().len() - 1;
    check_code(&with(last, 3), ResponseCode::Refused);
    for record_type in [RecordType::AXFR, RecordType::IXFR, RecordType::TSIG] {
        check_code(&support::query(1, name, record_type, None).to_vec().unwrap(), ResponseCode::Refused);
    }
    let mut message = support::query(1, name, RecordType::A, Some(1232));
    message.edns.as_mut().unwrap().set_version(1);
    check_code(&message.to_vec().unwrap(), ResponseCode::BADVERS);
    // A query without a server to forward to, and one that does not want that.
    let outside = support::query(1, "www.example.com.", RecordType::ANY, None);
    check_code(&outside.to_vec().unwrap(), ResponseCode::NoError);
    let mut outside = support::query(1, "www.example.com.", RecordType::A, None);
    outside.metadata.recursion_desired = false;
    check_code(&outside.to_vec().unwrap(), ResponseCode::Refused);
}

#[test]
fn responses_and_fragments_are_ignored() {
    let mut bytes = support::query(1, "a.", RecordType::A, None).to_vec().unwrap();
    bytes[2] |= 0x80;
    for bytes in [bytes.as_slice(), &[], &[0; 11]] {
        assert!(matches!(SERVER.respond(bytes, CLIENT, Transport::Udp), Response::Nothing));
    }
}
