//! The part of X.509 that is needed for names: PEM, DER, the subject of a certificate and of a certificate
//! request.
//!
//! Nothing is verified here. Ambiguous input is rejected: a guessed name may belong to another user.
//! [`request`] reads a whole request, [`certificate`] a certificate, [`key`] a public key, [`issuer`] the
//! certificate of an authority.

pub mod certificate;
pub mod issuer;
pub mod key;
pub mod request;

use crate::time::Timestamp;

/// True or false.
pub const BOOLEAN: u8 = 0x01;
/// A number.
pub const INTEGER: u8 = 0x02;
/// Bits, after a byte with the number of unused bits in the last byte.
pub const BIT_STRING: u8 = 0x03;
/// Bytes.
pub const OCTET_STRING: u8 = 0x04;
/// Object identifier.
pub const OBJECT_IDENTIFIER: u8 = 0x06;
/// A sequence of elements.
pub const SEQUENCE: u8 = 0x30;
/// A set of elements.
pub const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// 2.5.4.10
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
/// 1.3.6.1.4.1.57683.2
const UID: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x83, 0xc2, 0x53, 0x02];
/// 2.5.29.19
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
/// 2.5.29.17
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
/// An address among alternative names.
const ADDRESS: u8 = 0x87;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Names in a subject.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// The name; the last one if there are several.
    pub common_name: String,
    /// The organizations, which Kubernetes takes for groups.
    pub organizations: Vec<String>,
    /// Unique identifiers, which distinguish users of the same name.
    pub uids: Vec<String>,
}

/// A block of a PEM file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PemBlock {
    /// Type of the block, such as `CERTIFICATE`.
    pub kind: String,
    /// Whether lines of `key: value` precede its content.
    pub has_headers: bool,
    /// Decoded content.
    pub bytes: Vec<u8>,
}

/// The blocks of a PEM file; other text is ignored, as in Go's `encoding/pem`.
#[must_use]
pub fn pem_blocks(text: &str) -> Vec<PemBlock> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.trim_end().strip_prefix("-----BEGIN ").and_then(|it| it.strip_suffix("-----")) else {
            continue;
        };
        let end = format!("-----END {kind}-----");
        let (mut body, mut has_headers, mut is_closed) = (String::new(), false, false);
        for line in lines.by_ref() {
            let line = line.trim();
            if line == end {
                is_closed = true;
                break;
            }
            if line.contains(':') {
                has_headers = true;
            } else {
                body.push_str(line);
            }
        }
        if let (true, Ok(bytes)) = (is_closed, crate::base64::decode(&body)) {
            blocks.push(PemBlock { kind: kind.to_owned(), has_headers, bytes });
        }
    }
    blocks
}

/// Tag and content of the first element, and the rest.
#[must_use]
pub fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
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

/// Returns the subject of a certificate; `None` if it cannot be read.
#[must_use]
pub fn certificate_subject(certificate: &[u8]) -> Option<Names> {
    read_names(before_subject(certificate)?)
}

/// The first element with its tag and length, and the rest.
#[must_use]
pub fn split_element(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, _, after) = element(bytes)?;
    bytes.split_at_checked(bytes.len().checked_sub(after.len())?)
}

/// Returns the subject of a certificate request (PKCS #10); `None` if it cannot be read.
#[must_use]
pub fn request_subject(request: &[u8]) -> Option<Names> {
    request::Outline::read(request).and_then(|outline| read_names(outline.subject))
}

/// Whether a certificate is one of an authority; none if it cannot be read.
#[must_use]
pub fn is_authority(certificate: &[u8]) -> Option<bool> {
    let Some(value) = extension(certificate, BASIC_CONSTRAINTS)? else { return Some(false) };
    let (SEQUENCE, constraints, _) = element(value)? else { return None };
    Some(matches!(element(constraints), Some((BOOLEAN, [0xff], _))))
}

/// The addresses that a certificate is for, as bytes; none if it cannot be read.
#[must_use]
pub fn addresses(certificate: &[u8]) -> Option<Vec<&[u8]>> {
    let Some(value) = extension(certificate, ALTERNATIVE_NAMES)? else { return Some(Vec::new()) };
    let (SEQUENCE, mut names, _) = element(value)? else { return None };
    let mut found = Vec::new();
    while !names.is_empty() {
        let (tag, name, after) = element(names)?;
        names = after;
        if tag == ADDRESS {
            found.push(name);
        }
    }
    Some(found)
}

