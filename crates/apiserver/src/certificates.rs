//! Certificates of our own: an authority, a server certificate, and client certificates that name users.
//!
//! They are generated on first start, kept in the data directory, and reused as long as they are valid: a
//! certificate that expires soon, is not from the authority or does not match its key is regenerated. [`issue`]
//! issues certificates for requests.

pub mod front_proxy;
pub mod issue;

use api::well_known::{GROUP_MASTERS, GROUP_NODES};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use rustls::RootCertStore;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use tracing::warn;

use crate::clock;

/// A reason why certificates cannot be created or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file cannot be read or written.
    #[error("cannot access `{}`", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// A certificate cannot be made.
    #[error("cannot create a certificate")]
    Generate(#[from] rcgen::Error),
    /// A file does not hold what it should.
    #[error("`{0}` contains no usable certificate or key")]
    Unreadable(String),
}

/// A certificate and its key, as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl Pair {
    /// The certificate's bytes.
    ///
    /// # Errors
    /// [`CertificateError::Unreadable`].
    pub fn certificate_der(&self) -> Result<CertificateDer<'static>, CertificateError> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).map_err(|_| unreadable("certificate"))
    }

    /// Whether the certificate can be read, and does not expire within these days.
    #[must_use]
    pub fn lasts(&self, days: i64) -> bool {
        lasts(self, days)
    }

    /// The key's bytes.
    ///
    /// # Errors
    /// [`CertificateError::Unreadable`].
    pub fn key_der(&self) -> Result<PrivateKeyDer<'static>, CertificateError> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|_| unreadable("key"))
    }
}

fn unreadable(what: &str) -> CertificateError {
    CertificateError::Unreadable(what.to_owned())
}

/// Signs certificates.
pub struct Authority {
    pair: Pair,
    name: &'static str,
}

/// The name of the authority of servers and clients.
const AUTHORITY_NAME: &str = "celplane";

impl Authority {
    /// A new one.
    ///
    /// # Errors
    /// [`CertificateError::Generate`].
    pub fn generate() -> Result<Self, CertificateError> {
        Self::named(AUTHORITY_NAME)
    }

    fn named(name: &'static str) -> Result<Self, CertificateError> {
        let key = KeyPair::generate()?;
        let mut params = authority_params(name)?;
        valid_for(&mut params, AUTHORITY_DAYS);
        let certificate = params.self_signed(&key)?;
        Ok(Self { pair: Pair { certificate: certificate.pem(), key: key.serialize_pem() }, name })
    }

    /// The authority's own certificate.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.pair.certificate
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Pair, CertificateError> {
        valid_for(&mut params, DAYS);
        let key = KeyPair::generate()?;
        let authority_key = KeyPair::from_pem(&self.pair.key)?;
        // Name and key are all that a signature takes from the authority.
        let issuer = Issuer::new(authority_params(self.name)?, authority_key);
        let certificate = params.signed_by(&key, &issuer)?;
        Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// A certificate that names a user and a group.
    ///
    /// # Errors
    /// [`CertificateError::Generate`].
    pub fn client(&self, name: &str, group: &str) -> Result<Pair, CertificateError> {
        self.client_in(name, Some(group))
    }

    fn client_in(&self, name: &str, group: Option<&str>) -> Result<Pair, CertificateError> {
        let mut params = params(name, group)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    /// Issues a certificate for the agent of a node with these addresses. It contains only the node's name: an
    /// agent must not be able to impersonate the server.
    ///
    /// # Errors
    /// [`CertificateError::Generate`].
    pub fn node(&self, name: &str, addresses: &[IpAddr]) -> Result<Pair, CertificateError> {
        let mut params = params(&format!("system:node:{name}"), Some(GROUP_NODES))?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names.push(SanType::DnsName(name.try_into()?));
        params.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
        self.sign(params)
    }

    /// Issues a certificate for a server that is reached under these names.
    ///
    /// # Errors
    /// [`CertificateError::Generate`].
    pub fn service(&self, names: &[String]) -> Result<Pair, CertificateError> {
        let mut params = params(names.first().map_or("celplane", String::as_str), None)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for name in names {
            params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
        }
        self.sign(params)
    }

    /// A certificate for a server that is reached under these addresses.
    ///
    /// # Errors
    /// [`CertificateError::Generate`].
    pub fn server(&self, addresses: &[IpAddr]) -> Result<Pair, CertificateError> {
        let mut params = params("celplane-apiserver", None)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for name in SERVER_NAMES {
            params.subject_alt_names.push(SanType::DnsName(name.try_into()?));
        }
        let addresses: BTreeSet<IpAddr> = addresses.iter().copied().collect();
        params.subject_alt_names.extend(addresses.into_iter().map(SanType::IpAddress));
        self.sign(params)
    }
}

/// Names of the server inside the cluster, and on this machine.
const SERVER_NAMES: [&str; 5] =
    ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];

/// Validity of an authority, and of its certificates.
const AUTHORITY_DAYS: i64 = 10 * 365;
const DAYS: i64 = 365;
/// Certificates that expire within this time are regenerated at the start.
const RENEWED_BEFORE_DAYS: i64 = 30;
const DAY_SECONDS: i64 = 24 * 3600;

/// Sets the validity of a certificate. It begins yesterday, for machines whose clock is behind.
fn valid_for(params: &mut CertificateParams, days: i64) {
    let day = |offset: i64| {
        let text = clock::now().plus_seconds(offset.saturating_mul(DAY_SECONDS)).to_string();
        let part = |from: usize, to: usize| text.get(from..to).and_then(|it| it.parse::<u16>().ok()).unwrap_or(1);
        let small = |number: u16| u8::try_from(number).unwrap_or(1);
        rcgen::date_time_ymd(i32::from(part(0, 4)), small(part(5, 7)), small(part(8, 10)))
    };
    params.not_before = day(-1);
    params.not_after = day(days);
}

/// Whether a certificate can still be used for some days; one that cannot be read cannot.
fn lasts(pair: &Pair, days: i64) -> bool {
    let limit = clock::now().plus_seconds(days.saturating_mul(DAY_SECONDS)).to_string();
    let limit: String = limit.chars().filter(char::is_ascii_digit).collect();
    let end = pair.certificate_der().ok().and_then(|der| api::x509::not_after(&der));
    end.is_some_and(|end| end.trim_end_matches('Z') > limit.as_str())
}

/// Whether it is over.
fn has_ended(pair: &Pair) -> bool {
    pair.certificate_der().is_ok() && !lasts(pair, 0)
}

/// Purpose of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Server,
    Client,
}

