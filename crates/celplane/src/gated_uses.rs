//! Uses of gated fields in an object: tolerations, node affinity, volumes, claims, columns.

use api::features::{Features, Gate};
use api::json::Value;
use api::types::{self, Kind, Type};
use registry::annotations::Content;
use registry::column_path;

/// A use of a gated field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Use<'v> {
    /// Gates that enable the field.
    pub(crate) needs: Needs,
    /// Path of the field.
    pub(crate) path: String,
    /// The expression or operator.
    pub(crate) text: &'v str,
    /// Kind of the field.
    pub(crate) field: Field<'v>,
}

/// A gated field.
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

/// Returns all uses of gated fields in an object. They are found by the table of types, so that no carrier is
/// missed.
pub(crate) fn find(object: &Value) -> Vec<Use<'_>> {
    let mut uses = Vec::new();
    let text = |field: &str| object.text(field);
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if kind == "CustomResourceDefinition" {
        columns(object, &mut uses);
    }
    if let Some(of) = types::by_api_version(api_version, kind) {
        walk(of, object, "", &mut uses);
    }
    // A revision holds a part of a DaemonSet or StatefulSet, which `rollout undo` brings back.
    if kind == "ControllerRevision"
        && let (Some(data), Some(of)) = (object.get("data"), types::by_api_version("apps/v1", "DaemonSet"))
    {
        walk(of, data, "data", &mut uses);
    }
    uses
}

/// All uses in an annotation that carries gated fields.
pub(crate) fn find_in(content: &Content) -> Vec<Use<'_>> {
    let mut uses = Vec::new();
    if content.of.name == "CustomResourceColumnDefinition" {
        for (index, column) in content.value.as_array().unwrap_or_default().iter().enumerate() {
            if let Some(text) = text(column, "expression") {
                let path = format!("{}[{index}].expression", content.path);
                uses.push(Use { needs: Needs::COLUMN, path, text, field: Field::PrinterColumn(None) });
            }
        }
    } else if content.is_list {
        for (index, item) in content.value.as_array().unwrap_or_default().iter().enumerate() {
            walk(content.of, item, &format!("{}[{index}]", content.path), &mut uses);
        }
    } else {
        walk(content.of, &content.value, &content.path, &mut uses);
    }
    uses
}

/// Whether objects of a kind can use gated fields.
pub(crate) fn can_use(of: &'static Type) -> bool {
    fn leads(of: &'static Type, seen: &mut Vec<&'static str>) -> bool {
        if CARRIERS.contains(&of.name) {
            return true;
        }
        if seen.contains(&of.name) {
            return false;
        }
        seen.push(of.name);
        of.fields.iter().filter_map(|field| inner(field.kind)).any(|of| leads(of, seen))
    }
    leads(of, &mut Vec::new()) || matches!(of.name, "ControllerRevision" | "CustomResourceDefinition")
}

/// The types that have gated fields, except the columns of definitions.
const CARRIERS: [&str; 3] = ["Toleration", "NodeSelectorTerm", "DeviceConstraint"];

/// The struct that a field holds, in lists and maps, too.
fn inner(kind: Kind) -> Option<&'static Type> {
    match kind {
        Kind::Struct(of) => Some(of),
        Kind::List(inner_kind) | Kind::Map(inner_kind) => inner(*inner_kind),
        _ => None,
    }
}

fn walk<'v>(object_type: &'static Type, value: &'v Value, at: &str, uses: &mut Vec<Use<'v>>) {
    match object_type.name {
        "Toleration" => toleration(value, at, uses),
        "NodeSelectorTerm" => term(value, at, uses),
        "DeviceConstraint" => constraint(value, at, uses),
        _ => {
            for (name, value) in value.as_object().into_iter().flat_map(|fields| fields.iter()) {
                let Some(field) = object_type.fields.iter().find(|field| field.name == name) else { continue };
                let at = if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
                walk_into(field.kind, value, &at, uses);
            }
        }
    }
}

fn walk_into<'v>(kind: Kind, value: &'v Value, at: &str, uses: &mut Vec<Use<'v>>) {
    match kind {
        Kind::Struct(of) => walk(of, value, at, uses),
        Kind::List(kind) => {
            for (index, item) in value.as_array().unwrap_or_default().iter().enumerate() {
                walk_into(*kind, item, &format!("{at}[{index}]"), uses);
            }
        }
        Kind::Map(kind) => {
            for (name, item) in value.as_object().into_iter().flat_map(|fields| fields.iter()) {
                walk_into(*kind, item, &format!("{at}[{name}]"), uses);
            }
        }
        _ => {}
    }
}

