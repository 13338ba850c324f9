//! ConfigMaps, Secrets and ServiceAccounts.

use api::field::{Errors, Path};
use api::json::{ObjectEditor, Value};
use api::well_known::{ANNOTATION_SERVICE_ACCOUNT_NAME, SECRET_SERVICE_ACCOUNT_TOKEN};
use api::{names, x509};

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
    warn: |secret, _, _| warn_key_pair(secret).into_iter().collect(),
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

/// Returns the error of Go's `tls.X509KeyPair` about a TLS secret. Whether the key belongs to the certificate is not
/// checked.
fn warn_key_pair(secret: &Value) -> Option<String> {
    if secret.text("type") != "kubernetes.io/tls" {
        return None;
    }
    let blocks = |key: &str| {
        let bytes = api::base64::decode(secret.field("data").text(key)).unwrap_or_default();
        x509::pem_blocks(&String::from_utf8_lossy(&bytes))
    };
    let (certificates, keys) = (blocks("tls.crt"), blocks("tls.key"));
    let is_key = |kind: &str| kind == "PRIVATE KEY" || kind.ends_with(" PRIVATE KEY");
    let kinds = |blocks: &[x509::PemBlock]| blocks.iter().map(|it| it.kind.clone()).collect::<Vec<_>>().join(" ");
    let Some(leaf) = certificates.iter().find(|it| it.kind == "CERTIFICATE") else {
        return Some(match certificates.as_slice() {
            [] => "tls: failed to find any PEM data in certificate input".to_owned(),
            [one] if is_key(&one.kind) => "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched".to_owned(),
            all => format!("tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [{}]", kinds(all)),
        });
    };
    if !keys.iter().any(|it| is_key(&it.kind)) {
        return Some(match keys.as_slice() {
            [] => "tls: failed to find any PEM data in key input".to_owned(),
            [one] if one.kind == "CERTIFICATE" => {
                "tls: found a certificate rather than a key in the PEM for the private key".to_owned()
            }
            all => format!(
                "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [{}]",
                kinds(all)
            ),
        });
    }
    x509::certificate_subject(&leaf.bytes).is_none().then(|| "x509: malformed certificate".to_owned())
}

/// Keeps only the names of an account's secrets.
fn keep_secret_names(account: &mut Value) {
    for secret in account.list_mut("secrets") {
        *secret = match secret.text("name") {
            "" => Value::object(),
            name => api::json!({ "name": name }),
        };
    }
}

/// Decoded length of base64.
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
        // Kubernetes distinguishes empty maps from missing ones here.
        if object.field(name) != old.field(name) {
            errors.forbidden(Path::new(name), FIXED);
        }
    }
}

/// Plain text becomes data, as conversion does.
pub(crate) fn merge_string_data(secret: &mut Value) {
    let texts = secret.map("stringData").clone();
    if !texts.is_empty()
        && let Some(data) = secret.make("data").as_object_mut()
    {
        let mut edited = ObjectEditor::new(std::mem::take(data));
        for (key, text) in texts {
            edited.insert(key, encode(text.as_str().unwrap_or_default().as_bytes()));
        }
        *data = edited.into_object();
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
        SECRET_SERVICE_ACCOUNT_TOKEN => {
            let key = ANNOTATION_SERVICE_ACCOUNT_NAME;
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