/// Whether a certificate is of this authority, for this purpose, and has this key.
fn is_sound(pair: &Pair, authority: &Authority, purpose: Purpose) -> bool {
    let verify = || {
        let provider = ring::default_provider();
        let certificate = pair.certificate_der().ok()?;
        let key = provider.key_provider.load_private_key(pair.key_der().ok()?).ok()?;
        CertifiedKey::new(vec![certificate.clone()], key).keys_match().ok()?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.pair.certificate_der().ok()?).ok()?;
        let now = UnixTime::now();
        match purpose {
            Purpose::Server => {
                let certificate = ParsedCertificate::try_from(&certificate).ok()?;
                let algorithms = provider.signature_verification_algorithms.all;
                verify_server_cert_signed_by_trust_anchor(&certificate, &roots, &[], now, algorithms).ok()
            }
            Purpose::Client => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(provider));
                verifier.build().ok()?.verify_client_cert(&certificate, &[], now).ok().map(|_| ())
            }
        }
    };
    verify().is_some()
}

/// Whether a server certificate names all addresses.
fn names_all(pair: &Pair, addresses: &[IpAddr]) -> bool {
    let Ok(der) = pair.certificate_der() else { return false };
    let Some(named) = api::x509::addresses(&der) else { return false };
    addresses.iter().all(|address| match address {
        IpAddr::V4(it) => named.contains(&it.octets().as_slice()),
        IpAddr::V6(it) => named.contains(&it.octets().as_slice()),
    })
}

