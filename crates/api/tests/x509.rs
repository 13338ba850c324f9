//! Damaged certificates and requests: every reader returns, whatever the bytes are.

use api::x509::certificate::Certificate;
use api::x509::issuer::Issuer;
use api::x509::request::{self, Request};
use api::x509::{certificate_subject, key, pem_blocks};

/// Of `openssl req` with a subject and two alternative names.
const REQUEST: &str = "-----BEGIN CERTIFICATE REQUEST-----
MIIBEDCBuAIBADAwMRUwEwYDVQQKDAxzeXN0ZW06bm9kZXMxFzAVBgNVBAMMDnN5
c3RlbTpub2RlOngxMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEln93dxhtZwZZ
w4obQYBG9IGv4xSuPY1sIJ1ZaJ/6donjW9GVmSfO+Qe21PVD5AlzjeFGw4yNhCg/
gf01kybjq6AmMCQGCSqGSIb3DQEJDjEXMBUwEwYDVR0RBAwwCoICeDGHBMAAAgkw
CgYIKoZIzj0EAwIDRwAwRAIgEEErv2eRCQ6cCyIzjhCR1ItFX5Ah+e6Sireq+X/0
rtECIHwTvNLH7UyAv8049nH33GGjaob/2cW0HcLwctZ/Y4z/
-----END CERTIFICATE REQUEST-----
";

/// Reads bytes in every way. Returns whether they are a request.
fn read_all(bytes: &[u8]) -> bool {
    let _ = (Certificate::read(bytes), Issuer::read(bytes), certificate_subject(bytes), key::kind(bytes));
    Request::read(bytes).is_some()
}

#[test]
fn changed_bytes_never_panic() {
    let bytes = request::from_pem(REQUEST).unwrap();
    assert!(read_all(&bytes));
    let mut rejected = 0;
    for at in 0..bytes.len() {
        // Short and long lengths, the indefinite one, tags, and the neighbors of the byte.
        for value in [0, 1, 0x30, 0x7f, 0x80, 0x81, 0x84, 0x88, 0xff, bytes[at] ^ 1, bytes[at].wrapping_add(1)] {
            let mut changed = bytes.clone();
            changed[at] = value;
            rejected += usize::from(!read_all(&changed));
            // The parts of a request begin anywhere.
            read_all(&changed[at..]);
        }
    }
    assert!(rejected > 500, "{rejected}");
}

#[test]
fn changed_pem_text_never_panics() {
    for at in 0..REQUEST.len() {
        for value in ["", "\n", "-", ":", "=", "é"] {
            let text = [&REQUEST[..at], value, &REQUEST[at + 1..]].concat();
            for block in pem_blocks(&text) {
                read_all(&block.bytes);
            }
        }
    }
}
