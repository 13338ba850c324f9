//! What the certificate of an authority says to those who sign with its key, and until when a certificate holds.

use super::{EXTENSIONS, OCTET_STRING, SEQUENCE, before_subject, element, split_element};
use crate::time::Timestamp;

/// 2.5.29.14
const SUBJECT_KEY_ID: &[u8] = &[0x55, 0x1d, 0x0e];

/// Parts of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer<'a> {
    /// The subject, with its tag: who has issued what is signed with its key.
    pub subject: &'a [u8],
    /// What tells its keys apart.
    pub key_id: Option<&'a [u8]>,
    /// Until when it holds.
    pub not_after: Timestamp,
}

impl<'a> Issuer<'a> {
    /// Reads a certificate; none if it is not clear.
    #[must_use]
    pub fn read(certificate: &'a [u8]) -> Option<Self> {
        let (subject, mut rest) = split_element(before_subject(certificate)?)?;
        let (SEQUENCE, _, after) = element(rest)? else { return None };
        rest = after;
        let mut key_id = None;
        while !rest.is_empty() {
            let (tag, content, after) = element(rest)?;
            rest = after;
            if tag != EXTENSIONS {
                continue;
            }
            let (SEQUENCE, mut extensions, _) = element(content)? else { return None };
            while !extensions.is_empty() {
                let (SEQUENCE, extension, after) = element(extensions)? else { return None };
                extensions = after;
                if let Some(value) = super::extension_value(extension, SUBJECT_KEY_ID)? {
                    let (OCTET_STRING, id, _) = element(value)? else { return None };
                    key_id = Some(id);
                }
            }
        }
        Some(Self { subject, key_id, not_after: not_after(certificate)? })
    }
}

/// Until when a certificate holds; none if that cannot be read.
#[must_use]
pub fn not_after(certificate: &[u8]) -> Option<Timestamp> {
    const UTC_TIME: u8 = 0x17;
    const GENERALIZED_TIME: u8 = 0x18;
    let (SEQUENCE, validity, _) = element(super::after_parts(certificate, 3)?)? else { return None };
    let (_, _, end) = element(validity)?;
    let (tag, content, _) = element(end)?;
    let text = str::from_utf8(content).ok()?;
    let text = match tag {
        // Kubernetes: as in RFC 5280, two digits are of the years 1950 to 2049.
        UTC_TIME => format!("{}{text}", if text < "5" { "20" } else { "19" }),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let part = |from: usize, to: usize| text.get(from..to);
    let (date, time) = ((part(0, 4)?, part(4, 6)?, part(6, 8)?), (part(8, 10)?, part(10, 12)?, part(12, 14)?));
    let rest = text.get(14..)?;
    let text = format!("{}-{}-{}T{}:{}:{}{rest}", date.0, date.1, date.2, time.0, time.1, time.2);
    Timestamp::parse(&text).ok()
}
