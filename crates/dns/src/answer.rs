//! The content of a response, before it is written as a message.

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::Record;

/// Records and flags of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The response code.
    pub code: ResponseCode,
    /// Whether this server is the authority for the name.
    pub is_authoritative: bool,
    /// Whether a validating resolver has verified the records.
    pub is_authentic: bool,
    /// Whether records are missing.
    pub is_truncated: bool,
    /// Records that answer the question.
    pub answers: Vec<Record>,
    /// The start of authority, for negative answers.
    pub authorities: Vec<Record>,
    /// Addresses of names in the answers.
    pub additionals: Vec<Record>,
}

impl Answer {
    /// An answer without records.
    #[must_use]
    pub fn empty(code: ResponseCode) -> Self {
        Self {
            code,
            is_authoritative: false,
            is_authentic: false,
            is_truncated: false,
            answers: Vec::new(),
            authorities: Vec::new(),
            additionals: Vec::new(),
        }
    }
}
