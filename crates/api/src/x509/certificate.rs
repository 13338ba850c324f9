//! Contents of a certificate: key, alternative names, validity.

use super::request::{AlternativeNames, read_alternatives};
use super::{
    ALTERNATIVE_NAMES, SEQUENCE, after_parts, before_subject, digits, element, extension, moment, split_element,
};
use crate::time::Timestamp;

/// A certificate that could be read. Whether its signature holds is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate<'a> {
    /// The public key with its algorithm, with its tag.
    pub key: &'a [u8],
    /// Subject alternative names.
    pub alternatives: AlternativeNames,
    /// From when it holds.
    pub not_before: Timestamp,
    /// Until when it holds.
    pub not_after: Timestamp,
}

impl<'a> Certificate<'a> {
    /// Reads a certificate; none if it is not clear.
    #[must_use]
    pub fn read(certificate: &'a [u8]) -> Option<Self> {
        let (SEQUENCE, _, rest) = element(certificate)? else { return None };
        if !rest.is_empty() {
            return None;
        }
        super::certificate_subject(certificate)?;
        let (_, after_subject) = split_element(before_subject(certificate)?)?;
        let (key, _) = split_element(after_subject)?;
        super::key::kind(key)?;
        let (SEQUENCE, validity, _) = element(after_parts(certificate, 3)?)? else { return None };
        let (_, after_begin) = split_element(validity)?;
        let [not_before, not_after] = [moment(&digits(validity)?)?, moment(&digits(after_begin)?)?];
        let mut alternatives = AlternativeNames::default();
        if let Some(value) = extension(certificate, ALTERNATIVE_NAMES)? {
            read_alternatives(value, &mut alternatives)?;
        }
        Some(Self { key, alternatives, not_before, not_after })
    }
}
