//! Pods.
//!
//! Follows `pkg/registry/core/pod/strategy.go`. Reading order: what a spec allows ([`options`]), the spec and its parts,
//! then what an update may change, the status, and what users are warned about.

pub(crate) mod options;
pub(crate) mod spec;

pub(crate) mod containers;
mod env;
mod mounts;
pub(crate) mod placement;
pub(crate) mod prepare;
pub(crate) mod probes;
mod profiles;
mod projections;
pub(crate) mod resources;
mod security;
pub(crate) mod status;
pub(crate) mod update;
pub(crate) mod volumes;
pub(crate) mod warnings;

use api::field::{Errors, Path};
use api::json::{Object, Value};
use api::names;
use api::well_known::ANNOTATION_POD_DELETION_COST;

use self::options::Options;
use crate::meta;
use crate::strategy::{Context, PLAIN, Part, Strategy};

pub(crate) const STRATEGY: Strategy = Strategy {
    prepare_create: prepare::create,
    validate_create,
    prepare_update: prepare::update,
    validate_update: update::validate,
    warn: warnings::pod,
    subresources: &[
        ("status", Part { prepare: prepare::status, validate: status::validate }),
        ("ephemeralcontainers", Part { prepare: prepare::ephemeral, validate: update::validate_ephemeral }),
        ("resize", Part { prepare: prepare::resize, validate: update::validate_resize }),
    ],
    ..PLAIN
};

fn validate_create(pod: &Value, context: &Context<'_>, errors: &mut Errors) {
    let options = Options::new(None, None, true, context);
    validate_metadata_and_spec(pod, &options, errors);
    let (spec, at) = (pod.field("spec"), Path::new("spec"));
    if !spec.list("ephemeralContainers").is_empty() {
        errors.forbidden(at.child("ephemeralContainers"), "cannot be set on create");
    }
    if !spec.text("nodeName").is_empty() && !spec.list("schedulingGates").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.forbidden(at.child("nodeName"), detail);
    }
    profiles::validate(pod.field("metadata"), spec, &at, errors);
}

/// Validates the common part of new and changed pods.
fn validate_metadata_and_spec(pod: &Value, options: &Options<'_>, errors: &mut Errors) {
    meta::validate(pod, true, names::dns1123_subdomain, errors);
    let (metadata, spec, at) = (pod.field("metadata"), pod.field("spec"), Path::new("spec"));
    let annotations = Path::new("metadata.annotations");
    spec::validate_annotations(metadata.map("annotations"), spec, options, &annotations, errors);
    spec::validate(spec, metadata, options, &at, errors);
    if spec.text("serviceAccountName").is_empty() {
        let volumes = at.child("volumes");
        for (index, volume) in spec.list("volumes").iter().enumerate() {
            let here = volumes.index(index);
            let here = here.child("projected");
            let sources = here.child("sources");
            for (index, source) in volume.field("projected").list("sources").iter().enumerate() {
                if source.has("serviceAccountToken") {
                    let detail = "must not be specified when serviceAccountName is not set";
                    errors.forbidden(sources.index(index).child("serviceAccountToken"), detail);
                }
            }
        }
    }
    if let Some(seconds) = spec.optional_int("terminationGracePeriodSeconds") {
        meta::non_negative(seconds, at.child("terminationGracePeriodSeconds"), errors);
    }
    for kind in ["containers", "initContainers"] {
        let list = at.child(kind);
        for (index, container) in spec.list(kind).iter().enumerate() {
            containers::validate_image_spaces(container, &list.index(index), errors);
        }
    }
}

/// All containers of a spec, with the list and index where they stand, in the order in which they are visited.
pub(crate) fn containers(spec: &Value) -> impl Iterator<Item = (&'static str, usize, &Value)> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|kind| spec.list(kind).iter().enumerate().map(move |(index, container)| (kind, index, container)))
}

/// Whether the annotation that orders the deletion of replicas is not a 32-bit number in canonical form.
fn has_bad_deletion_cost(annotations: &Object) -> bool {
    let Some(cost) = annotations.get(ANNOTATION_POD_DELETION_COST).and_then(Value::as_str) else { return false };
    let digits = cost.strip_prefix('-').unwrap_or(cost);
    let is_canonical = digits == "0" || !digits.starts_with('0');
    !(is_canonical && !cost.starts_with('+') && cost.parse::<i32>().is_ok())
}
