//! Parts of a pod's spec that are allowed because a gate is on, or because the old spec already had them.
//!
//! One question per gate and object: a feature that the old spec uses anywhere is open in the new one.
//! Follows `GetValidationOptionsFromPodSpecAndMeta`.

use api::features::Gate;
use api::json::Value;

use super::{placement, security};
use crate::core::expression_totals::{self, Group};
use crate::core::node_selector::{self, Cel};
use crate::core::resource_names;
use crate::meta;
use crate::strategy::Context;

/// Answers that validation of a pod's spec needs.
#[derive(Clone, Copy)]
pub(crate) struct Options<'a> {
    /// The spec is a pod's, not a template's.
    pub(crate) is_pod: bool,
    pub(crate) context: &'a Context<'a>,
    /// The spec that is replaced.
    pub(crate) old: Option<&'a Value>,
    pub(crate) allow_comparison: bool,
    pub(crate) allow_semver: bool,
    pub(crate) allow_toleration_cel: bool,
    pub(crate) compiles_tolerations: bool,
    pub(crate) cel: Cel<'a>,
    pub(crate) allow_bad_deletion_cost: bool,
    pub(crate) allow_indivisible_huge_pages: bool,
    pub(crate) allow_bad_selector_values: bool,
    pub(crate) allow_bad_affinity_values: bool,
    pub(crate) allow_bad_spread_selector: bool,
    pub(crate) old_breaks_match_label_keys: bool,
    pub(crate) allow_foreign_token_path: bool,
    pub(crate) allow_namespaced_sysctls: bool,
    pub(crate) allow_user_namespace_with_host_network: bool,
    pub(crate) allow_user_namespace_with_devices: bool,
    pub(crate) allow_empty_image_reference: bool,
    pub(crate) allow_sys_admin: bool,
    pub(crate) allow_restart_for_init: bool,
}

impl<'a> Options<'a> {
    /// For a spec that may replace an old one; `old_metadata` is that of the pod or template.
    pub(crate) fn new(
        old: Option<&'a Value>,
        old_metadata: Option<&Value>,
        is_pod: bool,
        context: &'a Context<'a>,
    ) -> Options<'a> {
        let features = context.features;
        let null = Value::Null;
        let spec = old.unwrap_or(&null);
        let affinity_cel = features.enabled(Gate::TaintTolerationNodeAffinityCEL) || placement::uses_affinity_cel(spec);
        let required = spec.at(&["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"]);
        let uses_user_namespace = spec.optional_flag("hostUsers") == Some(false);
        let containers = || super::containers(spec).map(|(_, _, container)| container);
        Options {
            is_pod,
            context,
            old,
            allow_comparison: features.enabled(Gate::TaintTolerationComparisonOperators)
                || placement::uses_comparison(spec),
            allow_semver: features.enabled(Gate::TaintTolerationNodeAffinitySemverComparisonOperators)
                || placement::uses_semver(spec),
            allow_toleration_cel: features.toleration_cel() || placement::uses_toleration_cel(spec),
            compiles_tolerations: true,
            cel: if affinity_cel { Cel::Compile(context.expressions) } else { Cel::GateOff },
            allow_bad_deletion_cost: old_metadata.is_some_and(|it| super::has_bad_deletion_cost(it.map("annotations"))),
            allow_indivisible_huge_pages: containers().any(|container| {
                let resources = container.field("resources");
                ["limits", "requests"].iter().any(|kind| {
                    resource_names::amounts(resources.map(kind)).any(|(name, amount)| {
                        resource_names::is_huge_page(name) && !resource_names::is_divisible(name, &amount)
                    })
                })
            }),
            allow_bad_selector_values: placement::pod_affinity_terms(spec).any(|term| {
                meta::has_bad_values(term.field("labelSelector"))
                    || meta::has_bad_values(term.field("namespaceSelector"))
            }),
            allow_bad_affinity_values: required.is_some_and(node_selector::has_bad_values),
            allow_bad_spread_selector: placement::has_bad_spread_selector(spec),
            old_breaks_match_label_keys: placement::breaks_match_label_keys(spec),
            allow_foreign_token_path: super::volumes::has_foreign_token_path(spec),
            allow_namespaced_sysctls: security::has_forbidden_sysctl(spec),
            allow_user_namespace_with_host_network: uses_user_namespace && spec.flag("hostNetwork"),
            allow_user_namespace_with_devices: uses_user_namespace
                && containers().any(|container| !container.list("volumeDevices").is_empty()),
            allow_empty_image_reference: spec
                .list("volumes")
                .iter()
                .any(|volume| volume.optional("image").is_some_and(|it| it.text("reference").is_empty())),
            allow_sys_admin: containers().any(|container| security::adds_sys_admin(container.field("securityContext"))),
            allow_restart_for_init: spec.list("initContainers").iter().any(|container| {
                container.text("restartPolicy") != "Always"
                    && container.list("resizePolicy").iter().any(|it| it.text("restartPolicy") == "RestartContainer")
            }),
        }
    }

    /// The same for a spec with these expressions: where there are too many, none is compiled.
    #[must_use]
    pub(crate) fn for_expressions(&self, groups: &[Group<'_>]) -> Options<'a> {
        if !expression_totals::are_many(groups) {
            return *self;
        }
        let is_rejected = expression_totals::are_too_many(groups, &self.old_expressions());
        let cel = match self.cel {
            Cel::Compile(_) if is_rejected => Cel::Rejected,
            cel => cel,
        };
        Options { cel, compiles_tolerations: !is_rejected, ..*self }
    }

    /// The expressions of the spec that is replaced.
    pub(crate) fn old_expressions(&self) -> Vec<Group<'a>> {
        self.old.map(Group::of_pod).into_iter().flatten().collect()
    }

    /// The rules of required node affinity.
    pub(crate) fn affinity_rules(&self) -> node_selector::Rules<'a> {
        node_selector::Rules {
            allow_bad_values: self.allow_bad_affinity_values,
            allow_semver: self.allow_semver,
            cel: self.cel,
        }
    }
}
