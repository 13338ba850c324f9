//! Service accounts as users: the tokens that they are given, and what makes a token good.
//!
//! A token is good while its account exists and, if it is bound to a pod, secret or node, while that exists too.
//! Follows Kubernetes' `pkg/serviceaccount` (`claims.go`, `jwt.go`), with its claims and texts.

use locks::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::go_text::quote;
use api::json;
use api::json::Value;
use api::time::Timestamp;
use api::well_known::GROUP_SERVICE_ACCOUNTS;

use super::User;
use super::jwt::{self, TokenError};
use super::keys::KeyRing;
use super::legacy_tokens;
use crate::random;
use crate::resources::{self, Resource};
use api::metadata;
use cache::Cache;

/// Tolerated difference between clocks.
const LEEWAY_SECONDS: i64 = 60;

/// Maximum number of cached verified tokens, because verification costs more than most requests.
const REMEMBERED_MAX: usize = 4096;

const USER_PREFIX: &str = "system:serviceaccount:";

/// An object that a token is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Reference {
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// Objects that a token is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct BoundObjects {
    pub(crate) pod: Option<Reference>,
    pub(crate) secret: Option<Reference>,
    pub(crate) node: Option<Reference>,
}

/// The lifetime of a token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lifetime {
    pub(crate) seconds: i64,
    /// After this long its use is worth a warning.
    pub(crate) warn_after_seconds: Option<i64>,
}

/// User of a token, and its matching audiences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VerifiedToken {
    pub(crate) user: User,
    pub(crate) audiences: Vec<String>,
}

/// A reason to reject a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenRejection {
    /// In Kubernetes' words.
    pub(crate) message: String,
    /// Whether the decision depends on objects in the cache, which may be outdated.
    pub(crate) by_objects: bool,
}

impl TokenRejection {
    pub(crate) fn for_good(message: impl Into<String>) -> Self {
        Self { message: message.into(), by_objects: false }
    }
}

/// Issues and checks tokens.
pub(crate) struct ServiceAccounts {
    cache: Arc<Cache>,
    issuer: String,
    audiences: Vec<String>,
    keys: RwLock<Arc<KeyRing>>,
    /// Claims whose signature has been verified.
    remembered: Mutex<HashMap<Box<str>, Arc<Value>>>,
}

impl ServiceAccounts {
    /// Tokens are issued by `issuer`; for `audiences` they are good here.
    pub(crate) fn new(cache: Arc<Cache>, issuer: &str, audiences: &[String], keys: KeyRing) -> Self {
        let audiences = if audiences.is_empty() { vec![issuer.to_owned()] } else { audiences.to_vec() };
        let (issuer, keys) = (issuer.to_owned(), RwLock::new(Arc::new(keys)));
        Self { cache, issuer, audiences, keys, remembered: Mutex::default() }
    }

    /// Replaces the keys.
    pub(crate) fn set_keys(&self, keys: KeyRing) {
        *self.keys.write() = Arc::new(keys);
        self.remembered.lock().clear();
    }

    pub(crate) fn keys(&self) -> Arc<KeyRing> {
        self.keys.read().clone()
    }

    /// Audiences of the server itself.
    pub(crate) fn audiences(&self) -> &[String] {
        &self.audiences
    }

    pub(crate) fn issuer(&self) -> &str {
        &self.issuer
    }

