//! Public keys (`SubjectPublicKeyInfo`): of which kind, and how strong.
//!
//! Follows the formats of Go's `crypto/x509`. Nothing is verified here.

use super::{BIT_STRING, INTEGER, OBJECT_IDENTIFIER, SEQUENCE, element};

const NULL: u8 = 0x05;

/// 1.2.840.113549.1.1.1
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
/// 1.2.840.10045.2.1
const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// 1.3.101.112
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

/// 1.3.132.0.33
const P224: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x21];
/// 1.2.840.10045.3.1.7
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
/// 1.3.132.0.34
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
/// 1.3.132.0.35
const P521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];

/// Kind of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// Ed25519, which has no parameters.
    Ed25519,
    /// ECDSA on the curve of this name.
    Ecdsa(&'static str),
    /// RSA: how many bits the modulus has, in whole bytes.
    Rsa(usize),
    /// Any other kind.
    Other,
}

/// The kind of a public key with its algorithm; none if it cannot be read.
#[must_use]
pub fn kind(info: &[u8]) -> Option<KeyKind> {
    let (SEQUENCE, content, rest) = element(info)? else { return None };
    let (SEQUENCE, algorithm, key) = element(content)? else { return None };
    let (OBJECT_IDENTIFIER, algorithm, parameters) = element(algorithm)? else { return None };
    let (BIT_STRING, [0, key @ ..], after) = element(key)? else { return None };
    if !rest.is_empty() || !after.is_empty() {
        return None;
    }
    match algorithm {
        ED25519 => (parameters.is_empty() && key.len() == 32).then_some(KeyKind::Ed25519),
        ECDSA => curve(parameters, key),
        RSA => rsa(parameters, key),
        _ => Some(KeyKind::Other),
    }
}

fn curve(parameters: &[u8], key: &[u8]) -> Option<KeyKind> {
    let (OBJECT_IDENTIFIER, curve, _) = element(parameters)? else { return None };
    let (name, bytes) = match curve {
        P224 => ("P-224", 28_usize),
        P256 => ("P-256", 32),
        P384 => ("P-384", 48),
        P521 => ("P-521", 66),
        _ => return None,
    };
    // A marker and two coordinates.
    let is_point = key.first() == Some(&4) && key.len() == bytes.saturating_mul(2).saturating_add(1);
    is_point.then_some(KeyKind::Ecdsa(name))
}

fn rsa(parameters: &[u8], key: &[u8]) -> Option<KeyKind> {
    let (NULL, [], _) = element(parameters)? else { return None };
    let (SEQUENCE, numbers, rest) = element(key)? else { return None };
    let (INTEGER, modulus, numbers) = element(numbers)? else { return None };
    let (INTEGER, exponent, after) = element(numbers)? else { return None };
    let is_positive = |number: &[u8]| number.iter().any(|byte| *byte != 0) && number.first() < Some(&0x80);
    if !rest.is_empty() || !after.is_empty() || !is_positive(modulus) || !is_positive(exponent) {
        return None;
    }
    let bytes = modulus.iter().skip_while(|byte| **byte == 0).count();
    Some(KeyKind::Rsa(bytes.saturating_mul(8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrap(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82], &length[..], content].concat()
    }

    fn info(algorithm: &[u8], parameters: &[u8], key: &[u8]) -> Vec<u8> {
        let algorithm = wrap(SEQUENCE, &[wrap(OBJECT_IDENTIFIER, algorithm), parameters.to_vec()].concat());
        wrap(SEQUENCE, &[algorithm, wrap(BIT_STRING, &[&[0], key].concat())].concat())
    }

    #[test]
    fn keys_are_classified_by_kind_and_strength() {
        let point = |bytes: usize| [&[4], vec![1; bytes * 2].as_slice()].concat();
        let on = |curve: &[u8], bytes| kind(&info(ECDSA, &wrap(OBJECT_IDENTIFIER, curve), &point(bytes)));
        assert_eq!(on(P256, 32), Some(KeyKind::Ecdsa("P-256")));
        assert_eq!(on(P521, 66), Some(KeyKind::Ecdsa("P-521")));
        assert_eq!(on(P224, 28), Some(KeyKind::Ecdsa("P-224")));
        assert_eq!(on(P256, 31), None);
        assert_eq!(on(RSA, 32), None);
        let number = |bytes: usize| [&[0, 0x81], vec![1; bytes - 1].as_slice()].concat();
        let rsa = |bytes| wrap(SEQUENCE, &[wrap(INTEGER, &number(bytes)), wrap(INTEGER, &[3])].concat());
        assert_eq!(kind(&info(RSA, &[NULL, 0], &rsa(384))), Some(KeyKind::Rsa(3072)));
        assert_eq!(kind(&info(RSA, &[], &rsa(384))), None);
        assert_eq!(kind(&info(ED25519, &[], &[1; 32])), Some(KeyKind::Ed25519));
        assert_eq!(kind(&info(ED25519, &[], &[1; 31])), None);
        assert_eq!(kind(&info(&[0x2b, 0x65, 0x6e], &[], &[1; 32])), Some(KeyKind::Other));
        assert_eq!(kind(b"x"), None);
    }
}
