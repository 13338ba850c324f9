//! Reading of queries and writing of responses, with their limits.
//!
//! The header is checked before the message is decoded, so that the counts in it allocate nothing. Responses are not answered, which
//! would let two servers answer each other forever.

use hickory_proto::op::{Message, MessageType, Metadata, OpCode, Query as Question, ResponseCode};
use hickory_proto::rr::{DNSClass, RecordType};
use hickory_proto::serialize::binary::{BinEncodable as _, BinEncoder};

use crate::answer::Answer;

/// Bytes of a query. A question has at most 271; the rest is for EDNS options.
pub const QUERY_BYTES_MAX: usize = 4096;
/// Bytes of a response over UDP that a client can request: larger packets are fragmented, and fragments can be forged.
pub const UDP_BYTES_MAX: u16 = 1232;
/// Bytes of a response over UDP to clients without EDNS.
pub const UDP_BYTES_PLAIN: u16 = 512;
/// Bytes of a response over UDP for each byte of the query: a forged sender receives little. At least [`UDP_BYTES_PLAIN`] are allowed.
const AMPLIFICATION_MAX: usize = 16;
/// Records in the additional section of a query: EDNS and a signature.
const ADDITIONALS_MAX: u16 = 2;
const HEADER_BYTES: usize = 12;
/// Bytes of the longest name.
const NAME_BYTES_MAX: u16 = 255;
/// The flag TC in the third byte of the header.
const TRUNCATED: u8 = 0x02;
/// Bytes of an OPT record without options.
const OPT_BYTES: u16 = 11;

/// EDNS fields of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edns {
    /// Size of responses that the client can receive over UDP.
    pub payload: u16,
    /// Whether the client requests DNSSEC records.
    pub dnssec_ok: bool,
}

/// A query that can be answered.
#[derive(Debug, Clone)]
pub struct Query {
    /// The question.
    pub question: Question,
    /// EDNS fields, if the query has them.
    pub edns: Option<Edns>,
    metadata: Metadata,
    size: usize,
}

/// The result of reading a query.
#[derive(Debug)]
pub enum Reading {
    /// A query.
    Query(Box<Query>),
    /// A message that is answered with this error.
    Refused(Vec<u8>, ResponseCode),
    /// A message that is not answered.
    Ignored,
}

impl Query {
    /// Whether the client requests names of other servers.
    #[must_use]
    pub fn recursion_desired(&self) -> bool {
        self.metadata.recursion_desired
    }

    /// Whether the client disables validation.
    #[must_use]
    pub fn checking_disabled(&self) -> bool {
        self.metadata.checking_disabled
    }

    /// Whether the client understands that records are verified.
    #[must_use]
    pub fn wants_authentic(&self) -> bool {
        self.metadata.authentic_data || self.edns.is_some_and(|edns| edns.dnssec_ok)
    }

    /// Maximum size of a response over UDP.
    #[must_use]
    pub fn udp_limit(&self) -> u16 {
        let requested = self.edns.map_or(UDP_BYTES_PLAIN, |edns| edns.payload);
        let earned = u16::try_from(self.size.saturating_mul(AMPLIFICATION_MAX)).unwrap_or(UDP_BYTES_MAX);
        requested.min(earned).clamp(UDP_BYTES_PLAIN, UDP_BYTES_MAX)
    }
}

/// A response that consists of a header.
fn refusal(id: [u8; 2], flags: u8, code: ResponseCode) -> Reading {
    // The opcode and the flag RD are those of the query.
    let [high, low] = id;
    let mut bytes = vec![high, low, 0x80 | (flags & 0x79), 0x80 | code.low()];
    bytes.resize(HEADER_BYTES, 0);
    Reading::Refused(bytes, code)
}

/// Decodes a message. The codec logs malformed parts, which must not let others fill the log.
pub(crate) fn decode(bytes: &[u8]) -> Option<Message> {
    tracing::dispatcher::with_default(&tracing::Dispatch::none(), || Message::from_vec(bytes).ok())
}

/// Reads a message of a client.
#[must_use]
pub fn read(bytes: &[u8]) -> Reading {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Reading::Ignored };
    let [high, low, flags, _, q1, q2, an1, an2, ns1, ns2, ar1, ar2] = *header;
    let (is_response, operation) = (flags & 0x80 != 0, (flags >> 3) & 0x0f);
    if is_response {
        return Reading::Ignored;
    }
    let refuse = |code| refusal([high, low], flags, code);
    if operation != 0 {
        return refuse(ResponseCode::NotImp);
    }
    let has_records = [an1, an2, ns1, ns2] != [0; 4] || u16::from_be_bytes([ar1, ar2]) > ADDITIONALS_MAX;
    if u16::from_be_bytes([q1, q2]) != 1 || has_records || bytes.len() > QUERY_BYTES_MAX {
        return refuse(ResponseCode::FormErr);
    }
    let Some(message) = decode(bytes) else { return refuse(ResponseCode::FormErr) };
    let Message { metadata, queries, edns, .. } = message;
    let Some(question) = queries.into_iter().next() else { return refuse(ResponseCode::FormErr) };
    let version = edns.as_ref().map_or(0, |edns| edns.version());
    let edns = edns.map(|edns| Edns { payload: edns.max_payload(), dnssec_ok: edns.flags().dnssec_ok });
    let query = Query { question, edns, metadata, size: bytes.len() };
    let reject = |code| Reading::Refused(write(&query, Answer::empty(code), UDP_BYTES_PLAIN), code);
    if version != 0 {
        return reject(ResponseCode::BADVERS);
    }
    if query.question.query_class() != DNSClass::IN {
        return reject(ResponseCode::Refused);
    }
    match u16::from(query.question.query_type()) {
        41 | 0 => reject(ResponseCode::FormErr),
        // RFC 6895: types that are not of data, such as zone transfers. ANY is answered minimally.
        128..=254 => reject(ResponseCode::Refused),
        _ => Reading::Query(Box::new(query)),
    }
}

