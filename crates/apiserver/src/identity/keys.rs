//! Keys that sign and verify service account tokens: ECDSA on P-256 (`ES256`) or RSA (`RS256`).
//!
//! The first key of a [`KeyRing`] signs, all verify, so that a key can be replaced without breaking tokens in use.

use std::fs;
use std::path::Path;

use api::json::Value;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, KeyPair as _, RsaKeyPair, RsaPublicKeyComponents, UnparsedPublicKey};
use rustls::pki_types::pem::{PemObject as _, SectionKind};

use crate::certificates::{CertificateError, write_private};
use api::x509::element;

/// Prefix of the point of a P-256 key in a `SubjectPublicKeyInfo`.
const SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The algorithm of an RSA key in a `SubjectPublicKeyInfo`: `rsaEncryption`, no parameters.
const RSA_ALGORITHM: [u8; 15] =
    [0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];

/// The length of an uncompressed point: a marker and two coordinates.
const POINT_BYTES: usize = 65;

/// A public key that verifies signatures of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    material: Material,
    id: String,
}

/// The numbers of a public key, big-endian.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Material {
    P256 { point: Vec<u8> },
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
}

impl PublicKey {
    fn new(material: Material, spki: &[u8]) -> Self {
        Self { material, id: URL_SAFE_NO_PAD.encode(ring::digest::digest(&ring::digest::SHA256, spki)) }
    }

    fn from_point(point: &[u8]) -> Option<Self> {
        if point.len() != POINT_BYTES || point.first() != Some(&4) {
            return None;
        }
        let spki = [SPKI_PREFIX.as_slice(), point].concat();
        Some(Self::new(Material::P256 { point: point.to_vec() }, &spki))
    }

    /// Reads an `RSAPublicKey` of PKCS#1: modulus and exponent.
    fn from_pkcs1(der: &[u8]) -> Option<Self> {
        let (_, fields, _) = element(der)?;
        let (_, modulus, rest) = element(fields)?;
        let (_, exponent, _) = element(rest)?;
        // A leading zero marks a positive number and is not part of it.
        let number = |bytes: &[u8]| bytes.strip_prefix(&[0]).unwrap_or(bytes).to_vec();
        let bits = tagged(0x03, &[&[0], der].concat())?;
        let spki = tagged(0x30, &[RSA_ALGORITHM.as_slice(), &bits].concat())?;
        Some(Self::new(Material::Rsa { modulus: number(modulus), exponent: number(exponent) }, &spki))
    }

    fn from_spki(der: &[u8]) -> Option<Self> {
        if let Some(point) = der.strip_prefix(SPKI_PREFIX.as_slice()) {
            return Self::from_point(point);
        }
        let (_, fields, _) = element(der)?;
        let bits = fields.strip_prefix(RSA_ALGORITHM.as_slice())?;
        Self::from_pkcs1(element(bits)?.1.strip_prefix(&[0])?)
    }

    fn from_certificate(der: &[u8]) -> Option<Self> {
        Self::from_spki(api::x509::certificate::Certificate::read(der)?.key)
    }

    /// The name under which tokens refer to it: the hash of the key, as in Kubernetes.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The name of its algorithm in tokens.
    #[must_use]
    pub fn algorithm(&self) -> &'static str {
        match self.material {
            Material::P256 { .. } => "ES256",
            Material::Rsa { .. } => "RS256",
        }
    }

    /// The key as a JSON web key.
    #[must_use]
    pub fn jwk(&self) -> Value {
        let number = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match &self.material {
            Material::P256 { point } => {
                let (x, y) = point.get(1..).and_then(|both| both.split_at_checked(32)).unwrap_or_default();
                api::json!({
                    "use": "sig", "kty": "EC", "kid": (self.id()), "crv": "P-256", "alg": (self.algorithm()),
                    "x": (number(x)), "y": (number(y))
                })
            }
            Material::Rsa { modulus, exponent } => api::json!({
                "use": "sig", "kty": "RSA", "kid": (self.id()), "alg": (self.algorithm()),
                "n": (number(modulus)), "e": (number(exponent))
            }),
        }
    }

    /// Whether a signature over a message is this key's.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.material {
            Material::P256 { point } => {
                let key = UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point);
                key.verify(message, signature).is_ok()
            }
            Material::Rsa { modulus, exponent } => {
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(&signature::RSA_PKCS1_2048_8192_SHA256, message, signature).is_ok()
            }
        }
    }
}