/// Path of the pod spec, in kinds that have one.
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

fn toleration<'v>(toleration: &'v Value, at: &str, uses: &mut Vec<Use<'v>>) {
    let path = |field: &str| format!("{at}.{field}");
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

fn constraint<'v>(constraint: &'v Value, at: &str, uses: &mut Vec<Use<'v>>) {
    if let Some(text) = constraint.str_at(&["cel", "expression"]) {
        let path = format!("{at}.cel.expression");
        uses.push(Use { needs: Needs::CONSTRAINT, path, text, field: Field::DeviceConstraint });
    }
}

fn columns<'v>(object: &'v Value, uses: &mut Vec<Use<'v>>) {
    for (version, form) in items(object.get("spec"), "versions") {
        for (index, column) in items(Some(form), "additionalPrinterColumns") {
            if let Some(text) = text(column, "expression") {
                let path = format!("{}.expression", column_path(object, version, index));
                let field = Field::PrinterColumn(form.at(&["schema", "openAPIV3Schema"]));
                let of_column = Use { needs: Needs::COLUMN, path, text, field };
                // Versions with the same columns and schema have them in common.
                if !uses.contains(&of_column) {
                    uses.push(of_column);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(object: &Value) -> Vec<String> {
        find(object).into_iter().map(|it| it.path).collect()
    }

    /// Errors of the server have the same paths.
    #[test]
    fn columns_of_all_versions_are_those_of_the_spec() {
        let version = |name: &str, column: &str| {
            api::json!({
                "name": name, "additionalPrinterColumns": [{"name": "A", "jsonPath": ".a"}, {"name": "B", "expression": column}],
            })
        };
        let definition = |versions: Value| {
            api::json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": {"versions": (versions)},
            })
        };
        let same = definition(vec![version("v1", "self.b"), version("v2", "self.b")].into());
        assert_eq!(paths(&same), ["spec.additionalPrinterColumns[1].expression"]);
        let different = definition(vec![version("v1", "self.b"), version("v2", "self.c")].into());
        let expected = [0, 1].map(|at| format!("spec.versions[{at}].additionalPrinterColumns[1].expression"));
        assert_eq!(paths(&different), expected);
    }

    #[test]
    fn uses_are_found_in_every_carrier() {
        let tolerations = api::json!([{"expression": "true"}, {"key": "a", "operator": "SemverLt", "value": "1"}]);
        let class = api::json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "scheduling": {"tolerations": (tolerations.clone())},
        });
        assert_eq!(paths(&class), ["scheduling.tolerations[0].expression", "scheduling.tolerations[1].operator"]);
        let revision = api::json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision",
            "data": {"spec": {"template": {"$patch": "replace", "spec": {"tolerations": (tolerations)}}}},
        });
        assert_eq!(paths(&revision)[0], "data.spec.template.spec.tolerations[0].expression");
        let terms = api::json!({"nodeSelectorTerms": [{"matchCELExpressions": ["true"]}]});
        let slice = api::json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "spec": {"nodeSelector": (terms.clone())},
        });
        assert_eq!(paths(&slice), ["spec.nodeSelector.nodeSelectorTerms[0].matchCELExpressions[0]"]);
        let preferred = api::json!([{"weight": 1, "preference": {"matchCELExpressions": ["true"]}}]);
        let cron = api::json!({"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": {
            "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": terms,
                "preferredDuringSchedulingIgnoredDuringExecution": preferred,
            }},
        }}}}}});
        let at = "spec.jobTemplate.spec.template.spec.affinity.nodeAffinity";
        let required =
            format!("{at}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchCELExpressions[0]");
        let preferred =
            format!("{at}.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchCELExpressions[0]");
        assert_eq!(paths(&cron), [required, preferred]);
    }

    #[test]
    fn carriers_come_from_the_table_of_types() {
        let can = |version: &str, kind: &str| types::by_api_version(version, kind).is_some_and(can_use);
        for (version, kind) in [
            ("v1", "Pod"),
            ("v1", "PersistentVolume"),
            ("apps/v1", "ControllerRevision"),
            ("batch/v1", "CronJob"),
            ("node.k8s.io/v1", "RuntimeClass"),
            ("resource.k8s.io/v1", "ResourceClaimTemplate"),
            ("resource.k8s.io/v1", "ResourceSlice"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ] {
            assert!(can(version, kind), "{kind}");
        }
        assert!(!can("v1", "ConfigMap") && !can("v1", "Node") && !can("autoscaling/v1", "Scale"), "none of these");
    }
}
