//! Acceptance of responses: only those to the question that was sent, and of them only the records that answer it.

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

use crate::answer::Answer;
use crate::cache::{Key, TTL_MAX};

/// Names that are followed in one response.
const ALIASES_MAX: usize = 16;

/// Whether a message is the response to the query with this id and question.
pub(crate) fn is_response(message: &Message, id: u16, key: &Key) -> bool {
    let metadata = &message.metadata;
    let [question] = message.queries.as_slice() else { return false };
    metadata.id == id
        && metadata.message_type == MessageType::Response
        && metadata.op_code == OpCode::Query
        && question.query_class() == DNSClass::IN
        && question.query_type() == key.record_type
        && *question.name() == key.name
}

/// The records of a response that answer the question: those of its name, and of the names to which it leads. Other records may be
/// forged, and are dropped.
pub(crate) fn relevant(message: Message, key: &Key) -> Answer {
    let Message { metadata, answers, authorities, .. } = message;
    let mut answer = Answer { is_authentic: metadata.authentic_data, ..Answer::empty(metadata.response_code) };
    let mut owner = key.name.clone();
    for _ in 0..ALIASES_MAX {
        let mut next = None;
        for record in answers.iter().filter(|record| record.dns_class == DNSClass::IN && record.name == owner) {
            match &record.data {
                RData::CNAME(target) if key.record_type != RecordType::CNAME => next = Some(target.0.clone()),
                _ if record.record_type() == key.record_type => {}
                _ if key.dnssec_ok && record.record_type() == RecordType::RRSIG => {}
                _ => continue,
            }
            answer.answers.push(accepted(record, &key.name));
        }
        match next.filter(|next| *next != owner) {
            Some(next) => owner = next,
            None => break,
        }
    }
    let has_final = answer.answers.iter().any(|record| record.record_type() == key.record_type);
    if !has_final {
        let is_proof = |record: &&Record| match record.record_type() {
            RecordType::SOA => is_above(&record.name, &owner),
            RecordType::NSEC | RecordType::NSEC3 | RecordType::RRSIG => key.dnssec_ok,
            _ => false,
        };
        answer.authorities = authorities.iter().filter(is_proof).map(|record| accepted(record, &key.name)).collect();
    }
    if !matches!(answer.code, ResponseCode::NoError | ResponseCode::NXDomain) {
        return Answer::empty(answer.code);
    }
    answer
}

/// The record with a bounded TTL, and without the random case of the question: names that end like it refer to it in the message.
fn accepted(record: &Record, question: &Name) -> Record {
    let mut record = record.clone();
    record.ttl = record.ttl.min(TTL_MAX);
    record.name = restored(&record.name, question);
    match &mut record.data {
        RData::CNAME(target) => target.0 = restored(&target.0, question),
        RData::NS(target) => target.0 = restored(&target.0, question),
        RData::PTR(target) => target.0 = restored(&target.0, question),
        RData::MX(exchanger) => exchanger.exchange = restored(&exchanger.exchange, question),
        RData::SRV(service) => service.target = restored(&service.target, question),
        _ => {}
    }
    record
}

/// The name with the labels of the question where both end alike.
fn restored(name: &Name, question: &Name) -> Name {
    let ends = name.iter().rev().zip(question.iter().rev());
    let shared = ends.take_while(|(one, other)| one.eq_ignore_ascii_case(other)).count();
    let own = name.iter().take(name.iter().len().saturating_sub(shared));
    let labels = own.chain(question.iter().skip(question.iter().len().saturating_sub(shared)));
    Name::from_labels(labels).unwrap_or_else(|_| name.clone())
}

/// Whether `name` is `below` or a part of its end.
fn is_above(name: &Name, below: &Name) -> bool {
    name.zone_of(below)
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::Query;
    use hickory_proto::rr::rdata::{A, CNAME, NS, SOA};

    use super::*;

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    fn key() -> Key {
        Key { name: name("www.example."), record_type: RecordType::A, dnssec_ok: false, checking_disabled: false }
    }

    fn response(answers: Vec<Record>) -> Message {
        let mut message = Message::new(7, MessageType::Response, OpCode::Query);
        message.queries = vec![Query::query(name("WWW.example."), RecordType::A)];
        message.answers = answers;
        message
    }

    fn address(owner: &str) -> Record {
        Record::from_rdata(name(owner), 3600, RData::A(A([192, 0, 2, 1].into())))
    }

    fn alias(owner: &str, target: &str) -> Record {
        Record::from_rdata(name(owner), 3600, RData::CNAME(CNAME(name(target))))
    }

    #[test]
    fn responses_to_other_questions_are_not_accepted() {
        let message = response(Vec::new());
        assert!(is_response(&message, 7, &key()));
        assert!(!is_response(&message, 8, &key()));
        assert!(!is_response(&message, 7, &Key { name: name("other.example."), ..key() }));
        assert!(!is_response(&message, 7, &Key { record_type: RecordType::AAAA, ..key() }));
        let mut query = message.clone();
        query.metadata.message_type = MessageType::Query;
        assert!(!is_response(&query, 7, &key()));
        let mut two = message;
        two.queries.push(Query::query(name("x."), RecordType::A));
        assert!(!is_response(&two, 7, &key()));
    }

    #[test]
    fn only_records_that_answer_the_question_are_taken() {
        let records = vec![
            address("bank.example."),
            address("target.example."),
            alias("www.example.", "target.example."),
            Record::from_rdata(name("www.example."), 60, RData::NS(NS(name("ns.attacker.")))),
        ];
        let mut message = response(records);
        message.additionals = vec![address("bank.example.")];
        message.authorities = vec![Record::from_rdata(name("example."), 60, RData::NS(NS(name("ns.attacker."))))];
        let answer = relevant(message, &key());
        assert_eq!(
            answer.answers.iter().map(|it| it.name.to_string()).collect::<Vec<_>>(),
            ["www.example.", "target.example."]
        );
        assert!(answer.answers.iter().all(|record| record.ttl == TTL_MAX));
        assert!(answer.authorities.is_empty() && answer.additionals.is_empty());
    }

    #[test]
    fn case_of_the_question_is_restored() {
        let records = vec![alias("wWw.EXample.", "Target.EXample."), address("Target.EXample.")];
        let answer = relevant(response(records), &key());
        let texts: Vec<String> = answer.answers.iter().map(|it| format!("{} {}", it.name, it.data)).collect();
        assert_eq!(texts, ["www.example. Target.example.", "Target.example. 192.0.2.1"]);
    }

    #[test]
    fn aliases_in_a_circle_end() {
        let circle = vec![alias("www.example.", "a.example."), alias("a.example.", "www.example.")];
        assert_eq!(relevant(response(circle), &key()).answers.len(), ALIASES_MAX);
    }

    #[test]
    fn start_of_authority_must_be_above_the_name() {
        let start = |owner: &str| {
            let data = RData::SOA(SOA::new(name("ns."), name("mail."), 1, 1, 1, 1, 60));
            Record::from_rdata(name(owner), 60, data)
        };
        let mut message = response(Vec::new());
        message.metadata.response_code = ResponseCode::NXDomain;
        message.authorities = vec![start("example."), start("attacker.")];
        let answer = relevant(message, &key());
        let mut expected = start("example.");
        expected.ttl = TTL_MAX;
        assert_eq!(answer.authorities, [expected]);
    }
}