/// A DER element: tag, length, content.
fn tagged(tag: u8, content: &[u8]) -> Option<Vec<u8>> {
    let mut der = vec![tag];
    match u8::try_from(content.len()) {
        Ok(length) if length < 0x80 => der.push(length),
        _ => {
            let length = u32::try_from(content.len()).ok()?.to_be_bytes();
            let significant: Vec<u8> = length.into_iter().skip_while(|byte| *byte == 0).collect();
            der.push(u8::try_from(significant.len()).ok()? | 0x80);
            der.extend(significant);
        }
    }
    der.extend(content);
    Some(der)
}

/// A key that signs.
#[derive(Debug)]
pub struct SigningKey {
    pair: KeyPair,
    public: PublicKey,
}

#[derive(Debug)]
enum KeyPair {
    P256(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

impl SigningKey {
    fn from_ecdsa(pair: EcdsaKeyPair) -> Option<Self> {
        let public = PublicKey::from_point(pair.public_key().as_ref())?;
        Some(Self { pair: KeyPair::P256(pair), public })
    }

    fn from_rsa(pair: RsaKeyPair) -> Option<Self> {
        let public = PublicKey::from_pkcs1(pair.public_key().as_ref())?;
        Some(Self { pair: KeyPair::Rsa(pair), public })
    }

    fn from_pkcs8(der: &[u8]) -> Option<Self> {
        let algorithm = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        match EcdsaKeyPair::from_pkcs8(algorithm, der, &SystemRandom::new()) {
            Ok(pair) => Self::from_ecdsa(pair),
            Err(_) => Self::from_rsa(RsaKeyPair::from_pkcs8(der).ok()?),
        }
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
                return Self::from_ecdsa(pair);
            }
        }
        None
    }

    /// Generates a P-256 key. Returns it with its PEM.
    ///
    /// # Errors
    /// [`CertificateError::Unreadable`] if the system gives no random numbers.
    pub fn generate() -> Result<(Self, String), CertificateError> {
        let algorithm = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        let failed = || CertificateError::Unreadable("new signing key".to_owned());
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).map_err(|_| failed())?;
        let key = Self::from_pkcs8(document.as_ref()).ok_or_else(failed)?;
        let Material::P256 { point } = &key.public.material else { return Err(failed()) };
        // Kubernetes reads private keys for verification in the older form only.
        let older = sec1(document.as_ref(), point).ok_or_else(failed)?;
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

    /// Returns the signature of a message.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match &self.pair {
            KeyPair::P256(pair) => pair.sign(&random, message).ok().map(|signature| signature.as_ref().to_vec()),
            KeyPair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, &random, message, &mut signature).ok()?;
                Some(signature)
            }
        }
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
    /// Generates one secret key.
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

    /// The public keys that verify tokens.
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
            SectionKind::RsaPrivateKey => RsaKeyPair::from_der(&der).ok().and_then(SigningKey::from_rsa),
            SectionKind::Certificate => {
                accepted.extend(PublicKey::from_certificate(&der));
                None
            }
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
    fn signature_fails_with_another_key() {
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
        let Material::P256 { point } = &old.signing().public().material else { panic!("not on P-256") };
        let public = pem("PUBLIC KEY", &[&SPKI_PREFIX, point.as_slice()].concat());
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

    /// Made by `openssl genrsa`, `openssl pkcs8 -topk8`, `openssl rsa -pubout` and `openssl req -x509`.
    const RSA_PEM: &str = include_str!("keys/rsa.pem");

    #[test]
    fn rsa_keys_are_read_in_every_form() {
        let sections: Vec<String> =
            api::x509::pem_blocks(RSA_PEM).iter().map(|block| pem(&block.kind, &block.bytes)).collect();
        assert_eq!(sections.len(), 4, "PKCS#1, PKCS#8, public key, certificate");
        let signing = KeyRing::parse(&sections[0]).unwrap();
        assert_eq!(signing.signing().public().algorithm(), "RS256");
        assert_eq!(KeyRing::parse(&sections[1]).unwrap().signing().public(), signing.signing().public());
        let signature = signing.signing().sign(b"x").unwrap();
        for verifying in &sections[2..] {
            assert!(KeyRing::parse(verifying).is_none());
            let mut ring = KeyRing::generate().unwrap();
            ring.accept(verifying).unwrap();
            let key = ring.accepted().last().unwrap();
            assert_eq!(key, signing.signing().public());
            assert!(key.verifies(b"x", &signature));
            assert!(!key.verifies(b"y", &signature));
            assert_eq!(key.jwk().str_at(&["e"]), Some("AQAB"));
        }
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
