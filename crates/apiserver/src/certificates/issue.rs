//! Issuing certificates for requests.
//!
//! The subject, the key and the alternative names are those of the request; everything else is set by the
//! authority. Follows Kubernetes' `pkg/controller/certificates/authority`. The caller authorizes the request
//! before.

use std::net::IpAddr;

use api::time::Timestamp;
use api::x509::issuer::Issuer;
use api::x509::request::{AlternativeNames, Request};
use api::x509::{BIT_STRING, BOOLEAN, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, element};
use rcgen::{KeyPair, SigningKey as _};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};

use super::{Authority, CertificateError, Pair};

/// Time by which a certificate is backdated, because clocks differ.
const BACKDATE_SECONDS: i64 = 300;
/// The end of one that holds for a shorter time is not moved back with its beginning.
const SHORT_SECONDS: i64 = 8 * 3600;

/// 1.2.840.10045.3.1.7
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
/// 1.3.132.0.34
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
/// 1.2.840.10045.4.3.2
const ECDSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
/// 1.2.840.10045.4.3.3
const ECDSA_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03];
/// 1.2.840.113549.1.1.11
const RSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];
/// 1.2.840.113549.1.1.12
const RSA_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c];
/// 1.2.840.113549.1.1.13
const RSA_SHA512: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d];
/// 1.3.101.112
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

/// Bits of the key usage, by name.
const KEY_USAGES: [(&str, u16); 10] = [
    ("signing", 0),
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];

/// Extended key usages, in the order in which they are written: 1.3.6.1.5.5.7.3 and a number, or all of it.
const EXTENDED_USAGES: [(&str, &[u8]); 13] = [
    ("any", &[0x55, 0x1d, 0x25, 0x00]),
    ("server auth", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01]),
    ("client auth", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02]),
    ("code signing", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x03]),
    ("email protection", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x04]),
    ("s/mime", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x04]),
    ("ipsec end system", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x05]),
    ("ipsec tunnel", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x06]),
    ("ipsec user", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x07]),
    ("timestamping", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x08]),
    ("ocsp signing", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x09]),
    ("microsoft sgc", &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x0a, 0x03, 0x03]),
    ("netscape sgc", &[0x60, 0x86, 0x48, 0x01, 0x86, 0xf8, 0x42, 0x04, 0x01]),
];

/// A reason why no certificate is issued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IssueError {
    /// The request was not signed with the key that it names.
    #[error("unable to verify certificate request signature")]
    Signature,
    /// Unknown usages.
    #[error("unrecognized usage values: {0:?}")]
    Usages(Vec<String>),
    /// The authority's own certificate has ended.
    #[error("the signer has expired: NotAfter={0}")]
    Expired(Timestamp),
    /// The authority's certificate or key cannot be used.
    #[error("the signer cannot be used")]
    Authority(#[from] CertificateError),
}

/// Terms set by the authority.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// Permitted usages, with the names of `certificates.k8s.io`.
    pub usages: &'a [&'a str],
    /// For how long.
    pub seconds: i64,
    /// From when.
    pub now: Timestamp,
}

impl Authority {
    /// Creates an authority from an existing certificate and key.
    ///
    /// # Errors
    /// A certificate or a key that cannot be used.
    pub fn from_pem(certificate: String, key: String) -> Result<Self, CertificateError> {
        let authority = Self { pair: Pair { certificate, key }, name: super::AUTHORITY_NAME };
        let der = authority.pair.certificate_der()?;
        Issuer::read(&der).ok_or_else(|| super::unreadable("certificate"))?;
        algorithm_of(&KeyPair::from_pem(&authority.pair.key)?)?;
        Ok(authority)
    }

