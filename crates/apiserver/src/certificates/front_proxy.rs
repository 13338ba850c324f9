//! The identity of the server towards aggregated API servers: a client certificate of an authority of its own.
//!
//! Aggregated API servers read that authority in `kube-system/extension-apiserver-authentication`, and believe the user that
//! a request with such a certificate names in its `X-Remote-` headers. The authority signs nothing else.

use std::fmt;
use std::path::Path;

use super::{Authority, CertificateError, Pair, Purpose, RENEWED_BEFORE_DAYS, has_ended, is_sound, lasts, load_pair};

/// The name in the certificate.
const NAME: &str = "front-proxy-client";
/// The name of the authority.
const AUTHORITY_NAME: &str = "front-proxy-ca";

/// The certificate that aggregated API servers see, and the authority that they trust.
#[derive(Clone)]
pub struct FrontProxy {
    /// The authorities of the certificate, in PEM.
    pub authorities: String,
    /// The certificate with its chain, in PEM.
    pub certificate: String,
    /// Its key, in PEM.
    pub key: String,
    /// The names in certificates that aggregated API servers accept; any if there are none.
    pub allowed_names: Vec<String>,
}

impl fmt::Debug for FrontProxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key stays out of logs.
        formatter.debug_struct("FrontProxy").field("allowed_names", &self.allowed_names).finish_non_exhaustive()
    }
}

impl FrontProxy {
    fn new(authority: &Authority, client: Pair) -> Self {
        Self {
            authorities: authority.certificate().to_owned(),
            certificate: client.certificate,
            key: client.key,
            allowed_names: vec![NAME.to_owned()],
        }
    }

    /// Generates a key pair that is kept in memory only.
    ///
    /// # Errors
    /// [`CertificateError::Generate`].
    pub fn generate() -> Result<Self, CertificateError> {
        let authority = Authority::named(AUTHORITY_NAME)?;
        let client = authority.client_in(NAME, None)?;
        Ok(Self::new(&authority, client))
    }

    /// Reads it from a directory, or makes it there. Authority and certificate are replaced before they end.
    ///
    /// # Errors
    /// Files that cannot be read or written.
    pub fn load_or_create(directory: &Path) -> Result<Self, CertificateError> {
        let is_usable = |pair: &Pair| !has_ended(pair);
        let pair = load_pair(directory, AUTHORITY_NAME, &is_usable, &|| Ok(Authority::named(AUTHORITY_NAME)?.pair))?;
        let authority = Authority { pair, name: AUTHORITY_NAME };
        let is_usable = |pair: &Pair| lasts(pair, RENEWED_BEFORE_DAYS) && is_sound(pair, &authority, Purpose::Client);
        let client = load_pair(directory, NAME, &is_usable, &|| authority.client_in(NAME, None))?;
        Ok(Self::new(&authority, client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_is_kept_until_authority_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let load = || FrontProxy::load_or_create(directory.path()).unwrap();
        let first = load();
        assert_eq!(first.certificate, load().certificate);
        std::fs::remove_file(directory.path().join("front-proxy-ca.crt")).unwrap();
        let second = load();
        assert_ne!((&first.authorities, &first.certificate), (&second.authorities, &second.certificate));
        assert!(!format!("{second:?}").contains("PRIVATE"));
    }
}
