//! The subject of a client certificate: as much of DER as that needs.
//!
//! The chain has been verified by TLS before anyone looks in here.

use super::User;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const VERSION: u8 = 0xa0;
/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// 2.5.4.10
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

/// The user that a certificate names: its common name, in the groups of its organizations.
#[must_use]
pub fn subject(certificate: &[u8]) -> Option<User> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut rest, _) = element(certificate)?;
    // Version (optional), serial number, signature algorithm, issuer and validity stand before the subject.
    if rest.first() == Some(&VERSION) {
        rest = element(rest)?.2;
    }
    for _ in 0..4 {
        rest = element(rest)?.2;
    }
    let (tag, mut names, _) = element(rest)?;
    if tag != SEQUENCE {
        return None;
    }
    let (mut name, mut groups) = (None, Vec::new());
    while !names.is_empty() {
        let (tag, mut set, after) = element(names)?;
        names = after;
        if tag != SET {
            return None;
        }
        while !set.is_empty() {
            let (_, attribute, after) = element(set)?;
            set = after;
            let (tag, kind, value) = element(attribute)?;
            let text = String::from_utf8(element(value)?.1.to_vec()).ok()?;
            match kind {
                _ if tag != OBJECT_IDENTIFIER => return None,
                COMMON_NAME => name = Some(text),
                ORGANIZATION => groups.push(text),
                _ => {}
            }
        }
    }
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    Some(User::authenticated(name?, &groups))
}

/// Tag and content of the first element, and what follows it.
pub(super) fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let length = if first < 0x80 {
        usize::from(first)
    } else {
        let count = usize::from(first & 0x7f);
        let (digits, after) = rest.split_at_checked(count)?;
        rest = after;
        digits.iter().try_fold(0_usize, |length, digit| length.checked_mul(256)?.checked_add(usize::from(*digit)))?
    };
    let (content, after) = rest.split_at_checked(length)?;
    Some((tag, content, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::certificates::Authority;

    #[test]
    fn subjects_are_read_from_certificates() {
        let authority = Authority::generate().unwrap();
        let pair = authority.client("system:admin", "system:masters").unwrap();
        let der = pair.certificate_der().unwrap();
        let user = subject(&der).unwrap();
        assert_eq!(user.name, "system:admin");
        assert_eq!(user.groups, ["system:masters", "system:authenticated"]);
        for cut in 0..der.len().min(200) {
            assert_eq!(subject(&der[..cut]), None);
        }
    }
}
