//! Fields of an authority's certificate that are needed for signing, and the end of a certificate's validity.

use super::{OCTET_STRING, before_subject, element, extension, split_element};
use crate::time::Timestamp;

/// 2.5.29.14
const SUBJECT_KEY_ID: &[u8] = &[0x55, 0x1d, 0x0e];

/// Parts of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer<'a> {
    /// The subject with its tag: the issuer of certificates signed with this key.
    pub subject: &'a [u8],
    /// Key identifier.
    pub key_id: Option<&'a [u8]>,
    /// Until when it holds.
    pub not_after: Timestamp,
}

impl<'a> Issuer<'a> {
    /// Reads a certificate; none if it is not clear.
    #[must_use]
    pub fn read(certificate: &'a [u8]) -> Option<Self> {
        let (subject, _) = split_element(before_subject(certificate)?)?;
        let key_id = match extension(certificate, SUBJECT_KEY_ID)? {
            Some(value) => {
                let (OCTET_STRING, id, _) = element(value)? else { return None };
                Some(id)
            }
            None => None,
        };
        Some(Self { subject, key_id, not_after: not_after(certificate)? })
    }
}

/// Until when a certificate holds; none if that cannot be read.
#[must_use]
pub fn not_after(certificate: &[u8]) -> Option<Timestamp> {
    super::moment(&super::not_after(certificate)?)
}
