//! Documents for the verification of service account tokens: OpenID discovery and the public keys.

use std::sync::Arc;

use api::json;
use api::json::Value;
use http::header::CACHE_CONTROL;

use super::Server;
use crate::identity::keys::PublicKey;
use crate::wire::answer::Answer;

/// Cache lifetime of both documents.
const CACHE: &str = "public, max-age=3600";

/// Issuer of tokens, and the location of the keys.
pub(super) fn configuration(server: &Arc<Server>) -> Answer {
    let keys = server.authenticator.service_accounts.keys();
    let mut algorithms: Vec<&str> = keys.accepted().iter().map(PublicKey::algorithm).collect();
    algorithms.sort_unstable();
    algorithms.dedup();
    let algorithms = Value::Array(algorithms.into_iter().map(Value::from).collect());
    let document = json!({
        "issuer": (server.authenticator.service_accounts.issuer()),
        "jwks_uri": (format!("https://{}/openid/v1/jwks", server.options.address)),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": (algorithms)
    });
    Answer::bytes(200, "application/json", json::to_string(&document)).with_header(CACHE_CONTROL, CACHE)
}

/// The keys that verify tokens.
pub(super) fn keys(server: &Arc<Server>) -> Answer {
    let keys = server.authenticator.service_accounts.keys();
    let keys = keys.accepted().iter().map(PublicKey::jwk);
    let document = json!({"keys": (Value::Array(keys.collect()))});
    Answer::bytes(200, "application/jwk-set+json", json::to_string(&document)).with_header(CACHE_CONTROL, CACHE)
}