/// Writes a response of at most `limit` bytes. Records that do not fit are left out: additional ones silently, others with the
/// flag TC.
#[must_use]
pub fn write(query: &Query, answer: Answer, limit: u16) -> Vec<u8> {
    let mut message = Message::new(query.metadata.id, MessageType::Response, OpCode::Query);
    message.metadata.authoritative = answer.is_authoritative;
    message.metadata.recursion_desired = query.metadata.recursion_desired;
    message.metadata.recursion_available = true;
    message.metadata.authentic_data = answer.is_authentic && query.wants_authentic();
    message.metadata.checking_disabled = query.metadata.checking_disabled;
    // The high bits are in the OPT record.
    message.metadata.response_code = ResponseCode::from(0, answer.code.low());
    message.queries = vec![query.question.clone()];
    message.answers = answer.answers;
    message.authorities = answer.authorities;
    message.additionals = answer.additionals;
    let room = limit.saturating_sub(query.edns.map_or(0, |_| OPT_BYTES));
    let mut whole = encode(&message, room);
    if whole.is_none() {
        message.additionals.clear();
        whole = encode(&message, room);
    }
    let is_truncated = answer.is_truncated || whole.is_none();
    let mut bytes = whole.unwrap_or_else(|| encode_part(&mut message, room));
    if let Some(flags) = bytes.get_mut(2).filter(|_| is_truncated) {
        *flags |= TRUNCATED;
    }
    if let Some(edns) = query.edns {
        append_opt(&mut bytes, edns, answer.code);
    }
    bytes
}

/// Encodes a message; `None` if it takes more than `room` bytes, or has a record that cannot be written.
fn encode(message: &Message, room: u16) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(512);
    let mut encoder = BinEncoder::new(&mut bytes);
    // The codec writes a name in full before it replaces it by a reference.
    encoder.set_max_size(room.saturating_add(NAME_BYTES_MAX));
    message.emit(&mut encoder).ok()?;
    // The codec leaves records out that do not fit, and sets the flag.
    let is_whole = bytes.get(2).is_some_and(|flags| flags & TRUNCATED == 0) && bytes.len() <= usize::from(room);
    is_whole.then_some(bytes)
}

/// Encodes the question and as many answers as fit. All of them are written, then the message is cut behind the last one that fits:
/// references in names only lead backwards. Work is bounded by the longest message, regardless of the number of answers.
fn encode_part(message: &mut Message, room: u16) -> Vec<u8> {
    message.authorities.clear();
    let mut bytes = Vec::with_capacity(512);
    let mut encoder = BinEncoder::new(&mut bytes);
    encoder.set_max_size(u16::MAX);
    // The codec leaves records out that do not fit.
    let cut = message.emit(&mut encoder).ok().and_then(|()| cut_position(&bytes, room));
    let Some((end, count)) = cut else {
        message.answers.clear();
        return encode(message, room).unwrap_or_default();
    };
    bytes.truncate(end);
    if let Some(counts) = bytes.get_mut(6..12) {
        let [high, low] = count.to_be_bytes();
        counts.copy_from_slice(&[high, low, 0, 0, 0, 0]);
    }
    bytes
}

/// The end of the last answer that fits, and the number of answers before it.
fn cut_position(bytes: &[u8], room: u16) -> Option<(usize, u16)> {
    let number = |at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    // Type and class of the question.
    let mut end = name_end(bytes, HEADER_BYTES)?.checked_add(4)?;
    let mut count = 0_u16;
    while count < number(6)? {
        let data = name_end(bytes, end)?.checked_add(10)?;
        let next = data.checked_add(usize::from(number(data.checked_sub(2)?)?))?;
        if next > usize::from(room) {
            break;
        }
        (end, count) = (next, count.checked_add(1)?);
    }
    (end <= usize::from(room)).then_some((end, count))
}

/// The position behind a name: labels until the root or a reference.
fn name_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *bytes.get(at)? {
            0 => return at.checked_add(1),
            0xc0.. => return at.checked_add(2),
            length => at = at.checked_add(usize::from(length))?.checked_add(1)?,
        }
    }
}

/// Appends the OPT record: it must not be left out when other records do not fit.
fn append_opt(bytes: &mut Vec<u8>, edns: Edns, code: ResponseCode) {
    let Some(count) = bytes.get_mut(10..12) else { return };
    let Ok(number) = <[u8; 2]>::try_from(&*count) else { return };
    count.copy_from_slice(&u16::from_be_bytes(number).saturating_add(1).to_be_bytes());
    let [payload_high, payload_low] = UDP_BYTES_MAX.to_be_bytes();
    let flags = if edns.dnssec_ok { 0x80 } else { 0 };
    let [type_high, type_low] = u16::from(RecordType::OPT).to_be_bytes();
    bytes.extend([0, type_high, type_low, payload_high, payload_low, code.high(), 0, flags, 0, 0, 0]);
}
