//! Certificates of our own: an authority, a server certificate, and client certificates that name users.
//!
//! They are made on first start, kept in the data directory, and used again after that. [`issue`] makes those that
//! others ask for.

pub mod issue;

use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Why certificates cannot be made or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file cannot be read or written.
    #[error("cannot access `{}`", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A certificate cannot be made.
    #[error("cannot make a certificate")]
    Generate(#[from] rcgen::Error),
    /// A file does not hold what it should.
    #[error("`{0}` holds no usable certificate or key")]
    Unreadable(String),
}

/// A certificate and its key, as PEM.
#[derive(Debug, Clone)]
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
}

impl Authority {
    /// A new one.
    ///
    /// # Errors
    /// [`CertificateError::Generate`].
    pub fn generate() -> Result<Self, CertificateError> {
        let key = KeyPair::generate()?;
        let certificate = authority_params()?.self_signed(&key)?;
        Ok(Self { pair: Pair { certificate: certificate.pem(), key: key.serialize_pem() } })
    }

    /// The authority's own certificate.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.pair.certificate
    }

    fn sign(&self, params: &CertificateParams) -> Result<Pair, CertificateError> {
        let key = KeyPair::generate()?;
        let authority_key = KeyPair::from_pem(&self.pair.key)?;
        // Name and key are all that a signature takes from the authority.
        let issuer = Issuer::new(authority_params()?, authority_key);
        let certificate = params.signed_by(&key, &issuer)?;
        Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// A certificate that names a user and a group.
    ///
    /// # Errors
    /// [`CertificateError::Generate`].
    pub fn client(&self, name: &str, group: &str) -> Result<Pair, CertificateError> {
        let mut params = params(name, Some(group))?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    /// A certificate for a server that is reached under these addresses.
    ///
    /// # Errors
    /// [`CertificateError::Generate`].
    pub fn server(&self, addresses: &[IpAddr]) -> Result<Pair, CertificateError> {
        let mut params = params("celplane-apiserver", None)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for name in ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"] {
            params.subject_alt_names.push(SanType::DnsName(name.try_into()?));
        }
        params.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
        self.sign(&params)
    }
}

fn authority_params() -> Result<CertificateParams, CertificateError> {
    let mut params = params("celplane", None)?;
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
        let file = |source, path: &Path| CertificateError::File { path: path.to_owned(), source };
        fs::create_dir_all(directory).map_err(|error| file(error, directory))?;
        let load = |name: &str, make: &dyn Fn() -> Result<Pair, CertificateError>| -> Result<Pair, CertificateError> {
            let (certificate, key) = (directory.join(format!("{name}.crt")), directory.join(format!("{name}.key")));
            if certificate.exists() && key.exists() {
                let read = |path: &Path| fs::read_to_string(path).map_err(|error| file(error, path));
                return Ok(Pair { certificate: read(&certificate)?, key: read(&key)? });
            }
            let pair = make()?;
            write_private(&certificate, &pair.certificate)?;
            write_private(&key, &pair.key)?;
            Ok(pair)
        };
        let authority = Authority { pair: load("ca", &|| Ok(Authority::generate()?.pair))? };
        let server = load("apiserver", &|| authority.server(addresses))?;
        let admin = load("admin", &|| authority.client("kubernetes-admin", "system:masters"))?;
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

/// Writes a file that only its owner can read.
///
/// # Errors
/// [`CertificateError::File`].
pub fn write_private(path: &Path, text: &str) -> Result<(), CertificateError> {
    let write = || {
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())
    };
    write().map_err(|source| CertificateError::File { path: path.to_owned(), source })
}
