//! Bootstrap tokens: `ID.SECRET`, kept in secrets of the namespace `kube-system`, by which machines ask for their first
//! certificate.
//!
//! A token names the user `system:bootstrap:ID` in the group `system:bootstrappers` and in further groups below it. Follows
//! Kubernetes' `plugin/pkg/auth/authenticator/token/bootstrap`.

use std::collections::BTreeSet;

use api::json::Value;
use api::metadata;
use api::time::Timestamp;
use api::well_known::SECRET_BOOTSTRAP_TOKEN;
use ring::digest::{SHA256, digest};

use super::User;

/// The start of their names.
pub(crate) const NAME_PREFIX: &str = "bootstrap-token-";

const GROUP: &str = "system:bootstrappers";
const ID_BYTES: usize = 6;
const SECRET_BYTES: usize = 16;
const GROUP_BYTES_MAX: usize = 256;

/// ID and secret of a token; none if it has another form.
pub(crate) fn parse(token: &str) -> Option<(&str, &str)> {
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase());
    let (id, secret) = token.split_once('.')?;
    (id.len() == ID_BYTES && secret.len() == SECRET_BYTES && is_plain(id) && is_plain(secret)).then_some((id, secret))
}

/// The user of a token whose secret object is this; none if the token is not valid.
pub(crate) fn user(object: &Value, (id, secret): (&str, &str), now: Timestamp) -> Option<User> {
    let data = |key: &str| {
        let text = object.get("data").and_then(|data| data.get(key)).and_then(Value::as_str).unwrap_or_default();
        api::base64::decode(text).unwrap_or_default()
    };
    let kept = data("token-secret");
    // The time that a comparison of hashes takes reveals nothing about the secret.
    let is_known = digest(&SHA256, &kept).as_ref() == digest(&SHA256, secret.as_bytes()).as_ref();
    let is_valid = is_known
        && !metadata::is_deleting(object)
        && object.str_at(&["type"]) == Some(SECRET_BOOTSTRAP_TOKEN)
        && data("token-id") == id.as_bytes()
        && data("usage-bootstrap-authentication") == b"true"
        && !has_ended(&data("expiration"), now);
    if !is_valid {
        return None;
    }
    let extra = String::from_utf8(data("auth-extra-groups")).ok()?;
    let mut groups: BTreeSet<&str> = BTreeSet::from([GROUP]);
    for group in extra.split(',').filter(|_| !extra.is_empty()) {
        groups.insert(Some(group).filter(|it| is_group(it))?);
    }
    let groups: Vec<&str> = groups.into_iter().collect();
    Some(User::authenticated(format!("system:bootstrap:{id}"), &groups))
}

/// Whether a time is over; one that cannot be read is.
fn has_ended(expiration: &[u8], now: Timestamp) -> bool {
    if expiration.is_empty() {
        return false;
    }
    let end = std::str::from_utf8(expiration).ok().and_then(|text| Timestamp::parse(text).ok());
    end.is_none_or(|end| end <= now)
}

/// Whether a group is below `system:bootstrappers`.
fn is_group(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("system:bootstrappers:") else { return false };
    let is_inner = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase() || matches!(byte, b':' | b'-');
    let is_edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase());
    rest.len() <= GROUP_BYTES_MAX && rest.bytes().all(is_inner) && is_edge(rest.bytes().next_back())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(changes: &[(&str, &str)]) -> Value {
        let mut data = api::json!({});
        let all = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
            ("expiration", "2030-01-01T00:00:00Z"),
        ];
        for (key, value) in all.iter().chain(changes) {
            data.as_object_mut().unwrap().insert(*key, api::base64::encode(value.as_bytes()));
        }
        api::json!({"metadata": {"name": "bootstrap-token-abcdef"}, "type": SECRET_BOOTSTRAP_TOKEN, "data": data})
    }

    fn accepted(object: &Value, token: &str) -> Option<User> {
        user(object, parse(token)?, Timestamp::parse("2026-11-18T00:00:00Z").unwrap())
    }

    #[test]
    fn token_names_user_and_groups() {
        let token = "abcdef.0123456789abcdef";
        let groups = [("auth-extra-groups", "system:bootstrappers:z,system:bootstrappers:kubeadm:default-node-token")];
        let user = accepted(&secret(&groups), token).unwrap();
        assert_eq!(user.name, "system:bootstrap:abcdef");
        let expected = [
            "system:bootstrappers",
            "system:bootstrappers:kubeadm:default-node-token",
            "system:bootstrappers:z",
            "system:authenticated",
        ];
        assert_eq!(user.groups, expected);
        for wrong in [
            ("token-secret", "0123456789abcdeg"),
            ("token-secret", ""),
            ("token-id", "abcdeg"),
            ("usage-bootstrap-authentication", "false"),
            ("expiration", "2026-11-18T00:00:00Z"),
            ("expiration", "tomorrow"),
            ("auth-extra-groups", "system:masters"),
            ("auth-extra-groups", "system:bootstrappers:a,"),
            ("auth-extra-groups", "system:bootstrappers:A"),
        ] {
            assert_eq!(accepted(&secret(&[wrong]), token), None, "{wrong:?}");
        }
        let mut other = secret(&[]);
        other.as_object_mut().unwrap().insert("type", "Opaque");
        assert_eq!(accepted(&other, token), None);
        for wrong in ["", "abcdef", "abcdef.0123456789abcde", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcdef.x"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
