//! Pod Security admission: the Pod Security Standards and the policy of a namespace.
//!
//! - `policy`: levels, versions, and the policy that the labels of a namespace select.
//! - `configuration`: defaults and exemptions, read from a `PodSecurityConfiguration`.
//! - `checks`: one function per control, with the versions it applies to.
//! - `existing`: warnings about pods that violate a stricter policy of their namespace.
//!
//! Follows Kubernetes' `k8s.io/pod-security-admission`. The caller looks up namespaces and pods, records metrics and
//! answers the request.

mod checks;
mod configuration;
mod existing;
mod policy;

use api::go_text;
use api::json::Value;

pub use checks::{Violation, Violations, violations};
pub use configuration::Configuration;
pub use existing::{MAX_PODS, Survey};
pub use policy::{Level, LevelVersion, Policy, Version};

/// Subresources of pods that do not carry a pod spec to evaluate.
const IGNORED_SUBRESOURCES: [&str; 8] =
    ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

/// The mode of a namespace's policy that an evaluation belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Violations are rejected.
    Enforce,
    /// Violations are recorded in the audit log.
    Audit,
    /// Violations are returned as warnings.
    Warn,
}

impl Mode {
    /// The name in labels and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::Enforce => "enforce",
            Mode::Audit => "audit",
            Mode::Warn => "warn",
        }
    }
}

/// One counted evaluation of a pod against a standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evaluation {
    /// The mode it was made for.
    pub mode: Mode,
    /// The standard.
    pub standard: LevelVersion,
    /// Whether the pod satisfies it.
    pub is_allowed: bool,
}

/// The decision about a pod or a pod template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// The reason for a rejection: `violates PodSecurity "baseline:latest": …`.
    pub denial: Option<String>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Audit annotations, without their prefix [`ANNOTATION_PREFIX`].
    pub annotations: Vec<(&'static str, String)>,
    /// The evaluations to count.
    pub evaluations: Vec<Evaluation>,
    /// Whether an exemption applies, so that nothing was evaluated.
    pub is_exempt: bool,
}

/// Prefix of the audit annotations.
pub const ANNOTATION_PREFIX: &str = policy::LABEL_PREFIX;

impl Decision {
    /// The decision for exempt requests; `dimension` is `user`, `namespace` or `runtimeClass`.
    #[must_use]
    pub fn exempt(dimension: &str) -> Self {
        Decision { annotations: vec![("exempt", dimension.to_owned())], is_exempt: true, ..Decision::default() }
    }

    /// The decision for pods in namespaces where every mode is privileged.
    #[must_use]
    pub fn privileged(enforce: LevelVersion) -> Self {
        let latest = LevelVersion { level: Level::Privileged, version: Version::Latest };
        Decision {
            annotations: vec![("enforce-policy", latest.to_string())],
            evaluations: vec![Evaluation { mode: Mode::Enforce, standard: enforce, is_allowed: true }],
            ..Decision::default()
        }
    }
}

/// Whether requests for this subresource of pods are evaluated. Unknown subresources are, to fail closed.
#[must_use]
pub fn evaluates_pod_subresource(subresource: &str) -> bool {
    !IGNORED_SUBRESOURCES.contains(&subresource)
}

/// Whether objects of this resource contain a pod template. Pods themselves do not.
#[must_use]
pub fn has_template(group: &str, plural: &str) -> bool {
    matches!(
        (group, plural),
        ("", "replicationcontrollers" | "podtemplates")
            | ("apps", "replicasets" | "deployments" | "statefulsets" | "daemonsets")
            | ("batch", "jobs" | "cronjobs")
    )
}

/// Returns the pod template of an object whose resource [`has_template`].
#[must_use]
pub fn template<'a>(plural: &str, object: &'a Value) -> Option<&'a Value> {
    match plural {
        "podtemplates" => object.optional("template"),
        "cronjobs" => object.field("spec").field("jobTemplate").field("spec").optional("template"),
        _ => object.field("spec").optional("template"),
    }
}

/// Whether an update of a pod may change how it is evaluated: its containers or their images change.
#[must_use]
pub fn is_significant_update(pod: &Value, old: &Value) -> bool {
    let (spec, old_spec) = (pod.field("spec"), old.field("spec"));
    for list in ["containers", "initContainers"] {
        let (new, old) = (spec.list(list), old_spec.list(list));
        let images = new.iter().zip(old).any(|(new, old)| new.text("image") != old.text("image"));
        if new.len() != old.len() || images {
            return true;
        }
    }
    let old_ephemeral = old_spec.list("ephemeralContainers");
    spec.list("ephemeralContainers").iter().any(|container| {
        let before = old_ephemeral.iter().find(|it| it.text("name") == container.text("name"));
        before.is_none_or(|before| before.text("image") != container.text("image"))
    })
}

/// Evaluates a pod, or a template, against the policy of its namespace. Only pods are rejected: `is_enforced`.
///
/// `policy_errors` is the text of the errors in the namespace's labels, if there are any.
#[must_use]
pub fn evaluate(
    configuration: &Configuration,
    policy: &Policy,
    policy_errors: Option<&str>,
    pod: &Value,
    is_enforced: bool,
) -> Decision {
    let (metadata, spec) = (pod.field("metadata"), pod.field("spec"));
    if configuration.exempts_runtime_class(spec.text("runtimeClassName")) {
        return Decision::exempt("runtimeClass");
    }
    let mut decision = Decision::default();
    if let Some(errors) = policy_errors {
        decision.annotations.push(("error", format!("Failed to parse policy: {errors}")));
    }
    let mut results: Vec<(LevelVersion, Violations)> = Vec::with_capacity(3);
    // Modes often share a standard, which is then evaluated once.
    let mut find = |standard: LevelVersion| -> Violations {
        if let Some((_, known)) = results.iter().find(|(it, _)| *it == standard) {
            return known.clone();
        }
        let found = violations(standard, metadata, spec);
        results.push((standard, found.clone()));
        found
    };
    if is_enforced {
        let found = find(policy.enforce);
        let is_allowed = found.is_empty();
        decision.annotations.push(("enforce-policy", policy.enforce.to_string()));
        decision.evaluations.push(Evaluation { mode: Mode::Enforce, standard: policy.enforce, is_allowed });
        if !is_allowed {
            decision.denial = Some(format!("violates PodSecurity {}: {}", quoted(policy.enforce), found.detail()));
        }
    }
    let found = find(policy.audit);
    if !found.is_empty() {
        let text = format!("would violate PodSecurity {}: {}", quoted(policy.audit), found.detail());
        decision.annotations.push(("audit-violations", text));
        decision.evaluations.push(Evaluation { mode: Mode::Audit, standard: policy.audit, is_allowed: false });
    }
    // A rejected request carries no warnings about the same pod.
    if decision.denial.is_none() {
        let found = find(policy.warn);
        if !found.is_empty() {
            let text = format!("would violate PodSecurity {}: {}", quoted(policy.warn), found.detail());
            decision.warnings.push(text);
            decision.evaluations.push(Evaluation { mode: Mode::Warn, standard: policy.warn, is_allowed: false });
        }
    }
    decision
}

fn quoted(standard: LevelVersion) -> String {
    go_text::quote(&standard.to_string())
}