    /// A new token for an account, and its ID.
    pub(crate) fn issue(
        &self,
        account: &Value,
        bound: &BoundObjects,
        audiences: &[String],
        now: Timestamp,
        lifetime: Lifetime,
    ) -> Option<(String, String)> {
        let (namespace, name) = (metadata::namespace(account), metadata::name(account));
        let reference = |it: &Reference| json!({"name": (it.name.as_str()), "uid": (it.uid.as_str())});
        let mut kubernetes = json!({
            "namespace": namespace,
            "serviceaccount": {"name": name, "uid": (metadata::text(account, "uid"))}
        });
        if let Some(fields) = kubernetes.as_object_mut() {
            for (field, bound) in [("pod", &bound.pod), ("secret", &bound.secret), ("node", &bound.node)] {
                if let Some(bound) = bound {
                    fields.insert(field, reference(bound));
                }
            }
            if let Some(seconds) = lifetime.warn_after_seconds {
                fields.insert("warnafter", now.seconds.saturating_add(seconds));
            }
        }
        let audiences: Vec<Value> = audiences.iter().map(|it| it.as_str().into()).collect();
        let id = random::uid();
        let claims = json!({
            "aud": (Value::Array(audiences)),
            "exp": (now.seconds.saturating_add(lifetime.seconds)),
            "iat": (now.seconds),
            "iss": (self.issuer.as_str()),
            "jti": (id.clone()),
            "kubernetes.io": kubernetes,
            "nbf": (now.seconds),
            "sub": (format!("{USER_PREFIX}{namespace}:{name}"))
        });
        jwt::sign(self.keys().signing(), &claims).map(|token| (token, id))
    }

    /// Verifies a token. `None` if it is not one of ours.
    ///
    /// # Errors
    /// Why one of ours is not good (any more).
    pub(crate) fn verify(
        &self,
        token: &str,
        wanted: &[String],
        now: Timestamp,
    ) -> Result<Option<VerifiedToken>, TokenRejection> {
        let claims = match self.claims(token) {
            Ok(claims) => claims,
            Err(TokenError::NotOurs) => return Ok(None),
            Err(error) => return Err(TokenRejection::for_good(error.to_string())),
        };
        if claims.str_at(&["iss"]) == Some(legacy_tokens::ISSUER) && self.issuer != legacy_tokens::ISSUER {
            return self.verify_legacy(token, &claims, wanted, now).map(Some);
        }
        let fitting = fitting(&audiences_of(&claims), wanted)?;
        check_times(&claims, now).map_err(TokenRejection::for_good)?;
        let user = self.user(&claims, now).map_err(|message| TokenRejection { message, by_objects: true })?;
        Ok(Some(VerifiedToken { user, audiences: fitting }))
    }

    /// Verifies a token from a secret. It has no audience: it is valid for this server.
    fn verify_legacy(
        &self,
        token: &str,
        claims: &Value,
        wanted: &[String],
        now: Timestamp,
    ) -> Result<VerifiedToken, TokenRejection> {
        let fitting = fitting(&self.audiences, wanted)?;
        let subject = legacy_tokens::subject(claims).map_err(TokenRejection::for_good)?;
        let user =
            self.legacy_user(token, &subject, now).map_err(|message| TokenRejection { message, by_objects: true })?;
        Ok(VerifiedToken { user, audiences: fitting })
    }

    fn legacy_user(&self, token: &str, subject: &legacy_tokens::Subject<'_>, now: Timestamp) -> Result<User, String> {
        let legacy_tokens::Subject { namespace, account: name, account_uid, secret } = *subject;
        let secret = self.object(resources::SECRETS, namespace, secret).filter(|it| !is_long_deleted(it, now));
        let Some(secret) = secret else { return Err("service account token has been invalidated".to_owned()) };
        let kept = secret.str_at(&["data", "token"]).and_then(|text| api::base64::decode(text).ok());
        if kept.as_deref() != Some(token.as_bytes()) {
            return Err("service account token does not match server's copy".to_owned());
        }
        let Some(account) = self.object(resources::SERVICE_ACCOUNTS, namespace, name) else {
            return Err(format!("serviceaccounts {} not found", quote(name)));
        };
        if is_long_deleted(&account, now) {
            return Err(format!("service account {namespace}/{name} has been deleted"));
        }
        let uid = metadata::text(&account, "uid");
        if uid != account_uid {
            return Err(format!("service account UID ({uid}) does not match claim ({account_uid})"));
        }
        Ok(User { uid: uid.to_owned(), ..account_user(namespace, name) })
    }

