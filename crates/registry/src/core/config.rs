//! ConfigMaps, Secrets and ServiceAccounts.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use crate::document::{Edit, Read};
use crate::generic;
use crate::meta;
use crate::strategy::{Context, PLAIN, Strategy};

const MAX_BYTES: usize = 1024 * 1024;
const FIXED: &str = "field is immutable when `immutable` is set";

pub(crate) const CONFIG_MAP: Strategy = Strategy {
    validate_create: validate_config_map,
    validate_update: |map, old, context, errors| {
        meta::validate_update(map, old, errors);
        validate_immutable(map, old, &["data", "binaryData"], errors);
        validate_config_map(map, context, errors);
    },
    ..PLAIN
};

pub(crate) const SECRET: Strategy = Strategy {
    prepare_create: |secret, _| merge_string_data(secret),
    validate_create: validate_secret,
    prepare_update: |secret, old, _| {
        merge_string_data(secret);
        // The type need not be repeated.
        secret.set_default("type", old.field("type").clone());
    },
    validate_update: |secret, old, context, errors| {
        meta::validate_update(secret, old, errors);
        meta::immutable(secret.field("type"), old.field("type"), Path::new("type"), errors);
        validate_immutable(secret, old, &["data"], errors);
        validate_secret(secret, context, errors);
    },
    ..PLAIN
};

pub(crate) const SERVICE_ACCOUNT: Strategy = Strategy {
    prepare_create: |account, _| keep_secret_names(account),
    prepare_update: |account, _, _| keep_secret_names(account),
    warn: |account, old, _| {
        let key = "kubernetes.io/enforce-mountable-secrets";
        let has = |account: &Value| account.field("metadata").map("annotations").contains_key(key);
        if has(account) && !old.is_some_and(has) {
            vec![format!(
                "metadata.annotations[{key}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
            )]
        } else {
            Vec::new()
        }
    },
    ..generic::NAMED
};

/// Of the secrets of an account only the names count.
fn keep_secret_names(account: &mut Value) {
    for secret in account.list_mut("secrets") {
        *secret = match secret.text("name") {
            "" => Value::object(),
            name => api::json!({ "name": name }),
        };
    }
}

/// How many bytes base64 stands for.
fn decoded_len(text: &str) -> usize {
    let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
    (text.len() / 4).saturating_mul(3).saturating_sub(padding)
}

fn validate_config_map(map: &Value, _: &Context<'_>, errors: &mut Errors) {
    meta::validate(map, true, names::dns1123_subdomain, errors);
    let mut size = 0_usize;
    let at = Path::new("data");
    for (key, value) in map.map("data").iter() {
        for complaint in names::config_map_key(key) {
            errors.invalid(at.key(key), key, complaint);
        }
        if map.map("binaryData").contains_key(key) {
            errors.invalid(at.key(key), key, "duplicate of key present in binaryData");
        }
        size = size.saturating_add(value.as_str().unwrap_or_default().len());
    }
    let at = Path::new("binaryData");
    for (key, value) in map.map("binaryData").iter() {
        for complaint in names::config_map_key(key) {
            errors.invalid(at.key(key), key, complaint);
        }
        size = size.saturating_add(decoded_len(value.as_str().unwrap_or_default()));
    }
    if size > MAX_BYTES {
        errors.too_long(Path::new(""), MAX_BYTES);
    }
}

fn validate_immutable(object: &Value, old: &Value, names: &[&str], errors: &mut Errors) {
    if !old.flag("immutable") {
        return;
    }
    if !object.flag("immutable") {
        errors.forbidden(Path::new("immutable"), FIXED);
    }
    for name in names {
        // Kubernetes tells given but empty maps from missing ones here.
        if object.field(name) != old.field(name) {
            errors.forbidden(Path::new(name), FIXED);
        }
    }
}

/// Plain text becomes data, as conversion does.
pub(crate) fn merge_string_data(secret: &mut Value) {
    let texts = secret.map("stringData").clone();
    for (key, text) in texts {
        let encoded = encode(text.as_str().unwrap_or_default().as_bytes());
        secret.make("data").set(&key, encoded);
    }
    secret.unset("stringData");
}

fn encode(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3).saturating_mul(4));
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (index, shift) in [18_u32, 12, 6, 0].into_iter().enumerate() {
            let position = usize::try_from(bits >> shift & 63).unwrap_or_default();
            let letter = ALPHABET.get(position).copied().unwrap_or(b'A');
            text.push(if index > chunk.len() { '=' } else { char::from(letter) });
        }
    }
    text
}

fn validate_secret(secret: &Value, _: &Context<'_>, errors: &mut Errors) {
    meta::validate(secret, true, names::dns1123_subdomain, errors);
    let at = Path::new("data");
    let mut size = 0_usize;
    for (key, value) in secret.map("data").iter() {
        for complaint in names::config_map_key(key) {
            errors.invalid(at.key(key), key, complaint);
        }
        size = size.saturating_add(decoded_len(value.as_str().unwrap_or_default()));
    }
    if size > MAX_BYTES {
        errors.too_long(at, MAX_BYTES);
    }
    let has = |key: &str| secret.map("data").contains_key(key);
    let required: &[&str] = match secret.text("type") {
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            let annotations = secret.field("metadata").map("annotations");
            if annotations.get(key).and_then(Value::as_str).unwrap_or_default().is_empty() {
                let metadata = Path::new("metadata");
                let at = metadata.child("annotations");
                errors.required(at.key(key), "");
            }
            &[]
        }
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/basic-auth" => {
            if !has("username") && !has("password") {
                errors.required(at.key("username"), "");
                errors.required(at.key("password"), "");
            }
            &[]
        }
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        _ => &[],
    };
    for key in required.iter().filter(|key| !has(key)) {
        errors.required(at.key(key), "");
    }
}
