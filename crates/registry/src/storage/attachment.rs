//! `VolumeAttachment`: which volume is to be attached to which node, and how that went.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use crate::core::persistent_volume;
use crate::core::volume_sources::validate_driver_name;
use crate::document::same;
use crate::generic;
use crate::meta::{self, IMMUTABLE, invalid};
use crate::resource::validate_driver;
use crate::strategy::{Part, Strategy};

const METADATA_MAX_BYTES: usize = 256 * 1024;
const MESSAGE_MAX_BYTES: usize = 1024;

pub(crate) const ATTACHMENT: Strategy = Strategy {
    validate_create: |attachment, _, errors| {
        validate(attachment, false, errors);
        // A declared rule: it comes behind the written ones, in its own words.
        let at = Path::new("spec");
        validate_driver(attachment.field("spec").text("attacher"), at.child("attacher"), errors);
    },
    validate_update: |attachment, old, _, errors| validate_change(attachment, old, errors),
    subresources: &[(
        "status",
        Part {
            prepare: generic::prepare_status_alone,
            validate: |attachment, old, _, errors| validate_change(attachment, old, errors),
        },
    )],
    ..generic::WITH_STATUS_ALONE
};

fn validate_change(attachment: &Value, old: &Value, errors: &mut Errors) {
    validate(attachment, true, errors);
    if !same(attachment.field("spec"), old.field("spec")) {
        // Kubernetes shows no value here.
        errors.invalid(Path::new("spec"), Value::Null, IMMUTABLE);
    }
}

fn validate(attachment: &Value, with_driver: bool, errors: &mut Errors) {
    meta::validate(attachment, false, names::dns1123_subdomain, errors);
    let (spec, at) = (attachment.field("spec"), Path::new("spec"));
    if with_driver {
        validate_driver_name(spec.text("attacher"), at.child("attacher"), errors);
    }
    let (source, here) = (spec.field("source"), at.child("source"));
    let volume = source.optional_text("persistentVolumeName");
    let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (volume, source.optional("inlineVolumeSpec")) {
        (None, None) => errors.required(here, detail),
        (Some(_), Some(_)) => errors.forbidden(here, detail),
        (Some(""), None) => {
            errors.required(here.child("persistentVolumeName"), "must specify non empty persistentVolumeName");
        }
        (Some(_), None) => {}
        (None, Some(inline)) => persistent_volume::validate_inline(inline, &here.child("inlineVolumeSpec"), errors),
    }
    let node = spec.text("nodeName");
    invalid(names::dns1123_subdomain(node), node, at.child("nodeName"), errors);
    validate_status(attachment.field("status"), errors);
    if let Some(volume) = volume {
        invalid(names::dns1123_subdomain(volume), volume, here.child("persistentVolumeName"), errors);
    }
}

fn validate_status(status: &Value, errors: &mut Errors) {
    let at = Path::new("status");
    let sizes = status.map("attachmentMetadata").iter().map(|(key, value)| {
        let value = value.as_str().unwrap_or_default();
        key.len().saturating_add(value.len())
    });
    if sizes.fold(0, usize::saturating_add) > METADATA_MAX_BYTES {
        errors.too_long(at.child("attachmentMetadata"), METADATA_MAX_BYTES);
    }
    for name in ["attachError", "detachError"] {
        let (error, here) = (status.field(name), at.child(name));
        if error.text("message").len() > MESSAGE_MAX_BYTES {
            errors.too_long(here.child("message"), MESSAGE_MAX_BYTES);
        }
        if error.int("errorCode") < 0 {
            let detail = format!("must be between 0 and {}, inclusive", i32::MAX);
            errors.invalid(here.child("errorCode"), error.int("errorCode"), detail);
        }
    }
}
