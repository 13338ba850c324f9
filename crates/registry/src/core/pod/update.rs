//! Permitted updates of a pod.
//!
//! Follows `ValidatePodUpdate` and its siblings. A toleration's `expression` is part of its identity, and while a pod has
//! scheduling gates its required terms may gain `matchCELExpressions`.

use api::field::{Errors, Path};
use api::json::{Lookup, Value};
use api::well_known::{ANNOTATION_APP_ARMOR_PREFIX, ANNOTATION_CONFIG_MIRROR};

use super::options::Options;
use super::{placement, prepare, spec, validate_metadata_and_spec};
use crate::document::same;
use crate::meta;
use crate::render;
use crate::seen::SeenKeys;
use crate::strategy::Context;

const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn options<'a>(old: &'a Value, context: &'a Context<'a>) -> Options<'a> {
    Options::new(Some(old.field("spec")), Some(old.field("metadata")), true, context)
}

pub(super) fn validate(pod: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
    let options = options(old, context);
    meta::validate_update(pod, old, errors);
    validate_metadata_and_spec(pod, &options, errors);
    validate_annotations(pod, old, &options, errors);
    let (new_spec, old_spec, at) = (pod.field("spec"), old.field("spec"), Path::new("spec"));
    for kind in ["containers", "initContainers"] {
        let list = at.child(kind);
        if new_spec.list(kind).len() != old_spec.list(kind).len() {
            errors.forbidden(list, "pod updates may not add or remove containers");
            return;
        }
        for (index, container) in new_spec.list(kind).iter().enumerate() {
            if container.text("image").is_empty() {
                errors.required(list.index(index).child("image"), "");
            }
            super::containers::validate_image_spaces(container, &list.index(index), errors);
        }
    }
    if !validate_deadline(new_spec, old_spec, at.child("activeDeadlineSeconds"), errors) {
        return;
    }
    validate_tolerations(new_spec, old_spec, &options, &at.child("tolerations"), errors);
    validate_gates(new_spec, old_spec, &at.child("schedulingGates"), errors);
    if same(new_spec, old_spec) {
        return;
    }
    let masked = mask(new_spec, old_spec, &at, errors);
    if !same(&masked, old_spec) {
        errors.forbidden(at, format!("{UPDATABLE}\n"));
    }
}

