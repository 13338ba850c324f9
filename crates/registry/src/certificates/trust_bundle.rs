//! `ClusterTrustBundle`: certificates of authorities, named after the signer that they belong to.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;
use api::x509;

use super::validate_signer;
use crate::meta;
use crate::strategy::{PLAIN, Strategy};

const BYTES_MAX: usize = 1 << 20;
/// Bundles are long, and refusals do not repeat them.
const OMITTED: &str = "<value omitted>";

pub(crate) const TRUST_BUNDLE: Strategy = Strategy {
    validate_create: |bundle, _, errors| validate(bundle, None, errors),
    validate_update: |bundle, old, _, errors| {
        validate(bundle, Some(old), errors);
        meta::validate_update(bundle, old, errors);
        let at = Path::new("spec");
        let signer = |bundle: &Value| Value::from(bundle.field("spec").text("signerName"));
        meta::immutable(&signer(bundle), &signer(old), at.child("signerName"), errors);
    },
    ..PLAIN
};

fn validate(bundle: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, at) = (bundle.field("spec"), Path::new("spec"));
    let signer = spec.text("signerName");
    let (metadata, metadata_at) = (bundle.field("metadata"), Path::new("metadata"));
    meta::validate_by_rule(metadata, false, &|name| wrong_name(name, signer), &metadata_at, errors);
    meta::validate_finalizer_kinds(metadata, &metadata_at, errors);
    if !signer.is_empty() {
        validate_signer(signer, at.child("signerName"), errors);
    }
    let text = spec.text("trustBundle");
    if old.is_none_or(|old| old.field("spec").text("trustBundle") != text) {
        validate_anchors(text, at.child("trustBundle"), errors);
    }
}

/// Returns the errors in the name of a bundle, with a signer or without.
pub(crate) fn wrong_name(name: &str, signer: &str) -> Vec<String> {
    if signer.is_empty() {
        if name.contains(':') {
            return vec!["ClusterTrustBundle without signer name must not have \":\" in its name".to_owned()];
        }
        return names::dns1123_subdomain(name);
    }
    let prefix = format!("{}:", signer.replace('/', ":"));
    match name.strip_prefix(&prefix) {
        Some(rest) => names::dns1123_subdomain(rest),
        None => vec![format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}")],
    }
}

fn validate_anchors(text: &str, at: Path<'_>, errors: &mut Errors) {
    if text.len() > BYTES_MAX {
        errors.too_long(at, BYTES_MAX);
        return;
    }
    let blocks = x509::pem_blocks(text);
    let mut is_wrong = false;
    for (index, block) in blocks.iter().enumerate() {
        let complaint = if block.kind != "CERTIFICATE" {
            format!("entry {index} has bad block type: {}", block.kind)
        } else if block.has_headers {
            format!("entry {index} has PEM block headers")
        } else {
            match x509::is_authority(&block.bytes) {
                None => format!("entry {index} does not parse as X.509"),
                Some(false) => format!("entry {index} does not have the CA bit set"),
                Some(true) => continue,
            }
        };
        is_wrong = true;
        errors.invalid(at, OMITTED, complaint);
    }
    if is_wrong {
        return;
    }
    if blocks.is_empty() {
        errors.invalid(at, OMITTED, "at least one trust anchor must be provided");
    }
    for (index, block) in blocks.iter().enumerate() {
        let same: Vec<usize> =
            blocks.iter().enumerate().filter(|(_, it)| it.bytes == block.bytes).map(|(index, _)| index).collect();
        if same.len() > 1 && same.first() == Some(&index) {
            let shown: Vec<String> = same.iter().map(ToString::to_string).collect();
            errors.invalid(at, OMITTED, format!("duplicate trust anchor (indices [{}])", shown.join(" ")));
        }
    }
}
