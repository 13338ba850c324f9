//! Keys that sign and verify service account tokens: ECDSA on P-256 (`ES256`).
//!
//! The first key of a [`KeyRing`] signs, all verify, so that a key can be replaced without breaking tokens in use.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey};
use rustls::pki_types::pem::{PemObject as _, SectionKind};

use crate::serving::certificates::{CertificateError, write_private};
use api::x509::element;

/// What stands before the point of a P-256 key in a `SubjectPublicKeyInfo`.
const SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The length of an uncompressed point: a marker and two coordinates.
const POINT_BYTES: usize = 65;

/// A key that verifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    point: Vec<u8>,
    id: String,
}

impl PublicKey {
    fn from_point(point: &[u8]) -> Option<Self> {
        if point.len() != POINT_BYTES || point.first() != Some(&4) {
            return None;
        }
        let mut spki = SPKI_PREFIX.to_vec();
        spki.extend(point);
        let id = URL_SAFE_NO_PAD.encode(ring::digest::digest(&ring::digest::SHA256, &spki));
        Some(Self { point: point.to_vec(), id })
    }

    fn from_spki(der: &[u8]) -> Option<Self> {
        Self::from_point(der.strip_prefix(SPKI_PREFIX.as_slice())?)
    }

    /// The name under which tokens refer to it: the hash of the key, as in Kubernetes.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Both coordinates, as JWK has them.
    #[must_use]
    pub fn coordinates(&self) -> (String, String) {
        let (x, y) = self.point.get(1..).and_then(|both| both.split_at_checked(32)).unwrap_or_default();
        (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y))
    }

    /// Whether a signature of 64 bytes over a message is this key's.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, &self.point);
        key.verify(message, signature).is_ok()
    }
}

/// A key that signs.
#[derive(Debug)]
pub struct SigningKey {
    pair: EcdsaKeyPair,
    public: PublicKey,
}

impl SigningKey {
    fn from_pair(pair: EcdsaKeyPair) -> Option<Self> {
        let public = PublicKey::from_point(pair.public_key().as_ref())?;
        Some(Self { pair, public })
    }

    fn from_pkcs8(der: &[u8]) -> Option<Self> {
        let algorithm = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        Self::from_pair(EcdsaKeyPair::from_pkcs8(algorithm, der, &SystemRandom::new()).ok()?)
    }

    /// The older form: a number, the private key, and optionally curve and public key.
    fn from_sec1(der: &[u8]) -> Option<Self> {
        let (_, mut rest, _) = element(der)?;
        rest = element(rest)?.2;
        let (_, private, after) = element(rest)?;
        rest = after;
        while !rest.is_empty() {
            let (tag, content, after) = element(rest)?;
            rest = after;
            if tag == 0xa1 {
                let (_, bits, _) = element(content)?;
                let point = bits.strip_prefix(&[0])?;
                let algorithm = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
                let random = SystemRandom::new();
                let pair = EcdsaKeyPair::from_private_key_and_public_key(algorithm, private, point, &random).ok()?;
                return Self::from_pair(pair);
            }
        }
        None
    }

    /// A new one, and its PEM.
    ///
    /// # Errors
    /// [`CertificateError::Unreadable`] if the system gives no random numbers.
    pub fn generate() -> Result<(Self, String), CertificateError> {
        let algorithm = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        let failed = || CertificateError::Unreadable("new signing key".to_owned());
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).map_err(|_| failed())?;
        let key = Self::from_pkcs8(document.as_ref()).ok_or_else(failed)?;
        // Kubernetes reads private keys for verification in the older form only.
        let older = sec1(document.as_ref(), &key.public.point).ok_or_else(failed)?;
        let text = base64::engine::general_purpose::STANDARD.encode(older);
        let mut pem = String::from("-----BEGIN EC PRIVATE KEY-----\n");
        for (index, letter) in text.chars().enumerate() {
            if index > 0 && index.is_multiple_of(64) {
                pem.push('\n');
            }
            pem.push(letter);
        }
        pem.push_str("\n-----END EC PRIVATE KEY-----\n");
        Ok((key, pem))
    }

    /// The key that verifies what this one signs.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The signature of a message, 64 bytes.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.pair.sign(&SystemRandom::new(), message).ok().map(|signature| signature.as_ref().to_vec())
    }
}

/// The older form of a key on P-256: a number, the private key, the curve, and the public key.
fn sec1(pkcs8: &[u8], point: &[u8]) -> Option<Vec<u8>> {
    // The version, the algorithm, and within a string of bytes the number and the private key.
    let (_, content, _) = element(pkcs8)?;
    let (_, inner, _) = element(element(element(content)?.2)?.2)?;
    let (_, fields, _) = element(inner)?;
    let (_, private, _) = element(element(fields)?.2)?;
    let wrap = |tag: u8, content: &[u8]| -> Option<Vec<u8>> {
        // All lengths here fit into seven bits.
        let length = u8::try_from(content.len()).ok().filter(|length| *length < 0x80)?;
        Some([&[tag, length], content].concat())
    };
    let curve = wrap(0xa0, &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07])?;
    let public = wrap(0xa1, &wrap(0x03, &[&[0], point].concat())?)?;
    let parts = [&[0x02, 0x01, 0x01][..], &wrap(0x04, private)?, &curve, &public].concat();
    wrap(0x30, &parts)
}