/// Returns whether validation continues.
fn validate_deadline(new: &Value, old: &Value, at: Path<'_>, errors: &mut Errors) -> bool {
    let (new, old) = (new.optional_int("activeDeadlineSeconds"), old.optional_int("activeDeadlineSeconds"));
    match (new, old) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            errors.invalid(at, new, "must be between 0 and 2147483647, inclusive");
            false
        }
        (Some(new), Some(old)) if old < new => {
            errors.invalid(at, new, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            errors.invalid(at, Value::Null, "must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

/// Tolerations may be added, and their seconds changed; those with an expression may also go.
fn validate_tolerations(new: &Value, old: &Value, options: &Options<'_>, at: &Path<'_>, errors: &mut Errors) {
    if validate_kept_tolerations(new, old, at, errors) {
        let options = options.for_expressions(&placement::open_expressions(new, options));
        placement::validate_tolerations(new.list("tolerations"), &options, at, errors);
    }
}

/// Rejects changes of tolerations, except additions, other seconds, and the removal of expressions; returns whether there are
/// none.
pub(crate) fn validate_kept_tolerations(new: &Value, old: &Value, at: &Path<'_>, errors: &mut Errors) -> bool {
    let (new_list, old_list) = (new.list("tolerations"), old.list("tolerations"));
    if new_list == old_list {
        return true;
    }
    let new_known: SeenKeys<_> = new_list.iter().map(identity).collect();
    let old_known: SeenKeys<_> = old_list.iter().map(identity).collect();
    let has_expression = |it: &&Value| !it.text("expression").is_empty();
    let is_modified = old_list.iter().any(|it| !has_expression(&it) && !new_known.contains(&identity(it)));
    // An expression that takes the place of another is a change of its text.
    let is_dropped = old_list.iter().filter(has_expression).any(|it| !new_known.contains(&identity(it)));
    let is_added = new_list.iter().filter(has_expression).any(|it| !old_known.contains(&identity(it)));
    if is_modified || is_dropped && is_added {
        errors.forbidden(*at, "existing toleration can not be modified except its tolerationSeconds");
        return false;
    }
    true
}

/// The fields that identify a toleration, as in [`matching::tolerations::is_same`].
fn identity(toleration: &Value) -> [&str; 5] {
    ["key", "effect", "operator", "value", "expression"].map(|name| toleration.text(name))
}

fn validate_gates(new: &Value, old: &Value, at: &Path<'_>, errors: &mut Errors) {
    let known: SeenKeys<&str> = old.list("schedulingGates").iter().map(|it| it.text("name")).collect();
    for (index, gate) in new.list("schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        if !known.contains(&name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(at.index(index).child("name"), detail);
        }
    }
}

/// The new spec with everything that may change as it was; changes of placement are validated on the way.
fn mask(new: &Value, old: &Value, at: &Path<'_>, errors: &mut Errors) -> Value {
    let mut masked = new.clone();
    for kind in ["containers", "initContainers"] {
        for (container, old) in masked.list_mut(kind).iter_mut().zip(old.list(kind)) {
            container.set("image", old.field("image").clone());
        }
    }
    for name in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        masked.set(name, old.field(name).clone());
    }
    let seconds = "terminationGracePeriodSeconds";
    if old.optional_int(seconds).is_some_and(|it| it < 0) && masked.optional_int(seconds) == Some(1) {
        masked.set(seconds, old.field(seconds).clone());
    }
    if old.list("schedulingGates").is_empty() {
        return masked;
    }
    let selected = Lookup::new(new.map("nodeSelector"));
    let is_narrowed = old.map("nodeSelector").iter().all(|(key, value)| selected.get(key) == Some(value));
    if !is_narrowed {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        let shown = match new.field("nodeSelector") {
            Value::Null => api::field::BadValue::Rendered("null".to_owned()),
            value => value.clone().into(),
        };
        errors.invalid(at.child("nodeSelector"), shown, detail);
    }
    masked.set("nodeSelector", old.field("nodeSelector").clone());
    let (new_affinity, old_affinity) =
        (new.field("affinity").field("nodeAffinity"), old.field("affinity").field("nodeAffinity"));
    if !same(new_affinity, old_affinity) {
        let affinity = at.child("affinity");
        validate_node_affinity(new_affinity, old_affinity, &affinity.child("nodeAffinity"), errors);
        let is_only_node = masked.field("affinity").map("podAffinity").is_empty()
            && masked.field("affinity").map("podAntiAffinity").is_empty();
        if masked.has("affinity") && !old.has("affinity") && is_only_node {
            masked.unset("affinity");
        } else {
            masked.make("affinity").set("nodeAffinity", old_affinity.clone());
        }
    }
    masked
}

/// Rejects a change of node affinity, except that required terms of a gated pod may be narrowed.
pub(crate) fn validate_affinity_change(new: &Value, old: &Value, is_gated: bool, at: &Path<'_>, errors: &mut Errors) {
    if same(new, old) {
        return;
    }
    if is_gated {
        validate_node_affinity(new, old, at, errors);
    } else {
        errors.forbidden(*at, UPDATABLE);
    }
}

/// While a pod is gated its required terms may be narrowed.
fn validate_node_affinity(new: &Value, old: &Value, at: &Path<'_>, errors: &mut Errors) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let Some(required) = old.optional(REQUIRED) else { return };
    let (old_terms, new_terms) = (required.list("nodeSelectorTerms"), new.field(REQUIRED).list("nodeSelectorTerms"));
    let at = at.child(REQUIRED);
    let list = at.child("nodeSelectorTerms");
    if !old_terms.is_empty() && old_terms.len() != new_terms.len() {
        let shown = match new_terms {
            [] => api::field::BadValue::Rendered("null".to_owned()),
            terms => render::list("k8s.io/api/core/v1", "NodeSelectorTerm", terms),
        };
        errors.invalid(list, shown, "no additions/deletions to non-empty NodeSelectorTerms list are allowed");
        return;
    }
    for (index, (new, old)) in new_terms.iter().zip(old_terms).enumerate() {
        if !only_adds(new, old) {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.invalid(list.index(index), render::core("NodeSelectorTerm", new), detail);
        }
    }
}

/// Whether a term has what the old one had, in order, and perhaps more behind it.
fn only_adds(new: &Value, old: &Value) -> bool {
    const LISTS: &[&str] = &["matchExpressions", "matchFields", "matchCELExpressions"];
    let is_empty = |term: &Value| LISTS.iter().all(|name| term.list(name).is_empty());
    // A term that matches nothing would match something with an addition.
    if is_empty(old) && !is_empty(new) {
        return false;
    }
    LISTS.iter().all(|name| {
        let (new, old) = (new.list(name), old.list(name));
        new.len() >= old.len() && new.iter().zip(old).all(|(new, old)| same(new, old))
    })
}

/// Annotations that may not change.
pub(super) fn validate_annotations(pod: &Value, old: &Value, options: &Options<'_>, errors: &mut Errors) {
    let at = Path::new("metadata.annotations");
    let (new, old) = (pod.field("metadata").map("annotations"), old.field("metadata").map("annotations"));
    for (key, _) in old.iter().filter(|(key, value)| new.get(key) != Some(*value)) {
        if key.starts_with(ANNOTATION_APP_ARMOR_PREFIX) {
            errors.forbidden(at.key(key), "may not remove or update AppArmor annotations");
        }
        if key == ANNOTATION_CONFIG_MIRROR {
            errors.forbidden(at.key(key), "may not remove or update mirror pod annotation");
        }
    }
    for key in new.keys().filter(|key| !old.contains_key(key)) {
        if key.starts_with(ANNOTATION_APP_ARMOR_PREFIX) {
            errors.forbidden(at.key(key), "may not add AppArmor annotations");
        }
        if key == ANNOTATION_CONFIG_MIRROR {
            errors.forbidden(at.key(key), "may not add mirror pod annotation");
        }
    }
    spec::validate_annotations(new, pod.field("spec"), options, &at, errors);
}

/// Ephemeral containers are only added.
pub(super) fn validate_ephemeral(pod: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
    let options = options(old, context);
    if old.field("metadata").map("annotations").contains_key(ANNOTATION_CONFIG_MIRROR) {
        *errors = Errors::new();
        errors.forbidden(Path::new(""), "static pods do not support ephemeral containers");
        return;
    }
    meta::validate_update(pod, old, errors);
    validate_metadata_and_spec(pod, &options, errors);
    validate_annotations(pod, old, &options, errors);
    let at = Path::new("spec.ephemeralContainers");
    let new = pod.field("spec").list("ephemeralContainers");
    for old in old.field("spec").list("ephemeralContainers") {
        let name = old.text("name");
        let quoted = api::go_text::quote(name);
        match new.iter().rev().find(|it| it.text("name") == name) {
            None => errors.forbidden(at, format!("existing ephemeral containers {quoted} may not be removed\n")),
            Some(new) if !same(new, old) => {
                errors.forbidden(at, format!("existing ephemeral containers {quoted} may not be changed\n"));
            }
            Some(_) => {}
        }
    }
}

/// Resources may change where the node can follow.
pub(super) fn validate_resize(pod: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
    let options = options(old, context);
    let (new_spec, old_spec, at) = (pod.field("spec"), old.field("spec"), Path::new("spec"));
    let refusal = if old.field("metadata").map("annotations").contains_key(ANNOTATION_CONFIG_MIRROR) {
        Some("static pods cannot be resized")
    } else if old_spec.field("os").text("name") == "windows" {
        Some("windows pods cannot be resized")
    } else {
        None
    };
    if let Some(refusal) = refusal {
        *errors = Errors::new();
        errors.forbidden(Path::new(""), refusal);
        return;
    }
    meta::validate_update(pod, old, errors);
    validate_metadata_and_spec(pod, &options, errors);
    let old_class = match old.field("status").text("qosClass") {
        "" => prepare::qos_class(old_spec),
        class => class,
    };
    if old_class != prepare::qos_class(new_spec) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.invalid(at, pod.field("status").text("qosClass"), detail);
    }
    if !is_resize_supported(old) {
        errors.forbidden(at, "Pod running on node without support for resize");
    }
    if !validate_order(new_spec, old_spec, &at, errors) {
        return;
    }
    let masked = mask_resources(new_spec, old_spec, &at, errors);
    if errors.is_empty() && !same(&masked, old_spec) {
        errors.forbidden(at, "only cpu and memory resources are mutable");
    }
}