fn authority_params(name: &str) -> Result<CertificateParams, CertificateError> {
    let mut params = params(name, None)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

fn params(name: &str, organization: Option<&str>) -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

/// Reads a pair from a directory, or makes it there.
fn load_pair(
    directory: &Path,
    name: &str,
    is_usable: &dyn Fn(&Pair) -> bool,
    make: &dyn Fn() -> Result<Pair, CertificateError>,
) -> Result<Pair, CertificateError> {
    let file = |source, path: &Path| CertificateError::File { path: path.to_owned(), source };
    fs::create_dir_all(directory).map_err(|error| file(error, directory))?;
    let (certificate, key) = (directory.join(format!("{name}.crt")), directory.join(format!("{name}.key")));
    if certificate.exists() && key.exists() {
        let read = |path: &Path| fs::read_to_string(path).map_err(|error| file(error, path));
        let pair = Pair { certificate: read(&certificate)?, key: read(&key)? };
        if is_usable(&pair) {
            return Ok(pair);
        }
    }
    let pair = make()?;
    write_private(&certificate, &pair.certificate)?;
    write_private(&key, &pair.key)?;
    Ok(pair)
}

/// All that a server and its administrator need.
pub struct Bundle {
    /// The authority.
    pub authority: Authority,
    /// The server's own.
    pub server: Pair,
    /// The administrator's.
    pub admin: Pair,
}

impl Bundle {
    /// Reads the bundle from a directory, or makes what is missing there.
    ///
    /// # Errors
    /// Files that cannot be read or written.
    pub fn load_or_create(directory: &Path, addresses: &[IpAddr]) -> Result<Self, CertificateError> {
        // Clients trust the authority: it is replaced only by the administrator, unless it has expired and is
        // useless.
        let path = directory.join("ca.crt");
        let is_usable = |pair: &Pair| {
            let is_over = has_ended(pair);
            if is_over {
                warn!(path = %path.display(), "Replaced expired certificate authority");
            }
            !is_over
        };
        let pair = load_pair(directory, "ca", &is_usable, &|| Ok(Authority::generate()?.pair))?;
        let authority = Authority { pair, name: AUTHORITY_NAME };
        if !lasts(&authority.pair, RENEWED_BEFORE_DAYS) {
            warn!(path = %path.display(), "Certificate authority expires soon and must be replaced");
        }
        let is_good = |pair: &Pair, purpose| lasts(pair, RENEWED_BEFORE_DAYS) && is_sound(pair, &authority, purpose);
        let is_usable = |pair: &Pair| is_good(pair, Purpose::Server) && names_all(pair, addresses);
        let server = load_pair(directory, "apiserver", &is_usable, &|| authority.server(addresses))?;
        let is_usable = |pair: &Pair| is_good(pair, Purpose::Client);
        let make = || authority.client("kubernetes-admin", GROUP_MASTERS);
        let admin = load_pair(directory, "admin", &is_usable, &make)?;
        Ok(Self { authority, server, admin })
    }

    /// The administrator's kubeconfig for a server at `url`.
    #[must_use]
    pub fn kubeconfig(&self, url: &str) -> String {
        use base64::Engine as _;
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: celplane\nclusters:\n- name: celplane\n  cluster:\n    \
             server: {url}\n    certificate-authority-data: {}\ncontexts:\n- name: celplane\n  context:\n    \
             cluster: celplane\n    user: admin\nusers:\n- name: admin\n  user:\n    client-certificate-data: {}\n    \
             client-key-data: {}\n",
            encode(self.authority.certificate()),
            encode(&self.admin.certificate),
            encode(&self.admin.key),
        )
    }
}

/// A new key, and a request for a certificate of a node with it, as PEM. `addresses` is empty for client certificates.
///
/// # Errors
/// [`CertificateError::Generate`].
pub fn node_request(name: &str, addresses: &[IpAddr]) -> Result<(String, String), CertificateError> {
    let key = KeyPair::generate()?;
    let mut params = params(&format!("system:node:{name}"), Some("system:nodes"))?;
    if !addresses.is_empty() {
        params.subject_alt_names.push(SanType::DnsName(name.try_into()?));
        params.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
    }
    let request = params.serialize_request(&key)?;
    Ok((key.serialize_pem(), request.pem()?))
}

/// The pins of the certificates in a PEM text, as `kubeadm` has them: `sha256:` and the hash of the public key.
#[must_use]
pub fn pins(text: &str) -> Vec<String> {
    let blocks = api::x509::pem_blocks(text);
    let keys = blocks.iter().filter_map(|block| api::x509::certificate::Certificate::read(&block.bytes));
    let pin = |key: &[u8]| {
        let hash = ::ring::digest::digest(&::ring::digest::SHA256, key);
        let digits: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256:{digits}")
    };
    keys.map(|certificate| pin(certificate.key)).collect()
}