/// One key that signs, and all that verify.
#[derive(Debug)]
pub struct KeyRing {
    signing: SigningKey,
    accepted: Vec<PublicKey>,
}

impl KeyRing {
    /// One new key that nobody else knows.
    ///
    /// # Errors
    /// As [`SigningKey::generate`].
    pub fn generate() -> Result<Self, CertificateError> {
        Ok(Self::new(SigningKey::generate()?.0))
    }

    /// A key that signs, and verifies what it signed.
    #[must_use]
    pub fn new(signing: SigningKey) -> Self {
        Self { accepted: vec![signing.public.clone()], signing }
    }

    /// Reads the signing key of a file, which is made if it is missing.
    ///
    /// # Errors
    /// Files that cannot be read or written, or hold no key.
    pub fn load_or_create(path: &Path) -> Result<Self, CertificateError> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).ok_or_else(|| CertificateError::Unreadable(path.display().to_string())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let (key, pem) = SigningKey::generate()?;
                write_private(path, &pem)?;
                Ok(Self::new(key))
            }
            Err(source) => Err(CertificateError::File { path: path.to_owned(), source }),
        }
    }

    /// The first private key of a PEM text signs; all its keys verify.
    #[must_use]
    pub fn parse(pem: &str) -> Option<Self> {
        let (signing, accepted) = parse_pem(pem);
        Some(Self { signing: signing?, accepted })
    }

    /// Accepts the keys of a PEM text too, private or public ones.
    ///
    /// # Errors
    /// [`CertificateError::Unreadable`] if there is none.
    pub fn accept(&mut self, pem: &str) -> Result<(), CertificateError> {
        let (_, keys) = parse_pem(pem);
        if keys.is_empty() {
            return Err(CertificateError::Unreadable("service account key".to_owned()));
        }
        for key in keys {
            if !self.accepted.contains(&key) {
                self.accepted.push(key);
            }
        }
        Ok(())
    }

    /// The key that signs.
    #[must_use]
    pub fn signing(&self) -> &SigningKey {
        &self.signing
    }

    /// The keys that verify.
    #[must_use]
    pub fn accepted(&self) -> &[PublicKey] {
        &self.accepted
    }
}

/// The first private key of a PEM text, and all keys that verify; what is not such a key is passed over.
fn parse_pem(pem: &str) -> (Option<SigningKey>, Vec<PublicKey>) {
    let (mut signing, mut accepted) = (None, Vec::new());
    let sections = <(SectionKind, Vec<u8>)>::pem_slice_iter(pem.as_bytes());
    for (kind, der) in sections.filter_map(Result::ok) {
        let private = match kind {
            SectionKind::PrivateKey => SigningKey::from_pkcs8(&der),
            SectionKind::EcPrivateKey => SigningKey::from_sec1(&der),
            SectionKind::PublicKey => {
                accepted.extend(PublicKey::from_spki(&der));
                None
            }
            _ => None,
        };
        if let Some(key) = private {
            accepted.push(key.public.clone());
            signing.get_or_insert(key);
        }
    }
    (signing, accepted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(label: &str, der: &[u8]) -> String {
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
    }

    #[test]
    fn what_one_key_signs_another_does_not_verify() {
        let (first, second) = (KeyRing::generate().unwrap(), KeyRing::generate().unwrap());
        let signature = first.signing().sign(b"message").unwrap();
        assert_eq!(signature.len(), 64);
        assert!(first.signing().public().verifies(b"message", &signature));
        assert!(!first.signing().public().verifies(b"messagf", &signature));
        assert!(!second.signing().public().verifies(b"message", &signature));
        assert_ne!(first.signing().public().id(), second.signing().public().id());
    }

    #[test]
    fn both_forms_of_private_keys_and_public_keys_are_read() {
        let algorithm = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap();
        // A number, the algorithm, and the older form as bytes.
        let (_, fields, _) = element(document.as_ref()).unwrap();
        let after_algorithm = element(element(fields).unwrap().2).unwrap().2;
        let sec1 = pem("EC PRIVATE KEY", element(after_algorithm).unwrap().1);
        let old = KeyRing::parse(&sec1).unwrap();
        let public = pem("PUBLIC KEY", &[&SPKI_PREFIX, old.signing().public().point.as_slice()].concat());
        let signature = old.signing().sign(b"x").unwrap();
        let mut new = KeyRing::generate().unwrap();
        assert!(KeyRing::parse(&public).is_none());
        new.accept(&public).unwrap();
        assert_eq!(new.accepted().len(), 2);
        assert!(new.accepted()[1].verifies(b"x", &signature));
        assert_eq!(new.accepted()[1].id(), old.signing().public().id());
        assert!(new.accept("nothing").is_err());
        let (key, pem) = SigningKey::generate().unwrap();
        assert_eq!(KeyRing::parse(&pem).unwrap().signing().public(), key.public());
    }

    #[test]
    fn a_file_is_made_once_and_only_for_its_owner() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sa.key");
        let first = KeyRing::load_or_create(&path).unwrap();
        let second = KeyRing::load_or_create(&path).unwrap();
        assert_eq!(first.signing().public(), second.signing().public());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