/// Nodes that can resize report the resources of running containers.
fn is_resize_supported(pod: &Value) -> bool {
    let mut statuses = pod.field("status").list("containerStatuses").iter();
    statuses.find(|it| it.field("state").has("running")).is_none_or(|it| it.has("resources"))
}

fn validate_order(new: &Value, old: &Value, at: &Path<'_>, errors: &mut Errors) -> bool {
    let before = errors.len();
    for kind in ["containers", "initContainers"] {
        let list = at.child(kind);
        if new.list(kind).len() != old.list(kind).len() {
            errors.forbidden(list, format!("{kind} may not be added or removed on resize"));
            continue;
        }
        for (index, (new, old)) in new.list(kind).iter().zip(old.list(kind)).enumerate() {
            if new.text("name") != old.text("name") {
                let detail = format!("{kind} may not be renamed or reordered on resize");
                errors.forbidden(list.index(index).child("name"), detail);
            }
        }
    }
    errors.len() == before
}

fn mask_resources(new: &Value, old: &Value, at: &Path<'_>, errors: &mut Errors) -> Value {
    let mut masked = new.clone();
    for kind in ["initContainers", "containers"] {
        let list = at.child(kind);
        for (index, (new, old)) in new.list(kind).iter().zip(old.list(kind)).enumerate() {
            validate_removed(new, old, &list.index(index).child("resources"), errors);
        }
    }
    for kind in ["containers", "initContainers"] {
        let list = at.child(kind);
        for (index, (container, old)) in masked.list_mut(kind).iter_mut().zip(old.list(kind)).enumerate() {
            let is_modified = !same(container, old);
            for part in ["requests", "limits"] {
                for name in ["cpu", "memory"] {
                    match old.field("resources").field(part).optional(name) {
                        Some(amount) => container.make("resources").make(part).set(name, amount.clone()),
                        None => {
                            if let Some(list) = container.get_mut("resources").and_then(|it| it.get_mut(part)) {
                                list.unset(name);
                            }
                        }
                    }
                }
            }
            if kind == "containers" {
                if !same(container, old) {
                    errors.forbidden(*at, "only cpu and memory resources are mutable");
                }
                continue;
            }
            if !same(container, old) {
                let detail = "only cpu and memory resources for init or sidecar containers are mutable";
                errors.forbidden(list.index(index), detail);
            }
            if is_modified && container.text("restartPolicy") != "Always" {
                for policy in container.list("resizePolicy") {
                    if policy.text("restartPolicy") == "RestartContainer" {
                        let detail =
                            "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
                        errors.forbidden(list.index(index), detail);
                    }
                }
            }
        }
    }
    match old.optional("resources") {
        Some(resources) => masked.set("resources", resources.clone()),
        None => masked.unset("resources"),
    }
    masked
}

/// Requested resources cannot be removed.
fn validate_removed(new: &Value, old: &Value, at: &Path<'_>, errors: &mut Errors) {
    for part in ["requests", "limits"] {
        let (new, old) = (new.field("resources").map(part), old.field("resources").map(part));
        if old.keys().any(|name| !new.contains_key(name)) {
            errors.forbidden(at.child(part), format!("resource {part} cannot be removed"));
        }
    }
}