    /// The claims of a token whose signature holds.
    fn claims(&self, token: &str) -> Result<Arc<Value>, TokenError> {
        let lock = || self.remembered.lock();
        if let Some(claims) = lock().get(token) {
            return Ok(claims.clone());
        }
        let keys = self.keys();
        let claims = match jwt::verify(&keys, &self.issuer, token) {
            Err(TokenError::NotOurs) => jwt::verify(&keys, legacy_tokens::ISSUER, token)?,
            claims => claims?,
        };
        let claims = Arc::new(claims);
        let mut remembered = lock();
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(token.into(), claims.clone());
        Ok(claims)
    }

    fn user(&self, claims: &Value, now: Timestamp) -> Result<User, String> {
        let invalidated = || "service account token has been invalidated".to_owned();
        let at = |path: &[&str]| claims.get("kubernetes.io").and_then(|it| it.str_at(path)).unwrap_or_default();
        let reference = |kind: &str| {
            let given = claims.at(&["kubernetes.io", kind]).is_some_and(|it| !it.is_null());
            given.then(|| Reference { name: at(&[kind, "name"]).to_owned(), uid: at(&[kind, "uid"]).to_owned() })
        };
        let (namespace, name) = (at(&["namespace"]), at(&["serviceaccount", "name"]));
        if claims.str_at(&["sub"]) != Some(format!("{USER_PREFIX}{namespace}:{name}").as_str()) {
            return Err("sub claim is invalid".to_owned());
        }
        let Some(account) = self.object(resources::SERVICE_ACCOUNTS, namespace, name) else {
            return Err(format!("serviceaccounts {} not found", quote(name)));
        };
        let (uid, claimed) = (metadata::text(&account, "uid"), at(&["serviceaccount", "uid"]));
        if uid != claimed {
            return Err(format!("service account UID ({uid}) does not match claim ({claimed})"));
        }
        if is_long_deleted(&account, now) {
            return Err(format!("service account {namespace}/{name} has been deleted"));
        }
        let (pod, node) = (reference("pod"), reference("node"));
        let checked = [
            ("secret", resources::SECRETS, namespace, reference("secret")),
            ("pod", resources::PODS, namespace, pod.clone()),
            // With a pod, the node is only reported.
            ("node", resources::NODES, "", node.clone().filter(|_| pod.is_none())),
        ];
        for (kind, row, namespace, bound) in checked {
            let Some(bound) = bound else { continue };
            let object = self.object(row, namespace, &bound.name).ok_or_else(invalidated)?;
            let uid = metadata::text(&object, "uid");
            if uid != bound.uid {
                return Err(format!(
                    "{kind} UID ({uid}) does not match service account {kind} ref claim ({})",
                    bound.uid
                ));
            }
            if is_long_deleted(&object, now) {
                return Err(invalidated());
            }
        }
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut report = |key: &str, value: &str| {
            if !value.is_empty() {
                extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]);
            }
        };
        if let Some(pod) = &pod {
            report("pod-name", &pod.name);
            report("pod-uid", &pod.uid);
        }
        if let Some(node) = &node {
            report("node-name", &node.name);
            report("node-uid", &node.uid);
        }
        if let Some(id) = claims.str_at(&["jti"]).filter(|id| !id.is_empty()) {
            report("credential-id", &format!("JTI={id}"));
        }
        Ok(User { uid: uid.to_owned(), extra, ..account_user(namespace, name) })
    }

    /// An object of the cache.
    pub(super) fn object(&self, resource: &Resource<'_>, namespace: &str, name: &str) -> Option<Value> {
        self.cache.resource(&resource.prefix()).get(&resource.key(namespace, name)).map(|object| object.decode())
    }
}

