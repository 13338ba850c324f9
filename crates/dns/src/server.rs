//! Answers to queries, independent of the transport.

mod tcp;
mod udp;

use locks::RwLock;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::HINFO;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::task::JoinSet;

use crate::answer::Answer;
use crate::cache::Key;
use crate::forward::Forwarder;
use crate::listen::Sockets;
use crate::message::{self, Query, Reading};
use crate::metrics::{Metrics, Request, Source, Transport};
use crate::zone::{LookupResult, Zone};

/// Bytes of an address record whose name is a reference to the question: no answer has more records than fit.
const RECORD_BYTES_MIN: usize = 16;
/// Tasks that answer datagrams.
const UDP_TASKS: usize = 2;
/// TTL of the minimal answer to ANY.
const ANY_TTL: u32 = 30;

/// The response to a message.
pub enum Response {
    /// None.
    Nothing,
    /// Bytes that can be sent at once.
    Ready(Vec<u8>),
    /// Bytes that depend on another server.
    Later(Pin<Box<dyn Future<Output = Vec<u8>> + Send>>),
}

/// The server's state.
pub struct Server {
    zone: Arc<RwLock<Zone>>,
    forwarder: Arc<Forwarder>,
    metrics: Arc<Metrics>,
}

impl Server {
    /// A server of a zone that forwards other names.
    #[must_use]
    pub fn new(zone: Arc<RwLock<Zone>>, forwarder: Arc<Forwarder>, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { zone, forwarder, metrics })
    }

    /// Answers a message of a client. Bounded by the size of the message and of the answer; it does not wait.
    #[must_use]
    pub fn respond(self: &Arc<Self>, bytes: &[u8], client: IpAddr, transport: Transport) -> Response {
        let mut request = Request { client, transport, record_type: None, bytes: bytes.len(), started: Instant::now() };
        let query = match message::read(bytes) {
            Reading::Query(query) => query,
            Reading::Refused(response, code) => {
                self.metrics.answered(&request, Source::Refusal, code, response.len());
                return Response::Ready(response);
            }
            Reading::Ignored => return Response::Nothing,
        };
        let (name, record_type) = (query.question.name(), query.question.query_type());
        request.record_type = Some(record_type);
        let limit = match transport {
            Transport::Udp => query.udp_limit(),
            Transport::Tcp => u16::MAX,
        };
        let exchange = Exchange { server: self.clone(), request, limit };
        let records_max = usize::from(limit).checked_div(RECORD_BYTES_MIN).unwrap_or_default();
        let found = self.zone.read().lookup(name, record_type, records_max);
        match found {
            LookupResult::Answer(answer) => exchange.ready(&query, answer, Source::Zone),
            LookupResult::Alias(answer, target) => exchange.forward(query, target, Some(answer)),
            LookupResult::Outside => {
                let name = name.clone();
                exchange.forward(query, name, None)
            }
        }
    }
}

/// Serves a port until the future is dropped.
pub async fn serve(sockets: Sockets, server: Arc<Server>) {
    let mut tasks = JoinSet::new();
    for _ in 0..UDP_TASKS {
        tasks.spawn(udp::serve(sockets.udp.clone(), sockets.clients.clone(), server.clone()));
    }
    tasks.spawn(tcp::serve(sockets.tcp, sockets.clients, server));
    // None of them ends by itself, and all of them end with the set.
    tasks.join_all().await;
}

/// A query that is being answered.
struct Exchange {
    server: Arc<Server>,
    request: Request,
    limit: u16,
}

impl Exchange {
    fn write(&self, query: &Query, answer: Answer, source: Source) -> Vec<u8> {
        let code = answer.code;
        let bytes = message::write(query, answer, self.limit);
        self.server.metrics.answered(&self.request, source, code, bytes.len());
        bytes
    }

    fn ready(&self, query: &Query, answer: Answer, source: Source) -> Response {
        Response::Ready(self.write(query, answer, source))
    }

    /// Resolves a name outside of the zone: that of the question, or one to which the `start` of the answer leads.
    fn forward(self, query: Box<Query>, name: Name, start: Option<Answer>) -> Response {
        let record_type = query.question.query_type();
        if record_type == RecordType::ANY {
            // RFC 8482, as for names of the zone.
            let data = RData::HINFO(HINFO::new("RFC8482".to_owned(), String::new()));
            let answers = vec![Record::from_rdata(name, ANY_TTL, data)];
            return self.ready(&query, Answer { answers, ..Answer::empty(ResponseCode::NoError) }, Source::Refusal);
        }
        let key = Key {
            name: name.to_lowercase(),
            record_type,
            dnssec_ok: query.edns.is_some_and(|edns| edns.dnssec_ok),
            checking_disabled: query.checking_disabled(),
        };
        let forwarder = self.server.forwarder.clone();
        if !query.recursion_desired() || forwarder.is_probe(&key) {
            let answer = start.unwrap_or_else(|| Answer::empty(ResponseCode::Refused));
            return self.ready(&query, answer, Source::Refusal);
        }
        let source = if start.is_some() { Source::Zone } else { Source::Forward };
        let cached = forwarder.cache().get(&key);
        self.server.metrics.cached(cached.as_ref().map(|answer| answer.code));
        if let Some(answer) = cached {
            return self.ready(&query, joined(start, answer, query.question.name()), source);
        }
        let Some(waiting) = forwarder.enter(self.request.client) else {
            return self.ready(&query, Answer::empty(ResponseCode::ServFail), source);
        };
        Response::Later(Box::pin(async move {
            let answer = forwarder.resolve(key, waiting).await;
            let answer = joined(start, Answer::clone(&answer), query.question.name());
            self.write(&query, answer, source)
        }))
    }
}

/// Appends an answer to its start. The owner of the first records is written as in the question, which keeps its case.
fn joined(start: Option<Answer>, mut rest: Answer, name: &Name) -> Answer {
    match start {
        Some(mut answer) => {
            // RFC 6604: the code is that of the last name.
            answer.code = rest.code;
            answer.is_truncated |= rest.is_truncated;
            answer.answers.append(&mut rest.answers);
            answer.authorities = rest.authorities;
            answer
        }
        None => {
            for record in rest.answers.iter_mut().filter(|record| record.name == *name) {
                record.name.clone_from(name);
            }
            rest
        }
    }
}
