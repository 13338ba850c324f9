//! Projected volumes: several sources in one directory.

use api::field::{Errors, Path};
use api::json::Value;

use super::options::Options;
use super::volumes::{validate_downward_file, validate_key_to_path, validate_own_path};
use crate::certificates::{
    EXPIRATION_SECONDS_MAX, KUBERNETES_EXPIRATION_SECONDS_MAX, is_kubernetes_signer, validate_signer,
    validate_user_annotations, wrong_name,
};
use crate::meta;
use crate::render;

const KEY_TYPES: &[&str] = &["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];

/// The sources of a projected volume.
pub(super) fn validate(projected: &Value, options: &Options<'_>, at: &Path<'_>, errors: &mut Errors) {
    let mut paths: Vec<String> = Vec::new();
    let list = at.child("sources");
    for (index, source) in projected.list("sources").iter().enumerate() {
        let here = list.index(index);
        let mut count = 0_usize;
        for kind in ["secret", "configMap"] {
            let Some(inner) = source.optional(kind) else { continue };
            count = count.saturating_add(1);
            let here = here.child(kind);
            let name = inner.text("name");
            if name.is_empty() {
                errors.required(here.child("name"), "");
            }
            let items = here.child("items");
            for (index, item) in inner.list("items").iter().enumerate() {
                validate_key_to_path(item, &items.index(index), errors);
                claim_path(item.text("path"), name, &mut paths, at, errors);
            }
        }
        if let Some(inner) = source.optional("downwardAPI") {
            count = count.saturating_add(1);
            for file in inner.list("items") {
                validate_downward_file(file, &here.child("downwardAPI"), errors);
                claim_path(file.text("path"), file.text("path"), &mut paths, at, errors);
            }
        }
        if let Some(token) = source.optional("serviceAccountToken") {
            count = count.saturating_add(1);
            validate_token(token, options, &here.child("serviceAccountToken"), at, errors);
        }
        if let Some(bundle) = source.optional("clusterTrustBundle") {
            count = count.saturating_add(1);
            validate_trust_bundle(bundle, &here.child("clusterTrustBundle"), errors);
            let path = bundle.text("path");
            if paths.iter().any(|it| it == path) {
                errors.invalid(*at, path, "conflicting duplicate paths");
            } else {
                paths.push(path.to_owned());
            }
        }
        if let Some(certificate) = source.optional("podCertificate") {
            count = count.saturating_add(1);
            validate_certificate(certificate, &mut paths, &here.child("podCertificate"), at, errors);
        }
        if count > 1 {
            errors.forbidden(here, "may not specify more than 1 volume type per source");
        }
    }
}

fn claim_path(path: &str, shown: &str, paths: &mut Vec<String>, at: &Path<'_>, errors: &mut Errors) {
    if path.is_empty() {
        return;
    }
    if paths.iter().any(|it| it == path) {
        errors.invalid(*at, shown, "conflicting duplicate paths");
    } else {
        paths.push(path.to_owned());
    }
}

fn validate_token(token: &Value, options: &Options<'_>, at: &Path<'_>, volume_at: &Path<'_>, errors: &mut Errors) {
    match token.optional_int("expirationSeconds") {
        None => errors.required(at.child("expirationSeconds"), ""),
        Some(seconds) if seconds < 600 => {
            let detail = "may not specify a duration less than 10 minutes";
            errors.invalid(at.child("expirationSeconds"), seconds, detail);
        }
        Some(seconds) if seconds > 1 << 32 => {
            let detail = "may not specify a duration larger than 2^32 seconds";
            errors.invalid(at.child("expirationSeconds"), seconds, detail);
        }
        Some(_) => {}
    }
    let path = token.text("path");
    if path.is_empty() {
        errors.required(volume_at.child("path"), "");
    } else if !options.allow_foreign_token_path {
        validate_own_path(path, volume_at.child("path"), errors);
    }
}

fn validate_trust_bundle(bundle: &Value, at: &Path<'_>, errors: &mut Errors) {
    match (bundle.optional_text("name"), bundle.optional_text("signerName")) {
        (Some(_), Some(_)) => errors.invalid(
            *at,
            render::core("ClusterTrustBundleProjection", bundle),
            "only one of name and signerName may be used",
        ),
        (Some(name), None) => {
            if name.is_empty() {
                errors.required(at.child("name"), "must be a valid object name");
            }
            // What stands before the last colon is the signer.
            let signer = name.rsplit_once(':').map(|(signer, _)| signer.replace(':', "/")).unwrap_or_default();
            for complaint in wrong_name(name, &signer) {
                errors.invalid(at.child("name"), name, format!("not a valid clustertrustbundlename: {complaint}"));
            }
            if let Some(selector) = bundle.optional("labelSelector") {
                let detail = "labelSelector must be unset if name is specified";
                errors.invalid(at.child("labelSelector"), selector.clone(), detail);
            }
        }
        (None, Some(signer)) => {
            if signer.is_empty() {
                errors.required(at.child("signerName"), "must be a valid signer name");
            }
            validate_signer(signer, at.child("signerName"), errors);
            meta::validate_selector(bundle.field("labelSelector"), false, &at.child("labelSelector"), errors);
        }
        (None, None) => errors.required(*at, "either name or signerName must be specified"),
    }
    if bundle.text("path").is_empty() {
        errors.required(at.child("path"), "");
    }
    validate_own_path(bundle.text("path"), at.child("path"), errors);
}

fn validate_certificate(
    certificate: &Value,
    paths: &mut Vec<String>,
    at: &Path<'_>,
    volume_at: &Path<'_>,
    errors: &mut Errors,
) {
    let signer = certificate.text("signerName");
    validate_signer(signer, at.child("signerName"), errors);
    validate_user_annotations(certificate.map("userAnnotations"), at.child("userAnnotations"), errors);
    let key_type = certificate.text("keyType");
    if !KEY_TYPES.contains(&key_type) {
        errors.not_supported(at.child("keyType"), key_type, KEY_TYPES);
    }
    if let Some(seconds) = certificate.optional_int("maxExpirationSeconds") {
        let max = if is_kubernetes_signer(signer) { KUBERNETES_EXPIRATION_SECONDS_MAX } else { EXPIRATION_SECONDS_MAX };
        if seconds < 3600 {
            let detail = "if provided, maxExpirationSeconds must be >= 3600";
            errors.invalid(at.child("maxExpirationSeconds"), seconds, detail);
        }
        if seconds > max {
            let detail = format!("if provided, maxExpirationSeconds must be <= {max}");
            errors.invalid(at.child("maxExpirationSeconds"), seconds, detail);
        }
    }
    let mut count = 0_usize;
    for name in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let path = certificate.text(name);
        if !path.is_empty() {
            count = count.saturating_add(1);
            validate_own_path(path, at.child(name), errors);
            claim_path(path, path, paths, volume_at, errors);
        }
    }
    if count == 0 {
        errors.required(*at, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath");
    }
}
