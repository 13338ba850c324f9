//! Tokens of service accounts that are kept in secrets and have no end.
//!
//! One is good while its secret exists and holds it, and its account exists. Follows Kubernetes' `pkg/serviceaccount/legacy.go`,
//! with its claims and texts.

use api::json;
use api::json::Value;

use super::jwt;
use super::keys::SigningKey;

/// Issuer of such tokens, in every cluster.
pub const ISSUER: &str = "kubernetes/serviceaccount";

const NAMESPACE: &str = "kubernetes.io/serviceaccount/namespace";
const SECRET: &str = "kubernetes.io/serviceaccount/secret.name";
const NAME: &str = "kubernetes.io/serviceaccount/service-account.name";
const UID: &str = "kubernetes.io/serviceaccount/service-account.uid";

/// Account of a token, and the secret that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The namespace of both.
    pub namespace: &'a str,
    /// The account's name.
    pub account: &'a str,
    /// The account's uid.
    pub account_uid: &'a str,
    /// The secret's name.
    pub secret: &'a str,
}

/// A token; none if the key cannot sign.
#[must_use]
pub fn issue(key: &SigningKey, subject: &Subject<'_>) -> Option<String> {
    let claims = json!({
        "iss": ISSUER,
        NAMESPACE: (subject.namespace),
        SECRET: (subject.secret),
        NAME: (subject.account),
        UID: (subject.account_uid),
        "sub": (name_of(subject)),
    });
    jwt::sign(key, &claims)
}

fn name_of(subject: &Subject<'_>) -> String {
    format!("system:serviceaccount:{}:{}", subject.namespace, subject.account)
}

/// Reads the subject from verified claims.
///
/// # Errors
/// What is missing.
pub(crate) fn subject(claims: &Value) -> Result<Subject<'_>, String> {
    let claim = |key: &str, what: &str| {
        let text = claims.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        text.ok_or_else(|| format!("{what} claim is missing"))
    };
    let subject = Subject {
        namespace: claim(NAMESPACE, "namespace")?,
        secret: claim(SECRET, "secretName")?,
        account: claim(NAME, "serviceAccountName")?,
        account_uid: claim(UID, "serviceAccountUID")?,
    };
    if claims.str_at(&["sub"]) != Some(name_of(&subject).as_str()) {
        return Err("sub claim is invalid".to_owned());
    }
    Ok(subject)
}

#[cfg(test)]
mod tests {
    use super::super::keys::KeyRing;
    use super::*;

    #[test]
    fn token_contains_its_account() {
        let keys = KeyRing::generate().unwrap();
        let bot = Subject { namespace: "a", account: "bot", account_uid: "u", secret: "s" };
        let token = issue(keys.signing(), &bot).unwrap();
        let claims = jwt::verify(&keys, ISSUER, &token).unwrap();
        assert_eq!(subject(&claims), Ok(bot));
        assert_eq!(subject(&json!({"sub": "x"})), Err("namespace claim is missing".to_owned()));
        let mut other = claims.clone();
        other.as_object_mut().unwrap().insert("sub", "system:serviceaccount:a:root");
        assert_eq!(subject(&other), Err("sub claim is invalid".to_owned()));
    }
}
