//! Fields of the proposals that stand in annotations, on clusters whose API server does not have the fields.
//!
//! [`merge`] moves them into the fields, validated as the fields are, with paths into the annotation; everything that reads
//! the object afterwards sees fields only. An annotation holds the YAML of the field:
//!
//! | object | annotation | field |
//! |---|---|---|
//! | Pod, pod template | [`TOLERATIONS`] | more entries of `spec.tolerations` |
//! | Pod, pod template | [`NODE_AFFINITY`] | a second `spec.affinity.nodeAffinity`: both required selectors must match |
//! | PersistentVolume | [`NODE_AFFINITY`] | a second `spec.nodeAffinity` |
//! | ResourceClaim, `spec` of a ResourceClaimTemplate | [`DEVICE_CONSTRAINTS`] | more entries of `spec.devices.constraints` |
//! | CustomResourceDefinition | [`COLUMNS`]`VERSION` | more entries of the version's `additionalPrinterColumns` |
//!
//! Entries follow those of the field, unless an annotation of the same name with the suffix [`POSITIONS`] gives their
//! indexes in the whole list. An annotation of these domains that is unknown, or that would have no effect where it stands,
//! is rejected: a placement rule must not be ignored in silence.

pub mod review;
mod selectors;
mod text;

use api::annotations::{COLUMNS, DEVICE_CONSTRAINTS, NODE_AFFINITY, PLACEMENT, POSITIONS, TOLERATIONS};
use api::features::Gate;
use api::field::{Errors, Path};
use api::json::Value;
use api::types::{self, Type};

use self::text::Texts;
use crate::apiextensions;
use crate::core::expression_totals::{self, Group};
use crate::core::node_selector::{self, Cel};
use crate::core::pod::options::Options;
use crate::core::pod::placement;
use crate::resource;
use crate::strategy::Context;

/// The part that the path of every annotation of this module contains.
pub const PATH: &str = "metadata.annotations[";

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// The path to the pod template of a kind, below which `metadata` and `spec` stand.
#[must_use]
pub fn template_path(kind: &str) -> Option<&'static [&'static str]> {
    Some(match kind {
        "Pod" => &[],
        "PodTemplate" => &["template"],
        "CronJob" => &["spec", "jobTemplate", "spec", "template"],
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "ReplicationController" => {
            &["spec", "template"]
        }
        _ => return None,
    })
}

/// Whether the annotations of an object, or of its template, contain one that [`merge`] reads. Costs one look at the
/// annotations.
#[must_use]
pub fn has_any(kind: &str, object: &Value) -> bool {
    let holds = |at: Option<&Value>| at.is_some_and(|it| text::has_any(it.field("metadata").map("annotations")));
    match kind {
        "PersistentVolume" | "ResourceClaim" | "CustomResourceDefinition" => holds(Some(object)),
        "ResourceClaimTemplate" => holds(Some(object)) || holds(object.get("spec")),
        _ => match template_path(kind) {
            Some(path) => holds(Some(object)) || holds(object.at(path)),
            None => false,
        },
    }
}

/// Moves the annotations of an object into its fields, and returns whether it had any.
///
/// `kind` is the kind of a built-in resource; objects of other kinds have no such annotations.
///
/// # Errors
/// The errors that the API server returns for the fields, with paths into the annotations. The object is unchanged then.
pub fn merge(kind: &str, object: &mut Value, context: &Context<'_>) -> Result<bool, Errors> {
    if !has_any(kind, object) {
        return Ok(false);
    }
    let mut errors = Errors::new();
    let mut merged = object.clone();
    match kind {
        "PersistentVolume" => merge_volume(&mut merged, context, &mut errors),
        "ResourceClaim" => merge_claim(&mut merged, "", context, &mut errors),
        "ResourceClaimTemplate" => {
            let place = "spec.metadata.annotations: claims get only those";
            text::reject_all(merged.field("metadata").map("annotations"), place, &mut errors);
            merge_claim(merged.make("spec"), "spec.", context, &mut errors);
        }
        "CustomResourceDefinition" => merge_definition(&mut merged, context, &mut errors),
        _ => merge_template(kind, &mut merged, context, &mut errors),
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    *object = merged;
    Ok(true)
}

/// The content of one annotation, as it was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    /// The path of the annotation.
    pub path: String,
    /// Whether it is a list of the type.
    pub is_list: bool,
    /// The type of the value, or of its entries.
    pub of: &'static Type,
    /// The value.
    pub value: Value,
}

