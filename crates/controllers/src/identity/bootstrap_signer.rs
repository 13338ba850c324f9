//! Signs `kube-public/cluster-info` with every bootstrap token that may sign, so that the holder of a token can
//! trust its contents.
//!
//! Follows Kubernetes `pkg/controller/bootstrap/bootstrapsigner.go` and `cluster-bootstrap/token/jws`.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::core::v1::{ConfigMap, Secret};
use api::json::{Object, Value};
use api::time::Timestamp;
use api::well_known::NAMESPACE_PUBLIC;
use client::Document;
use client::controller::{Controller, Next};
use client::informer::Key;
use client::objects::Selection;
use client::resources::ServedView as _;

use crate::identity::token_cleaner::{self, tokens_of};
use crate::machinery::action::Action;
use crate::machinery::executor::Failure;
use crate::manager::Context;

const NAME: &str = "cluster-info";
const CONTENT: &str = "kubeconfig";
const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";
const SECRET_PREFIX: &str = "bootstrap-token-";

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let selection = Selection {
        namespace: NAMESPACE_PUBLIC.to_owned(),
        fields: format!("metadata.name={NAME}"),
        ..Selection::default()
    };
    let maps = context.informers.of::<Document<ConfigMap>>(&selection);
    let tokens = tokens_of(&context);
    let executor = context.executor();
    let only = || Key::new(NAMESPACE_PUBLIC, NAME);
    let runner = Controller::new(context.name, &context.runtime)
        .watch(&maps, move |_| [only()])
        .watch(&tokens, move |_| [only()]);
    runner
        .run(move |key: Key| {
            let (maps, tokens, executor) = (maps.clone(), tokens.clone(), executor.clone());
            async move {
                let Some(map) = maps.store().get_key(&key) else { return Ok::<_, Failure>(Next::Done) };
                let Some(object) = signed(map.value(), &tokens.store().list(), executor.now()) else {
                    return Ok(Next::Done);
                };
                let action = Action::Update { resource: ConfigMap::RESOURCE, object };
                match executor.perform(&key, vec![action]).await {
                    Err(failure) if failure.code() == 404 => Ok(Next::Done),
                    result => result.map(|()| Next::Done),
                }
            }
        })
        .await;
}

/// The ConfigMap with up-to-date signatures; nothing if its signatures are up to date.
fn signed(map: &Value, tokens: &[Arc<Secret>], now: Timestamp) -> Option<Value> {
    let content = map.str_at(&["data", CONTENT])?;
    let mut wanted = BTreeMap::new();
    for (id, secret) in tokens.iter().filter_map(|token| signing(token, now)) {
        wanted.entry(format!("{SIGNATURE_PREFIX}{id}")).or_insert_with(|| signature(content, &id, &secret));
    }
    let data = map.get("data").and_then(Value::as_object)?;
    let is_signature = |key: &str| key.starts_with(SIGNATURE_PREFIX);
    let known: BTreeMap<String, String> = data
        .iter()
        .filter(|(key, _)| is_signature(key))
        .map(|(key, value)| (key.to_owned(), value.as_str().unwrap_or_default().to_owned()))
        .collect();
    if known == wanted {
        return None;
    }
    let kept = data.iter().filter(|(key, _)| !is_signature(key)).map(|(key, value)| (key.to_owned(), value.clone()));
    let new: Object = kept.chain(wanted.into_iter().map(|(key, value)| (key, Value::from(value)))).collect();
    let mut object = map.clone();
    object.set_at(&["data"], Value::Object(new));
    Some(object)
}

/// Id and secret of a token that may sign.
fn signing(token: &Secret, now: Timestamp) -> Option<(String, String)> {
    let text = |key: &str| {
        let bytes = api::base64::decode(token.data.get(key)?).ok()?;
        String::from_utf8(bytes).ok().filter(|text| !text.is_empty())
    };
    let id = text("token-id").filter(|id| token.metadata.name.strip_prefix(SECRET_PREFIX) == Some(id))?;
    let secret = text("token-secret")?;
    let has_ended = token_cleaner::left(token, now).is_some_and(|left| left.is_zero());
    (!has_ended && text("usage-bootstrap-signing").as_deref() == Some("true")).then_some((id, secret))
}

/// A JWS without its content (RFC 7515, appendix F): the signature of `cluster-info` by a token.
#[must_use]
pub fn signature(content: &str, id: &str, secret: &str) -> String {
    let header = url_encode(api::json::to_string(&api::json!({"alg": "HS256", "kid": id})).as_bytes());
    let signed = format!("{header}.{}", url_encode(content.as_bytes()));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
    format!("{header}..{}", url_encode(ring::hmac::sign(&key, signed.as_bytes()).as_ref()))
}

/// Base64 as URLs have it, without padding.
fn url_encode(bytes: &[u8]) -> String {
    api::base64::encode(bytes).trim_end_matches('=').replace('+', "-").replace('/', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(id: &str, fields: &[(&str, &str)]) -> Arc<Secret> {
        let encoded = |(key, value): &(&str, &str)| ((*key).into(), api::base64::encode(value.as_bytes()).into());
        let own = [("token-id", id), ("token-secret", "secret"), ("usage-bootstrap-signing", "true")];
        let mut secret = Secret { data: own.iter().chain(fields).map(encoded).collect(), ..Secret::default() };
        secret.metadata.name = format!("{SECRET_PREFIX}{id}").into();
        Arc::new(secret)
    }

    #[test]
    fn every_token_that_may_sign_signs_once() {
        let now = Timestamp::parse("2020-01-01T00:00:10Z").expect("a time");
        let map = api::json!({"data": {"kubeconfig": "content", "jws-kubeconfig-old": "x", "other": "y"}});
        let tokens = [
            token("abcdef", &[]),
            token("ended", &[("expiration", "2020-01-01T00:00:00Z")]),
            token("silent", &[("usage-bootstrap-signing", "false")]),
        ];
        let new = signed(&map, &tokens, now).expect("it lacks one");
        // The value is that of `openssl dgst -sha256 -hmac secret` over header and content.
        let wanted = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..yAZ_jTjfjZwk8aPJg1b2r49vnOLBio6z30Xol1IOnAQ";
        assert_eq!(
            new.get("data"),
            Some(&api::json!({"kubeconfig": "content", "other": "y", "jws-kubeconfig-abcdef": wanted}))
        );
        assert_eq!(signed(&new, &tokens, now), None);
        assert_eq!(signed(&api::json!({"data": {"other": "y"}}), &tokens, now), None);
        assert_eq!(
            signed(&new, &[], now).expect("one too many").get("data"),
            Some(&api::json!({"kubeconfig": "content", "other": "y"}))
        );
    }
}
