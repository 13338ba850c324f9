//! Documents in CBOR.

use api::{cbor, json};

/// Any bytes are a document or an error; what is read is JSON, and is written and read as the same.
pub fn kubernetes_cbor(data: &[u8]) {
    let Ok(value) = cbor::parse(data) else { return };
    let again = cbor::parse(&cbor::to_bytes(&value)).unwrap_or_else(|error| panic!("{error}: {value}"));
    assert_eq!(again, value);
    let text = json::to_string(&value);
    assert!(json::parse(text.as_bytes()).is_ok(), "{text}");
}