/// The name of an annotation, whether it is a list, and the package and name of its type.
type AnnotationType = (&'static str, bool, &'static str, &'static str);

/// Returns the contents of the annotations of an object; those that cannot be read are left out.
#[must_use]
pub fn contents(kind: &str, object: &Value) -> Vec<Content> {
    let (path, known): (&[&str], &[AnnotationType]) = match kind {
        "PersistentVolume" => (&[], &[(NODE_AFFINITY, false, CORE, "VolumeNodeAffinity")]),
        "ResourceClaim" => (&[], &[(DEVICE_CONSTRAINTS, true, RESOURCE, "DeviceConstraint")]),
        "ResourceClaimTemplate" => (&["spec"], &[(DEVICE_CONSTRAINTS, true, RESOURCE, "DeviceConstraint")]),
        "CustomResourceDefinition" => (&[], &[(COLUMNS, true, EXTENSIONS, "CustomResourceColumnDefinition")]),
        _ => match template_path(kind) {
            Some(path) => {
                (path, &[(TOLERATIONS, true, CORE, "Toleration"), (NODE_AFFINITY, false, CORE, "NodeAffinity")])
            }
            None => return Vec::new(),
        },
    };
    let Some(annotations) = object.at(path).and_then(|it| it.field("metadata").optional("annotations")) else {
        return Vec::new();
    };
    let prefix: String = path.iter().map(|name| format!("{name}.")).collect();
    let mut found = Vec::new();
    for (name, text) in annotations.as_object().into_iter().flat_map(|all| all.iter()) {
        let is_it = |(known, ..): &&AnnotationType| {
            name == *known || *known == COLUMNS && name.starts_with(COLUMNS) && !name.ends_with(POSITIONS)
        };
        let Some((_, is_list, package, type_name)) = known.iter().find(is_it) else { continue };
        let Some(value) = text::read(text.as_str().unwrap_or_default()) else { continue };
        let Some(of) = types::by_name(package, type_name) else { continue };
        found.push(Content { path: format!("{prefix}metadata.annotations[{name}]"), is_list: *is_list, of, value });
    }
    found
}

fn merge_template(kind: &str, object: &mut Value, context: &Context<'_>, errors: &mut Errors) {
    let path = template_path(kind).unwrap_or_default();
    if path.is_empty() {
        merge_pod(object, "", true, context, errors);
        return;
    }
    let prefix = format!("{}.", path.join("."));
    let place = format!("{prefix}metadata.annotations: pods get only those");
    text::reject_all(object.field("metadata").map("annotations"), &place, errors);
    let template = path.iter().fold(object, |object, name| object.make(name));
    merge_pod(template, &prefix, false, context, errors);
}

/// A pod, or the template of pods at `prefix`.
fn merge_pod(pod: &mut Value, prefix: &str, is_pod: bool, context: &Context<'_>, errors: &mut Errors) {
    let annotations = format!("{prefix}metadata.annotations");
    let at = Path::new(&annotations);
    let texts = Texts::take(pod, &[TOLERATIONS, NODE_AFFINITY], PLACEMENT, &at, errors);
    let tolerations = texts.list(TOLERATIONS, CORE, "Toleration", errors);
    let affinity = texts.one(NODE_AFFINITY, CORE, "NodeAffinity", errors);
    let no_field = Value::Null;
    let added = affinity.as_ref().unwrap_or(&no_field);
    let options = Options::new(None, None, is_pod, context);
    {
        let spec = pod.field("spec");
        let [mut in_tolerations, mut in_affinity] = placement::open_expressions(spec, &options);
        let wrapper = api::json!({
            "tolerations": (tolerations.clone()), "affinity": {"nodeAffinity": (added.clone())},
        });
        let [more_tolerations, more_affinity] = placement::open_expressions(&wrapper, &options);
        in_tolerations.texts.extend(more_tolerations.texts);
        in_affinity.texts.extend(more_affinity.texts);
        let groups = [in_tolerations, in_affinity];
        let options = options.for_expressions(&groups);
        placement::validate_tolerations(&tolerations, &options, &at.key(TOLERATIONS), errors);
        placement::validate_node_affinity(added, &options, &at.key(NODE_AFFINITY), errors);
        let paths = [at.key(TOLERATIONS), at.key(NODE_AFFINITY)];
        expression_totals::validate(&groups, &[], &paths, context.expressions, errors);
    }
    texts.merge_list(TOLERATIONS, tolerations, pod.make("spec"), "tolerations", errors);
    if affinity.is_some() {
        let own = pod.make("spec").make("affinity").make("nodeAffinity");
        if let Some(required) = added.optional(REQUIRED) {
            let at = at.key(NODE_AFFINITY);
            selectors::both(own, REQUIRED, required, &at.child(REQUIRED), errors);
        }
        let preferred = added.list(PREFERRED).to_vec();
        texts.merge_list(NODE_AFFINITY, preferred, own, PREFERRED, errors);
    }
}

fn merge_volume(volume: &mut Value, context: &Context<'_>, errors: &mut Errors) {
    let at = Path::new("metadata.annotations");
    let texts = Texts::take(volume, &[NODE_AFFINITY], PLACEMENT, &at, errors);
    let Some(affinity) = texts.one(NODE_AFFINITY, CORE, "VolumeNodeAffinity", errors) else { return };
    texts.no_positions(NODE_AFFINITY, errors);
    let at = at.key(NODE_AFFINITY);
    let Some(required) = affinity.optional("required") else {
        errors.required(at.child("required"), "must specify required node constraints");
        return;
    };
    let own = volume.field("spec").field("nodeAffinity").field("required").list("nodeSelectorTerms");
    let groups = [Group::of_terms(own.iter().chain(required.list("nodeSelectorTerms")))];
    let features = context.features;
    let allow_cel = features.enabled(Gate::TaintTolerationNodeAffinityCEL);
    let rules = node_selector::Rules {
        allow_bad_values: false,
        allow_semver: features.enabled(Gate::TaintTolerationNodeAffinitySemverComparisonOperators),
        cel: match allow_cel {
            false => Cel::GateOff,
            true if expression_totals::are_too_many(&groups, &[]) => Cel::Rejected,
            true => Cel::Compile(context.expressions),
        },
    };
    node_selector::validate(required, rules, &at.child("required"), errors);
    if allow_cel {
        expression_totals::validate(&groups, &[], &[at], context.expressions, errors);
    }
    let own = volume.make("spec").make("nodeAffinity");
    selectors::both(own, "required", required, &at.child("required"), errors);
}

/// A claim, or the `spec` of a template of claims.
fn merge_claim(claim: &mut Value, prefix: &str, context: &Context<'_>, errors: &mut Errors) {
    let annotations = format!("{prefix}metadata.annotations");
    let at = Path::new(&annotations);
    let texts = Texts::take(claim, &[DEVICE_CONSTRAINTS], PLACEMENT, &at, errors);
    let constraints = texts.list(DEVICE_CONSTRAINTS, RESOURCE, "DeviceConstraint", errors);
    resource::validate_added_constraints(
        claim.field("spec"),
        &constraints,
        context,
        &at.key(DEVICE_CONSTRAINTS),
        errors,
    );
    let devices = claim.make("spec").make("devices");
    texts.merge_list(DEVICE_CONSTRAINTS, constraints, devices, "constraints", errors);
}

fn merge_definition(definition: &mut Value, context: &Context<'_>, errors: &mut Errors) {
    let at = Path::new("metadata.annotations");
    let names: Vec<String> =
        definition.field("spec").list("versions").iter().map(|it| format!("{COLUMNS}{}", it.text("name"))).collect();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let texts = Texts::take(definition, &known, COLUMNS, &at, errors);
    for (index, name) in known.into_iter().enumerate() {
        if !texts.contains(name) {
            continue;
        }
        let columns = texts.list(name, EXTENSIONS, "CustomResourceColumnDefinition", errors);
        let null = Value::Null;
        let version = definition.field("spec").list("versions").get(index).unwrap_or(&null);
        apiextensions::validate_added_columns(&columns, version, context, &at.key(name), errors);
        if let Some(version) = definition.make("spec").list_mut("versions").get_mut(index) {
            texts.merge_list(name, columns, version, "additionalPrinterColumns", errors);
        }
    }
}

const CORE: &str = "k8s.io/api/core/v1";
const RESOURCE: &str = "k8s.io/api/resource/v1";
const EXTENSIONS: &str = "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1";