/// The user that an account is.
pub(crate) fn account_user(namespace: &str, name: &str) -> User {
    let of_namespace = format!("system:serviceaccounts:{namespace}");
    User::authenticated(format!("{USER_PREFIX}{namespace}:{name}"), &[GROUP_SERVICE_ACCOUNTS, &of_namespace])
}

/// Namespace and name of the account that a user is, if it is one.
pub(crate) fn split_user(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(USER_PREFIX)?.split_once(':')?;
    let fits = api::names::is_dns_label(namespace) && api::names::is_dns_subdomain(name);
    fits.then_some((namespace, name))
}

/// Returns the wanted audiences that a token has.
fn fitting(audiences: &[String], wanted: &[String]) -> Result<Vec<String>, TokenRejection> {
    let fitting: Vec<String> = audiences.iter().filter(|it| wanted.contains(it)).cloned().collect();
    if fitting.is_empty() {
        let list = |list: &[String]| list.iter().map(|it| quote(it)).collect::<Vec<_>>().join(" ");
        let (given, wanted) = (list(audiences), list(wanted));
        let message = format!("token audiences [{given}] is invalid for the target audiences [{wanted}]");
        return Err(TokenRejection::for_good(message));
    }
    Ok(fitting)
}

fn audiences_of(claims: &Value) -> Vec<String> {
    match claims.get("aud") {
        Some(Value::String(one)) => vec![one.to_string()],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect(),
        _ => Vec::new(),
    }
}

fn check_times(claims: &Value, now: Timestamp) -> Result<(), String> {
    let time = |field: &str| claims.get(field).and_then(Value::as_i64);
    // A limit that cannot be read is not the same as none.
    let is_unreadable = |field: &&&str| claims.get(field).is_some_and(|it| it.as_i64().is_none());
    if let Some(field) = ["nbf", "exp", "iat"].iter().find(is_unreadable) {
        return Err(format!("service account token has an invalid {field} claim"));
    }
    let earliest = now.seconds.saturating_sub(LEEWAY_SECONDS);
    let latest = now.seconds.saturating_add(LEEWAY_SECONDS);
    if time("nbf").is_some_and(|time| time > latest) {
        return Err("service account token is not valid yet".to_owned());
    }
    // One without an end is none of ours.
    if time("exp").is_none_or(|time| time < earliest) {
        return Err("service account token has expired".to_owned());
    }
    if time("iat").is_some_and(|time| time > latest) {
        return Err("service account token is issued in the future".to_owned());
    }
    Ok(())
}

fn is_long_deleted(object: &Value, now: Timestamp) -> bool {
    let Some(deleted) = object.at(&["metadata", "deletionTimestamp"]).filter(|it| !it.is_null()) else { return false };
    // Without a readable time, it counts as long ago.
    let deleted = deleted.as_str().and_then(|text| Timestamp::parse(text).ok());
    deleted.is_none_or(|deleted| deleted.seconds < now.seconds.saturating_sub(LEEWAY_SECONDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_cannot_be_read_are_refused() {
        let now = Timestamp::parse("2026-01-01T00:00:00Z").unwrap();
        let claims = |text: &str| api::json::parse(text.as_bytes()).unwrap();
        let later = now.seconds + 600;
        assert!(check_times(&claims(&format!("{{\"exp\": {later}}}")), now).is_ok());
        for wrong in ["\"nbf\": \"never\"", "\"nbf\": 1e300", "\"iat\": null", "\"iat\": {}"] {
            assert!(check_times(&claims(&format!("{{\"exp\": {later}, {wrong}}}")), now).is_err(), "{wrong}");
        }
        assert!(check_times(&claims("{}"), now).is_err());
        let object = |time: &str| claims(&format!("{{\"metadata\": {{\"deletionTimestamp\": {time}}}}}"));
        assert!(is_long_deleted(&object("\"soon\""), now) && is_long_deleted(&object("7"), now));
        assert!(!is_long_deleted(&object("null"), now) && !is_long_deleted(&object("\"2026-01-01T00:00:00Z\""), now));
    }
}
