//! TLS towards other servers: trust in their certificates, and the certificate that this server shows.

use std::sync::Arc;
use std::time::Duration;

use api::x509::certificate::Certificate;
use bytes::Bytes;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Trust in the certificate of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Trust {
    /// That of these authorities, in PEM; with none nothing is trusted.
    Authorities(Bytes),
    /// Any certificate will do.
    Anything,
}

/// A certificate with its chain, and its key, in PEM.
#[derive(Clone)]
pub(crate) struct ClientCertificate {
    pub(crate) chain: String,
    pub(crate) key: String,
}

/// Verifies the name first and the chain afterwards, as Go does: that decides which of two errors is reported.
#[derive(Debug)]
struct Verifier {
    /// Verifies the certificate chain; none if there are no certificate authorities.
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// The authorities themselves.
    certificates: Vec<CertificateDer<'static>>,
    trusts_anything: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.trusts_anything {
            return Ok(ServerCertVerified::assertion());
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        let Some(chain) = &self.chain else { return Err(CertificateError::UnknownIssuer.into()) };
        match chain.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // Go: a certificate of the bundle is trusted itself, also if it is marked as an authority (`openssl req -x509`
            // makes such certificates) or if its issuer is not in the bundle (controller-runtime's envtest installs
            // webhooks with the serving certificate as their bundle).
            Err(Error::InvalidCertificate(CertificateError::Other(_) | CertificateError::UnknownIssuer))
                if self.certificates.contains(certificate) =>
            {
                verify_time(certificate, now)
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Verifies that a certificate is valid at a time.
fn verify_time(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<ServerCertVerified, Error> {
    let certificate = Certificate::read(certificate).ok_or(CertificateError::BadEncoding)?;
    let unix =
        |seconds: i64| UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()));
    let (not_before, not_after) = (unix(certificate.not_before.seconds), unix(certificate.not_after.seconds));
    if now < not_before {
        return Err(CertificateError::NotValidYetContext { time: now, not_before }.into());
    }
    if now > not_after {
        return Err(CertificateError::ExpiredContext { time: now, not_after }.into());
    }
    Ok(ServerCertVerified::assertion())
}

/// The TLS configuration of a client.
///
/// # Errors
/// A text in Go's words.
pub(crate) fn client_config(trust: &Trust, certificate: Option<&ClientCertificate>) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = verifier(trust, provider.clone())?;
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| format!("tls: {error}"))?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let Some(certificate) = certificate else { return Ok(builder.with_no_client_auth()) };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate.chain.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes());
    let (Ok(chain), Ok(key)) = (chain, key) else {
        return Err("tls: failed to find any PEM data in certificate or key input".to_owned());
    };
    builder.with_client_auth_cert(chain, key).map_err(|error| format!("tls: {error}"))
}

fn verifier(trust: &Trust, provider: Arc<CryptoProvider>) -> Result<Verifier, String> {
    let (mut roots, mut certificates) = (RootCertStore::empty(), Vec::new());
    if let Trust::Authorities(authorities) = trust {
        for authority in CertificateDer::pem_slice_iter(authorities).flatten() {
            // An unusable authority vouches for nothing.
            let _ = roots.add(authority.clone());
            certificates.push(authority);
        }
        if roots.is_empty() && !authorities.is_empty() {
            return Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned());
        }
    }
    let chain = match roots.is_empty() {
        true => None,
        false => {
            let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
            Some(builder.build().map_err(|error| format!("tls: {error}"))?)
        }
    };
    let trusts_anything = *trust == Trust::Anything;
    Ok(Verifier { chain, certificates, trusts_anything, provider })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::Authority;

    #[test]
    fn certificate_of_the_bundle_is_trusted_without_its_issuer() {
        let authority = Authority::generate().unwrap();
        let serving = || authority.service(&["hooks.test".to_owned()]).unwrap();
        let (serving, other) = (serving(), serving());
        let trust = Trust::Authorities(Bytes::from(serving.certificate.clone()));
        let verifier = verifier(&trust, Arc::new(rustls::crypto::ring::default_provider())).unwrap();
        let verify = |pair: &crate::certificates::Pair, name: &'static str, now: UnixTime| {
            let name = ServerName::try_from(name).unwrap();
            match verifier.verify_server_cert(&pair.certificate_der().unwrap(), &[], &name, &[], now) {
                Ok(_) => None,
                Err(Error::InvalidCertificate(error)) => Some(error),
                Err(error) => panic!("{error}"),
            }
        };
        let now = UnixTime::now();
        assert_eq!(verify(&serving, "hooks.test", now), None);
        assert_eq!(verify(&other, "hooks.test", now), Some(CertificateError::UnknownIssuer));
        assert!(verify(&serving, "else.test", now).is_some());
        let late = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now.as_secs() + (100 * 366 * 24 * 3600)));
        assert!(verify(&serving, "hooks.test", late).is_some());
    }
}