/// Writes a file that only its owner can read. Whatever has the name before, a link too, is replaced.
///
/// # Errors
/// [`CertificateError::File`].
pub fn write_private(path: &Path, text: &str) -> Result<(), CertificateError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", crate::random::suffix()));
    let draft = path.with_file_name(name);
    let write = || {
        // A new file: no other process has it open or chose its path.
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    write().map_err(|source| {
        // What is left of it is of no use.
        let _ = fs::remove_file(&draft);
        CertificateError::File { path: path.to_owned(), source }
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn private_files_never_follow_existing_files() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("admin.kubeconfig"), directory.path().join("other"));
        fs::write(&other, "theirs").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        write_private(&path, "secret").unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "theirs");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write_private(&path, "new secret").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new secret");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn certificates_end_and_are_made_anew_for_another_address() {
        let directory = tempfile::tempdir().unwrap();
        let one: [IpAddr; 1] = ["127.0.0.1".parse().unwrap()];
        let both: [IpAddr; 2] = ["127.0.0.1".parse().unwrap(), "192.0.2.7".parse().unwrap()];
        let first = Bundle::load_or_create(directory.path(), &one).unwrap();
        let end = api::x509::not_after(&first.server.certificate_der().unwrap()).unwrap();
        let year = |offset: i64| {
            clock::now().plus_seconds(offset * 365 * DAY_SECONDS).to_string().chars().take(4).collect::<String>()
        };
        assert!(end.starts_with(&year(1)), "{end}");
        let again = Bundle::load_or_create(directory.path(), &one).unwrap();
        assert_eq!(first.server.certificate, again.server.certificate);
        let other = Bundle::load_or_create(directory.path(), &both).unwrap();
        assert_ne!(first.server.certificate, other.server.certificate);
        assert_eq!(first.admin.certificate, other.admin.certificate);
        assert_eq!(first.authority.certificate(), other.authority.certificate());
        let names = api::x509::addresses(&other.server.certificate_der().unwrap()).unwrap().len();
        assert_eq!(names, both.len());
        // Fewer addresses are not a reason.
        let fewer = Bundle::load_or_create(directory.path(), &one).unwrap();
        assert_eq!(fewer.server.certificate, other.server.certificate);
    }

    /// Writes a pair that is good for this many days.
    fn put(directory: &Path, name: &str, authority: &Authority, mut params: CertificateParams, days: i64) {
        let key = KeyPair::generate().unwrap();
        valid_for(&mut params, days);
        let issuer =
            Issuer::new(authority_params(AUTHORITY_NAME).unwrap(), KeyPair::from_pem(&authority.pair.key).unwrap());
        let certificate = params.signed_by(&key, &issuer).unwrap();
        fs::write(directory.join(format!("{name}.crt")), certificate.pem()).unwrap();
        fs::write(directory.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    #[test]
    fn expiring_or_untrusted_certificates_are_reissued() {
        let directory = tempfile::tempdir().unwrap();
        let addresses: [IpAddr; 1] = ["127.0.0.1".parse().unwrap()];
        let load = || Bundle::load_or_create(directory.path(), &addresses).unwrap();
        let first = load();
        for (days, is_kept) in [(-2, false), (20, false), (40, true)] {
            let mut server = params("celplane-apiserver", None).unwrap();
            server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            server.subject_alt_names.push(SanType::IpAddress(addresses[0]));
            put(directory.path(), "apiserver", &first.authority, server, days);
            let mut admin = params("kubernetes-admin", Some("system:masters")).unwrap();
            admin.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            put(directory.path(), "admin", &first.authority, admin, days);
            let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
            let (server, admin) = (read("apiserver.crt"), read("admin.crt"));
            let again = load();
            assert_eq!(again.server.certificate == server, is_kept, "{days}");
            assert_eq!(again.admin.certificate == admin, is_kept, "{days}");
        }
        // A key that does not match the certificate is useless.
        let before = load();
        fs::write(directory.path().join("admin.key"), &before.server.key).unwrap();
        fs::write(directory.path().join("apiserver.key"), "nonsense").unwrap();
        let after = load();
        assert_ne!(before.admin.certificate, after.admin.certificate);
        assert_ne!(before.server.certificate, after.server.certificate);
        // Nor is a certificate of an authority that people have replaced.
        fs::remove_file(directory.path().join("ca.crt")).unwrap();
        fs::remove_file(directory.path().join("ca.key")).unwrap();
        let replaced = load();
        assert!(is_sound(&replaced.server, &replaced.authority, Purpose::Server));
        assert!(is_sound(&replaced.admin, &replaced.authority, Purpose::Client));
        assert!(!is_sound(&after.server, &replaced.authority, Purpose::Server));
        assert!(!is_sound(&replaced.admin, &replaced.authority, Purpose::Server));
    }

    #[test]
    fn an_authority_is_replaced_when_it_is_over_and_not_before() {
        let directory = tempfile::tempdir().unwrap();
        for (days, is_kept) in [(20, true), (-2, false)] {
            let key = KeyPair::generate().unwrap();
            let mut params = authority_params(AUTHORITY_NAME).unwrap();
            valid_for(&mut params, days);
            let pem = params.self_signed(&key).unwrap().pem();
            fs::write(directory.path().join("ca.crt"), &pem).unwrap();
            fs::write(directory.path().join("ca.key"), key.serialize_pem()).unwrap();
            let bundle = Bundle::load_or_create(directory.path(), &[]).unwrap();
            assert_eq!(bundle.authority.certificate() == pem, is_kept, "{days}");
            assert!(is_sound(&bundle.server, &bundle.authority, Purpose::Server));
        }
        // What cannot be read is left to people.
        fs::write(directory.path().join("ca.crt"), "nonsense").unwrap();
        assert_eq!(Bundle::load_or_create(directory.path(), &[]).unwrap().authority.certificate(), "nonsense");
    }
}