    /// Issues the requested certificate, as PEM.
    ///
    /// # Errors
    /// [`IssueError`].
    pub fn issue(&self, request: &Request<'_>, terms: &Terms<'_>) -> Result<String, IssueError> {
        verify_signature(request).map_err(|_| IssueError::Signature)?;
        let own = self.pair.certificate_der()?;
        let issuer = Issuer::read(&own).ok_or_else(|| super::unreadable("certificate"))?;
        if terms.now >= issuer.not_after {
            return Err(IssueError::Expired(issuer.not_after));
        }
        let begin = terms.now.plus_seconds(BACKDATE_SECONDS.saturating_neg());
        let base = if terms.seconds < SHORT_SECONDS { terms.now } else { begin };
        let end = base.plus_seconds(terms.seconds).min(issuer.not_after);
        let mut serial = [0_u8; 16];
        SystemRandom::new().fill(&mut serial).map_err(|_| super::unreadable("source of random numbers"))?;
        // A positive number.
        serial[0] = (serial[0] & 0x7f) | 0x40;
        let key = KeyPair::from_pem(&self.pair.key).map_err(CertificateError::Generate)?;
        let algorithm = algorithm_of(&key)?;
        let body = wrap(
            SEQUENCE,
            &[
                wrap(0xa0, &[wrap(INTEGER, &[vec![2]])]),
                wrap(INTEGER, &[serial.to_vec()]),
                algorithm.clone(),
                issuer.subject.to_vec(),
                wrap(SEQUENCE, &[time(begin), time(end)]),
                request.outline.subject.to_vec(),
                request.outline.key.to_vec(),
                wrap(0xa3, &[wrap(SEQUENCE, &extensions(request, terms.usages, issuer.key_id)?)]),
            ],
        );
        let signature = key.sign(&body).map_err(CertificateError::Generate)?;
        let certificate = wrap(SEQUENCE, &[body, algorithm, wrap(BIT_STRING, &[vec![0], signature])]);
        Ok(pem(&certificate))
    }
}

/// An element of a tag.
fn wrap(tag: u8, parts: &[Vec<u8>]) -> Vec<u8> {
    let content = parts.concat();
    let mut element = vec![tag];
    match u8::try_from(content.len()) {
        Ok(length) if length < 0x80 => element.push(length),
        _ => {
            let digits: Vec<u8> = content.len().to_be_bytes().into_iter().skip_while(|digit| *digit == 0).collect();
            // No more than eight.
            element.push(0x80 | u8::try_from(digits.len()).unwrap_or(0x7f));
            element.extend(digits);
        }
    }
    element.extend(content);
    element
}

