//! What others need to verify service account tokens: OpenID discovery and the public keys.

use std::sync::Arc;

use api::json;
use api::json::Value;
use http::header::CACHE_CONTROL;

use super::Server;
use crate::http::answer::Answer;

/// How long both documents may be kept.
const CACHE: &str = "public, max-age=3600";

/// Who signs tokens, and where the keys are.
pub(super) fn configuration(server: &Arc<Server>) -> Answer {
    let document = json!({
        "issuer": (server.authenticator.service_accounts.issuer()),
        "jwks_uri": (format!("https://{}/openid/v1/jwks", server.options.address)),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"]
    });
    Answer::bytes(200, "application/json", json::to_string(&document)).with_header(CACHE_CONTROL, CACHE)
}

/// The keys that verify tokens.
pub(super) fn keys(server: &Arc<Server>) -> Answer {
    let keys = server.authenticator.service_accounts.keys();
    let keys = keys.accepted().iter().map(|key| {
        let (x, y) = key.coordinates();
        json!({"use": "sig", "kty": "EC", "kid": (key.id()), "crv": "P-256", "alg": "ES256", "x": x, "y": y})
    });
    let document = json!({"keys": (Value::Array(keys.collect()))});
    Answer::bytes(200, "application/jwk-set+json", json::to_string(&document)).with_header(CACHE_CONTROL, CACHE)
}
