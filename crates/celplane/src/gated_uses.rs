//! Which gated fields an object uses, and where: tolerations, node affinity, volumes, claims, columns.

use api::features::{Features, Gate};
use api::json::Value;

/// A use of a gated field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Use<'v> {
    /// What opens the field.
    pub(crate) needs: Needs,
    /// Where it is.
    pub(crate) path: String,
    /// The expression or operator.
    pub(crate) text: &'v str,
    /// What kind of field it is.
    pub(crate) field: Field<'v>,
}

/// Which gated field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Field<'v> {
    /// `Toleration.expression`.
    TolerationExpression,
    /// An operator of a toleration.
    TolerationOperator,
    /// An entry of `matchCELExpressions`.
    AffinityExpression,
    /// An operator of a node selector requirement.
    AffinityOperator,
    /// `DeviceConstraint.cel`.
    DeviceConstraint,
    /// `CustomResourceColumnDefinition.expression`, and the version's schema.
    PrinterColumn(Option<&'v Value>),
}

/// The gates of which one opens a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Needs(pub(crate) &'static [Gate]);

impl Needs {
    const TOLERATION: Needs = Needs(&[Gate::TaintTolerationCEL, Gate::TaintTolerationNodeAffinityCEL]);
    const AFFINITY: Needs = Needs(&[Gate::TaintTolerationNodeAffinityCEL]);
    const SEMVER: Needs = Needs(&[Gate::TaintTolerationNodeAffinitySemverComparisonOperators]);
    const COMPARISON: Needs = Needs(&[Gate::TaintTolerationComparisonOperators]);
    const CONSTRAINT: Needs = Needs(&[Gate::DRACELDeviceConstraint]);
    const COLUMN: Needs = Needs(&[Gate::CRDAdditionalPrinterColumnCEL]);

    /// Whether the field is open.
    pub(crate) fn are_met(self, features: Features) -> bool {
        self.0.iter().any(|gate| features.enabled(*gate))
    }

    /// The gates, in words.
    pub(crate) fn text(self) -> String {
        self.0.iter().map(|gate| gate.name()).collect::<Vec<_>>().join(" or ")
    }
}

/// All uses of gated fields in an object.
pub(crate) fn find(object: &Value) -> Vec<Use<'_>> {
    let mut uses = Vec::new();
    match object.str_at(&["kind"]).unwrap_or_default() {
        "PersistentVolume" => {
            let at = ["spec", "nodeAffinity", "required"];
            node_selector(object.at(&at), &at.join("."), &mut uses);
        }
        "ResourceClaim" => claim(object, &["spec", "devices"], &mut uses),
        "ResourceClaimTemplate" => claim(object, &["spec", "spec", "devices"], &mut uses),
        "CustomResourceDefinition" => columns(object, &mut uses),
        kind => {
            if let Some(path) = pod_spec_path(kind)
                && let Some(spec) = object.at(path)
            {
                pod_spec(spec, &path.join("."), &mut uses);
            }
        }
    }
    uses
}

/// Where the specification of pods is, in objects that hold one.
pub(crate) fn pod_spec_path(kind: &str) -> Option<&'static [&'static str]> {
    Some(match kind {
        "Pod" => &["spec"],
        "PodTemplate" => &["template", "spec"],
        "CronJob" => &["spec", "jobTemplate", "spec", "template", "spec"],
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "ReplicationController" => {
            &["spec", "template", "spec"]
        }
        _ => return None,
    })
}

fn items<'v>(value: Option<&'v Value>, name: &str) -> impl Iterator<Item = (usize, &'v Value)> {
    value.and_then(|value| value.get(name)).and_then(Value::as_array).unwrap_or_default().iter().enumerate()
}

fn text<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn is_semver(operator: &str) -> bool {
    matches!(operator, "SemverLt" | "SemverGt" | "SemverEq")
}

fn pod_spec<'v>(spec: &'v Value, at: &str, uses: &mut Vec<Use<'v>>) {
    for (index, toleration) in items(Some(spec), "tolerations") {
        let path = |field: &str| format!("{at}.tolerations[{index}].{field}");
        if let Some(text) = text(toleration, "expression") {
            let (path, field) = (path("expression"), Field::TolerationExpression);
            uses.push(Use { needs: Needs::TOLERATION, path, text, field });
        }
        let needs = match text(toleration, "operator") {
            Some(operator) if is_semver(operator) => Some((Needs::SEMVER, operator)),
            Some(operator @ ("Lt" | "Gt")) => Some((Needs::COMPARISON, operator)),
            _ => None,
        };
        if let Some((needs, text)) = needs {
            uses.push(Use { needs, path: path("operator"), text, field: Field::TolerationOperator });
        }
    }
    let affinity = spec.at(&["affinity", "nodeAffinity"]);
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let selector = affinity.and_then(|affinity| affinity.get(required));
    node_selector(selector, &format!("{at}.affinity.nodeAffinity.{required}"), uses);
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    for (index, weighted) in items(affinity, preferred) {
        let path = format!("{at}.affinity.nodeAffinity.{preferred}[{index}].preference");
        if let Some(preference) = weighted.get("preference") {
            term(preference, &path, uses);
        }
    }
}

fn node_selector<'v>(selector: Option<&'v Value>, at: &str, uses: &mut Vec<Use<'v>>) {
    for (index, item) in items(selector, "nodeSelectorTerms") {
        term(item, &format!("{at}.nodeSelectorTerms[{index}]"), uses);
    }
}

fn term<'v>(term: &'v Value, at: &str, uses: &mut Vec<Use<'v>>) {
    for (index, requirement) in items(Some(term), "matchExpressions") {
        if let Some(operator) = text(requirement, "operator").filter(|operator| is_semver(operator)) {
            let path = format!("{at}.matchExpressions[{index}].operator");
            uses.push(Use { needs: Needs::SEMVER, path, text: operator, field: Field::AffinityOperator });
        }
    }
    for (index, expression) in items(Some(term), "matchCELExpressions") {
        let path = format!("{at}.matchCELExpressions[{index}]");
        let text = expression.as_str().unwrap_or_default();
        uses.push(Use { needs: Needs::AFFINITY, path, text, field: Field::AffinityExpression });
    }
}

fn claim<'v>(object: &'v Value, devices: &[&str], uses: &mut Vec<Use<'v>>) {
    for (index, constraint) in items(object.at(devices), "constraints") {
        if let Some(text) = constraint.str_at(&["cel", "expression"]) {
            let path = format!("{}.constraints[{index}].cel.expression", devices.join("."));
            uses.push(Use { needs: Needs::CONSTRAINT, path, text, field: Field::DeviceConstraint });
        }
    }
}

fn columns<'v>(object: &'v Value, uses: &mut Vec<Use<'v>>) {
    for (version, form) in items(object.get("spec"), "versions") {
        for (index, column) in items(Some(form), "additionalPrinterColumns") {
            if let Some(text) = text(column, "expression") {
                let path = format!("spec.versions[{version}].additionalPrinterColumns[{index}].expression");
                let field = Field::PrinterColumn(form.at(&["schema", "openAPIV3Schema"]));
                uses.push(Use { needs: Needs::COLUMN, path, text, field });
            }
        }
    }
}