fn pem(der: &[u8]) -> String {
    let text = api::base64::encode(der);
    let lines: Vec<&str> =
        (0..text.len()).step_by(64).filter_map(|at| text.get(at..text.len().min(at.saturating_add(64)))).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

/// A time: two digits for the year before 2050, four from then on.
fn time(at: Timestamp) -> Vec<u8> {
    let whole = Timestamp { nanos: 0, ..at };
    let digits: String = whole.to_string().chars().filter(char::is_ascii_digit).collect();
    match digits.strip_prefix("20") {
        Some(short) if short < "5" => wrap(0x17, &[format!("{short}Z").into_bytes()]),
        _ => wrap(0x18, &[format!("{digits}Z").into_bytes()]),
    }
}

/// The identifier of the algorithm that a key signs with.
fn algorithm_of(key: &KeyPair) -> Result<Vec<u8>, CertificateError> {
    let (id, parameters): (&[u8], Vec<u8>) = match key.algorithm() {
        it if *it == rcgen::PKCS_ECDSA_P256_SHA256 => (ECDSA_SHA256, Vec::new()),
        it if *it == rcgen::PKCS_ECDSA_P384_SHA384 => (ECDSA_SHA384, Vec::new()),
        it if *it == rcgen::PKCS_RSA_SHA256 => (RSA_SHA256, vec![0x05, 0x00]),
        it if *it == rcgen::PKCS_ED25519 => (ED25519, Vec::new()),
        _ => return Err(super::unreadable("key")),
    };
    Ok(wrap(SEQUENCE, &[wrap(OBJECT_IDENTIFIER, &[id.to_vec()]), parameters]))
}

fn extensions(request: &Request<'_>, usages: &[&str], key_id: Option<&[u8]>) -> Result<Vec<Vec<u8>>, IssueError> {
    let extension = |id: &[u8], is_critical: bool, value: Vec<u8>| {
        let critical = if is_critical { wrap(BOOLEAN, &[vec![0xff]]) } else { Vec::new() };
        wrap(SEQUENCE, &[wrap(OBJECT_IDENTIFIER, &[id.to_vec()]), critical, wrap(OCTET_STRING, &[value])])
    };
    let is_known = |usage: &str| {
        KEY_USAGES.iter().any(|(name, _)| *name == usage) || EXTENDED_USAGES.iter().any(|(name, _)| *name == usage)
    };
    let unknown: Vec<String> = usages.iter().filter(|it| !is_known(it)).map(|it| (*it).to_owned()).collect();
    if !unknown.is_empty() {
        return Err(IssueError::Usages(unknown));
    }
    let mut list = Vec::new();
    let bits = KEY_USAGES.iter().filter(|(name, _)| usages.contains(name));
    let bits = bits.fold(0_u16, |bits, (_, number)| bits | 0x8000_u16.checked_shr(u32::from(*number)).unwrap_or(0));
    if bits != 0 {
        let [first, second] = bits.to_be_bytes();
        let bytes = if second == 0 { vec![first] } else { vec![first, second] };
        let unused = u8::try_from(bits.trailing_zeros() % 8).unwrap_or(0);
        list.push(extension(&[0x55, 0x1d, 0x0f], true, wrap(BIT_STRING, &[vec![unused], bytes])));
    }
    let mut extended: Vec<Vec<u8>> = EXTENDED_USAGES
        .iter()
        .filter(|(name, _)| usages.contains(name))
        .map(|(_, id)| wrap(OBJECT_IDENTIFIER, &[id.to_vec()]))
        .collect();
    extended.dedup();
    if !extended.is_empty() {
        list.push(extension(&[0x55, 0x1d, 0x25], false, wrap(SEQUENCE, &extended)));
    }
    // It is not a CA certificate.
    list.push(extension(&[0x55, 0x1d, 0x13], true, wrap(SEQUENCE, &[])));
    if let Some(id) = key_id {
        list.push(extension(&[0x55, 0x1d, 0x23], false, wrap(SEQUENCE, &[wrap(0x80, &[id.to_vec()])])));
    }
    let names = alternatives(&request.alternatives);
    if !names.is_empty() {
        list.push(extension(&[0x55, 0x1d, 0x11], false, wrap(SEQUENCE, &names)));
    }
    Ok(list)
}

fn alternatives(names: &AlternativeNames) -> Vec<Vec<u8>> {
    let texts =
        |tag: u8, texts: &[String]| texts.iter().map(|it| wrap(tag, &[it.clone().into_bytes()])).collect::<Vec<_>>();
    let address = |address: &IpAddr| match address {
        IpAddr::V4(it) => wrap(0x87, &[it.octets().to_vec()]),
        IpAddr::V6(it) => wrap(0x87, &[it.octets().to_vec()]),
    };
    let addresses = names.addresses.iter().map(address).collect();
    [texts(0x82, &names.dns), texts(0x81, &names.emails), addresses, texts(0x86, &names.uris)].concat()
}

/// Checks that a request was signed with the key that it names.
///
/// # Errors
/// The reason, in Kubernetes' words. A signature of an unsupported kind is not valid.
pub(crate) fn verify_signature(request: &Request<'_>) -> Result<(), &'static str> {
    let outline = &request.outline;
    let verified = || {
        let (SEQUENCE, content, _) = element(outline.key)? else { return None };
        let (SEQUENCE, algorithm, key) = element(content)? else { return None };
        let (OBJECT_IDENTIFIER, _, parameters) = element(algorithm)? else { return None };
        let curve = element(parameters).map(|(_, curve, _)| curve).unwrap_or_default();
        let (BIT_STRING, [0, key @ ..], _) = element(key)? else { return None };
        let algorithm: &dyn VerificationAlgorithm = match (outline.algorithm, curve) {
            (ECDSA_SHA256, P256) => &signature::ECDSA_P256_SHA256_ASN1,
            (ECDSA_SHA384, P256) => &signature::ECDSA_P256_SHA384_ASN1,
            (ECDSA_SHA256, P384) => &signature::ECDSA_P384_SHA256_ASN1,
            (ECDSA_SHA384, P384) => &signature::ECDSA_P384_SHA384_ASN1,
            (RSA_SHA256, _) => &signature::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
            (RSA_SHA384, _) => &signature::RSA_PKCS1_2048_8192_SHA384,
            (RSA_SHA512, _) => &signature::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
            (ED25519, _) => &signature::ED25519,
            _ => return None,
        };
        Some(UnparsedPublicKey::new(algorithm, key).verify(outline.information, outline.signature))
    };
    let verified = verified().ok_or("x509: cannot verify signature: algorithm unimplemented")?;
    verified.map_err(|_| match outline.algorithm {
        RSA_SHA256 | RSA_SHA384 | RSA_SHA512 => "crypto/rsa: verification error",
        ED25519 => "x509: Ed25519 verification failure",
        _ => "x509: ECDSA verification failure",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, SanType};
    use rustls::pki_types::UnixTime;

    const NOW: Timestamp = Timestamp { seconds: 1_800_000_000, nanos: 0 };

    fn request(key: &KeyPair) -> Vec<u8> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "developers");
        params.distinguished_name.push(DnType::CommonName, "jane");
        params.subject_alt_names.push(SanType::DnsName("x1".try_into().unwrap()));
        params.subject_alt_names.push(SanType::IpAddress("192.0.2.9".parse().unwrap()));
        params.serialize_request(key).unwrap().der().to_vec()
    }

    #[test]
    fn issued_certificate_is_trusted_with_its_authority() {
        for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519] {
            let authority = Authority::generate().unwrap();
            let bytes = request(&KeyPair::generate_for(algorithm).unwrap());
            let request = Request::read(&bytes).unwrap();
            let usages = ["digital signature", "key encipherment", "client auth"];
            let terms = Terms { usages: &usages, seconds: 600, now: NOW };
            let certificate = authority.issue(&request, &terms).unwrap();
            let certificate = Pair { certificate, key: String::new() }.certificate_der().unwrap();
            let names = api::x509::certificate_subject(&certificate).unwrap();
            assert_eq!((names.common_name.as_str(), names.organizations.len()), ("jane", 1));
            assert_eq!(api::x509::is_authority(&certificate), Some(false));
            let end = api::x509::issuer::not_after(&certificate).unwrap();
            assert_eq!(end, NOW.plus_seconds(600));
            let mut roots = rustls::RootCertStore::empty();
            roots.add(authority.pair.certificate_der().unwrap()).unwrap();
            let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
            let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            let verifier = verifier.build().unwrap();
            let at =
                |seconds: i64| UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds.try_into().unwrap()));
            assert!(verifier.verify_client_cert(&certificate, &[], at(NOW.seconds)).is_ok());
            assert!(verifier.verify_client_cert(&certificate, &[], at(NOW.plus_seconds(601).seconds)).is_err());
        }
    }

    #[test]
    fn a_request_that_its_key_has_not_signed_is_refused() {
        let authority = Authority::generate().unwrap();
        let mut bytes = request(&KeyPair::generate().unwrap());
        let terms = Terms { usages: &["client auth"], seconds: 600, now: NOW };
        let at = bytes.windows(4).position(|it| it == b"jane").unwrap();
        bytes[at] = b'k';
        let changed = Request::read(&bytes).unwrap();
        assert!(matches!(authority.issue(&changed, &terms), Err(IssueError::Signature)));
        bytes[at] = b'j';
        let request = Request::read(&bytes).unwrap();
        let unknown = Terms { usages: &["tea making"], ..terms };
        assert!(matches!(authority.issue(&request, &unknown), Err(IssueError::Usages(_))));
        let late = Timestamp { seconds: 100_000_000_000, nanos: 0 };
        assert!(matches!(authority.issue(&request, &Terms { now: late, ..terms }), Err(IssueError::Expired(_))));
    }
}
