//! The user that a client certificate names.
//!
//! The chain has been verified by TLS before anyone looks in here. Follows Kubernetes'
//! `authentication/request/x509`: name, uid and groups, and the certificate's fingerprint as the credential.

use api::x509;

use super::User;

/// A certificate with an ambiguous subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the subject of the certificate cannot be read")]
pub struct UnreadableCertificate;

/// The user that a certificate names: its common name, in the groups of its organizations; none if it has no name.
///
/// # Errors
/// [`UnreadableCertificate`]: then it is not the same as none.
pub fn subject(certificate: &[u8]) -> Result<Option<User>, UnreadableCertificate> {
    let names = x509::certificate_subject(certificate).ok_or(UnreadableCertificate)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::Authority;

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
}