/// Returns the end of a certificate's validity as `YYYYMMDDhhmmssZ`; `None` if it cannot be read.
#[must_use]
pub fn not_after(certificate: &[u8]) -> Option<String> {
    let (SEQUENCE, validity, _) = element(after_parts(certificate, 3)?)? else { return None };
    digits(element(validity)?.2)
}

/// The time that the first element holds, as `YYYYMMDDhhmmssZ`.
fn digits(bytes: &[u8]) -> Option<String> {
    let (tag, time, _) = element(bytes)?;
    let time = std::str::from_utf8(time).ok()?;
    match tag {
        GENERALIZED_TIME => Some(time.to_owned()),
        // Two digits of the year: from 50 on it is the last century.
        UTC_TIME => Some(format!("{}{time}", if time < "50" { "20" } else { "19" })),
        _ => None,
    }
}

/// Reads `YYYYMMDDhhmmssZ`.
fn moment(text: &str) -> Option<Timestamp> {
    let part = |from: usize, to: usize| text.get(from..to);
    let (date, time) = ((part(0, 4)?, part(4, 6)?, part(6, 8)?), (part(8, 10)?, part(10, 12)?, part(12, 14)?));
    let rest = text.get(14..)?;
    let text = format!("{}-{}-{}T{}:{}:{}{rest}", date.0, date.1, date.2, time.0, time.1, time.2);
    Timestamp::parse(&text).ok()
}

/// Returns the value of a certificate's extension: the outer `None` if the certificate cannot be read, the
/// inner one if the extension is absent.
fn extension<'a>(certificate: &'a [u8], wanted: &[u8]) -> Option<Option<&'a [u8]>> {
    let mut rest = before_subject(certificate)?;
    // Subject and key precede the optional parts.
    for _ in 0..2 {
        let (SEQUENCE, _, after) = element(rest)? else { return None };
        rest = after;
    }
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
            if let Some(value) = extension_value(extension, wanted)? {
                return Some(Some(value));
            }
        }
    }
    Some(None)
}

/// Returns the part of a certificate that starts with its subject.
fn before_subject(certificate: &[u8]) -> Option<&[u8]> {
    after_parts(certificate, 4)
}

/// Returns the part of a certificate after its first fields: serial number, signature algorithm, issuer,
/// validity.
fn after_parts(certificate: &[u8], count: usize) -> Option<&[u8]> {
    let (SEQUENCE, certificate, _) = element(certificate)? else { return None };
    let (SEQUENCE, mut rest, _) = element(certificate)? else { return None };
    // An optional version precedes all of them.
    if rest.first() == Some(&VERSION) {
        rest = element(rest)?.2;
    }
    for _ in 0..count {
        rest = element(rest)?.2;
    }
    Some(rest)
}

/// The value of an extension if it is of this kind; the outer nothing if it cannot be read.
fn extension_value<'a>(extension: &'a [u8], wanted: &[u8]) -> Option<Option<&'a [u8]>> {
    let (OBJECT_IDENTIFIER, kind, mut value) = element(extension)? else { return None };
    if kind != wanted {
        return Some(None);
    }
    if value.first() == Some(&BOOLEAN) {
        value = element(value)?.2;
    }
    let (OCTET_STRING, value, _) = element(value)? else { return None };
    Some(Some(value))
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

#[cfg(test)]
mod tests {
    use super::*;

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
        // UTF-16: every other byte of it is not text.
        assert_eq!(common_name(0x1e, b"\0j\0a"), None);
        assert_eq!(read_names(&name(UID, 0x0c, b"7")).unwrap().uids, ["7"]);
    }

    #[test]
    fn blocks_are_found_among_other_text() {
        let text =
            "hello\n-----BEGIN A-----\nAQID\n-----END A-----\n-----BEGIN B-----\nk: v\n\nBA==\n-----END B-----\n";
        let block =
            |kind: &str, has_headers, bytes: &[u8]| PemBlock { kind: kind.into(), has_headers, bytes: bytes.into() };
        assert_eq!(pem_blocks(text), [block("A", false, &[1, 2, 3]), block("B", true, &[4])]);
        assert_eq!(pem_blocks("-----BEGIN A-----\nAQID\n"), []);
        assert_eq!(pem_blocks("-----BEGIN A-----\n*\n-----END A-----\n"), []);
    }
}
