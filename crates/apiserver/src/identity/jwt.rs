//! JSON web tokens as far as service accounts need them: `ES256` and `RS256`, nothing optional.
//!
//! A token has three parts in base64 without padding: header, claims, signature. Nothing in it is used before
//! the signature has been verified, except the issuer, which decides whether the token is ours at all.

use api::json;
use api::json::Value;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::keys::{KeyRing, PublicKey, SigningKey};

/// A longer token is refused unread. Ours are shorter than 2 KiB.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// A reason to reject a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Not a token, or from another issuer.
    #[error("no token of this issuer")]
    NotOurs,
    /// The token has our issuer, but none of our keys has signed it.
    #[error("invalid signature")]
    Signature,
}

/// Signs claims.
#[must_use]
pub fn sign(key: &SigningKey, claims: &Value) -> Option<String> {
    let header = json::to_string(&json!({"alg": (key.public().algorithm()), "kid": (key.public().id())}));
    let mut token = URL_SAFE_NO_PAD.encode(header);
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(json::to_string(claims), &mut token);
    let signature = key.sign(token.as_bytes())?;
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(signature, &mut token);
    Some(token)
}

/// The claims of a token that `issuer` has signed with one of its keys. Times and audiences are left to the caller.
///
/// # Errors
/// [`TokenError`].
pub fn verify(keys: &KeyRing, issuer: &str, token: &str) -> Result<Value, TokenError> {
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::NotOurs);
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenError::NotOurs);
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::NotOurs)?;
    let (header, claims) = signed.split_once('.').filter(|(_, it)| !it.contains('.')).ok_or(TokenError::NotOurs)?;
    let document = |part: &str| json::parse(&decode(part)?).map_err(|_| TokenError::NotOurs);
    let (header, claims) = (document(header)?, document(claims)?);
    if claims.str_at(&["iss"]) != Some(issuer) {
        return Err(TokenError::NotOurs);
    }
    if header.get("crit").is_some() {
        return Err(TokenError::Signature);
    }
    let algorithm = header.text("alg");
    let signature = decode(signature)?;
    let named = header.text("kid");
    // The key decides the algorithm, not the token: a token that names another one is refused.
    let is_candidate = |key: &&PublicKey| key.algorithm() == algorithm && (named.is_empty() || key.id() == named);
    let mut candidates = keys.accepted().iter().filter(is_candidate);
    if candidates.any(|key| key.verifies(signed.as_bytes(), &signature)) {
        return Ok(claims);
    }
    Err(TokenError::Signature)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_signed_tokens_are_accepted() {
        let keys = KeyRing::generate().unwrap();
        let claims = json!({"iss": "us", "sub": "a"});
        let token = sign(keys.signing(), &claims).unwrap();
        assert_eq!(verify(&keys, "us", &token), Ok(claims));
        assert_eq!(verify(&keys, "them", &token), Err(TokenError::NotOurs));
        assert_eq!(verify(&KeyRing::generate().unwrap(), "us", &token), Err(TokenError::Signature));
        let parts: Vec<&str> = token.split('.').collect();
        let forged = URL_SAFE_NO_PAD.encode(r#"{"iss":"us","sub":"b"}"#);
        let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        for (forged, expected) in [
            (format!("{}.{forged}.{}", parts[0], parts[2]), TokenError::Signature),
            (format!("{none}.{}.{}", parts[1], parts[2]), TokenError::Signature),
            (format!("{none}.{}.", parts[1]), TokenError::Signature),
            (format!("{}.{}.", parts[0], parts[1]), TokenError::Signature),
            (format!("{}.{}", parts[0], parts[1]), TokenError::NotOurs),
            (format!("{token}.x"), TokenError::NotOurs),
            (format!("{token}="), TokenError::NotOurs),
            ("nope".to_owned(), TokenError::NotOurs),
            (String::new(), TokenError::NotOurs),
        ] {
            assert_eq!(verify(&keys, "us", &forged), Err(expected), "{forged}");
        }
    }

    #[test]
    fn rsa_keys_sign_tokens() {
        let keys = KeyRing::parse(include_str!("keys/rsa.pem")).unwrap();
        let claims = json!({"iss": "us"});
        let token = sign(keys.signing(), &claims).unwrap();
        assert_eq!(verify(&keys, "us", &token), Ok(claims));
        let (_, rest) = token.split_once('.').unwrap();
        let other = URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256"}"#);
        assert_eq!(verify(&keys, "us", &format!("{other}.{rest}")), Err(TokenError::Signature));
    }

    #[test]
    fn the_old_key_is_accepted_beside_the_new_one() {
        let (old, pem) = SigningKey::generate().unwrap();
        let token = sign(&old, &json!({"iss": "us"})).unwrap();
        let mut keys = KeyRing::generate().unwrap();
        assert_eq!(verify(&keys, "us", &token), Err(TokenError::Signature));
        keys.accept(&pem).unwrap();
        assert!(verify(&keys, "us", &token).is_ok());
    }
}
