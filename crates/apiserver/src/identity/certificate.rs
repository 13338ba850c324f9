//! The subject of a client certificate: as much of DER as that needs.
//!
//! The chain has been verified by TLS before anyone looks in here. Follows Kubernetes'
//! `authentication/request/x509`: name, uid and groups, and the certificate's fingerprint as the credential.

use super::User;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const VERSION: u8 = 0xa0;
/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// 2.5.4.10
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
/// 1.3.6.1.4.1.57683.2
const UID: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x83, 0xc2, 0x53, 0x02];

/// A certificate that does not say clearly whom it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the subject of the certificate cannot be read")]
pub struct UnreadableCertificate;

/// What a subject says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Names {
    common_name: String,
    organizations: Vec<String>,
    uids: Vec<String>,
}

/// The user that a certificate names: its common name, in the groups of its organizations; none if it has no name.
///
/// # Errors
/// [`UnreadableCertificate`]: then it is not the same as none.
pub fn subject(certificate: &[u8]) -> Result<Option<User>, UnreadableCertificate> {
    let names = certificate_subject(certificate).and_then(read_names).ok_or(UnreadableCertificate)?;
    let uid = match names.uids.as_slice() {
        [] => "",
        [uid] if !uid.is_empty() => uid,
        _ => return Err(UnreadableCertificate),
    };
    if names.common_name.is_empty() {
        return Ok(None);
    }
    let groups: Vec<&str> = names.organizations.iter().map(String::as_str).collect();
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    let digits: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut user = User { uid: uid.to_owned(), ..User::authenticated(names.common_name, &groups) };
    let credential = "authentication.kubernetes.io/credential-id".to_owned();
    user.extra.insert(credential, vec![format!("X509SHA256={digits}")]);
    Ok(Some(user))
}

/// What of a certificate starts with its subject.
fn certificate_subject(certificate: &[u8]) -> Option<&[u8]> {
    let (SEQUENCE, certificate, _) = element(certificate)? else { return None };
    let (SEQUENCE, mut rest, _) = element(certificate)? else { return None };
    // Version (optional), serial number, signature algorithm, issuer and validity stand before the subject.
    if rest.first() == Some(&VERSION) {
        rest = element(rest)?.2;
    }
    for _ in 0..4 {
        rest = element(rest)?.2;
    }
    Some(rest)
}

fn read_names(bytes: &[u8]) -> Option<Names> {
    let (SEQUENCE, mut sets, _) = element(bytes)? else { return None };
    let mut names = Names::default();
    while !sets.is_empty() {
        let (SET, mut set, after) = element(sets)? else { return None };
        sets = after;
        while !set.is_empty() {
            let (SEQUENCE, attribute, after) = element(set)? else { return None };
            set = after;
            let (OBJECT_IDENTIFIER, kind, value) = element(attribute)? else { return None };
            match kind {
                COMMON_NAME => names.common_name = text(value)?,
                ORGANIZATION => names.organizations.push(text(value)?),
                UID => names.uids.push(text(value)?),
                _ => {}
            }
        }
    }
    Some(names)
}

/// A text, in one of the forms that are read without guessing.
fn text(bytes: &[u8]) -> Option<String> {
    const UTF8: u8 = 0x0c;
    const NUMERIC: u8 = 0x12;
    const PRINTABLE: u8 = 0x13;
    const IA5: u8 = 0x16;
    let (tag, content, _) = element(bytes)?;
    let text = String::from_utf8(content.to_vec()).ok()?;
    match tag {
        UTF8 => Some(text),
        NUMERIC | PRINTABLE | IA5 => text.is_ascii().then_some(text),
        _ => None,
    }
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
        let user = subject(&der).unwrap().unwrap();
        assert_eq!(user.name, "system:admin");
        assert_eq!(user.groups, ["system:masters", "system:authenticated"]);
        let id = &user.extra["authentication.kubernetes.io/credential-id"][0];
        assert_eq!(id.len(), "X509SHA256=".len() + 64);
        for cut in 0..der.len().min(200) {
            assert_eq!(subject(&der[..cut]), Err(UnreadableCertificate));
        }
    }

    /// A name of one attribute.
    fn name(kind: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        let wrap = |tag: u8, content: &[u8]| [&[tag, u8::try_from(content.len()).unwrap()], content].concat();
        let attribute = [wrap(OBJECT_IDENTIFIER, kind), wrap(tag, value)].concat();
        wrap(SEQUENCE, &wrap(SET, &wrap(SEQUENCE, &attribute)))
    }

    #[test]
    fn texts_are_read_by_their_kind_or_not_at_all() {
        let common_name = |tag, value: &[u8]| read_names(&name(COMMON_NAME, tag, value)).map(|it| it.common_name);
        assert_eq!(common_name(0x0c, "jürgen".as_bytes()).as_deref(), Some("jürgen"));
        assert_eq!(common_name(0x13, b"jane").as_deref(), Some("jane"));
        assert_eq!(common_name(0x13, "jürgen".as_bytes()), None);
        assert_eq!(common_name(0x0c, b"j\xfcrgen"), None);
        // UTF-16: every other byte of it is no text.
        assert_eq!(common_name(0x1e, b"\0j\0a"), None);
        assert_eq!(read_names(&name(UID, 0x0c, b"7")).unwrap().uids, ["7"]);
    }
}
