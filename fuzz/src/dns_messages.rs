//! Messages of DNS clients.

use dns::answer::Answer;
use dns::message::{self, Reading, UDP_BYTES_PLAIN};
use hickory_proto::op::ResponseCode;

/// Any bytes are a query, refused or ignored. A response has the id of its query, is not read as a query, and has at most 512 bytes.
pub fn dns_messages(data: &[u8]) {
    let response = match message::read(data) {
        Reading::Ignored => return,
        Reading::Refused(response, _) => response,
        Reading::Query(query) => message::write(&query, Answer::empty(ResponseCode::NoError), UDP_BYTES_PLAIN),
    };
    assert_eq!(response.get(..2), data.get(..2));
    assert!(response.len() >= 12 && response.len() <= usize::from(UDP_BYTES_PLAIN), "{} bytes", response.len());
    assert!(matches!(message::read(&response), Reading::Ignored));
}
