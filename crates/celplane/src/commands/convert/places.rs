//! The places of an object that have two forms.

use api::annotations::{COLUMNS, DEVICE_CONSTRAINTS, NODE_AFFINITY, TOLERATIONS};
use api::json::Value;
use registry::annotations::template_path;

/// A field and its annotation.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The path of the object whose `metadata` has the annotation: `spec.template`, or empty.
    pub(super) owner: Vec<String>,
    /// The annotation.
    pub(super) annotation: String,
    /// The parts of the field.
    pub(super) parts: Vec<Part>,
}

/// A part of a field.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// Path of the field, relative to the object.
    pub(super) path: Vec<String>,
    /// The key of the part in the annotation; empty where the annotation is the list itself.
    pub(super) key: &'static str,
    /// Whether entries move one by one; otherwise the part moves as a whole.
    pub(super) is_list: bool,
    /// Whether an entry, or the part, needs the proposals.
    pub(super) needs: fn(&Value) -> bool,
}

fn path(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

fn is_new_toleration(toleration: &Value) -> bool {
    !toleration.text("expression").is_empty() || toleration.text("operator").starts_with("Semver")
}

fn is_new_term(term: &Value) -> bool {
    let items = |field: &str| term.get(field).and_then(Value::as_array).unwrap_or_default();
    !items("matchCELExpressions").is_empty()
        || items("matchExpressions").iter().any(|it| it.text("operator").starts_with("Semver"))
}

fn is_new_selector(selector: &Value) -> bool {
    selector.get("nodeSelectorTerms").and_then(Value::as_array).unwrap_or_default().iter().any(is_new_term)
}

fn is_new_preference(term: &Value) -> bool {
    term.get("preference").is_some_and(is_new_term)
}

fn is_new_constraint(constraint: &Value) -> bool {
    constraint.get("cel").is_some()
}

fn is_new_column(column: &Value) -> bool {
    !column.text("expression").is_empty()
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// The places of an object of a built-in kind.
pub(super) fn of(kind: &str, object: &Value) -> Vec<Place> {
    let list = |parts: &[&str], needs| Part { path: path(parts), key: "", is_list: true, needs };
    match kind {
        "PersistentVolume" => vec![Place {
            owner: Vec::new(),
            annotation: NODE_AFFINITY.to_owned(),
            parts: vec![Part {
                path: path(&["spec", "nodeAffinity", "required"]),
                key: "required",
                is_list: false,
                needs: is_new_selector,
            }],
        }],
        "ResourceClaim" | "ResourceClaimTemplate" => {
            let owner = if kind == "ResourceClaim" { Vec::new() } else { path(&["spec"]) };
            let parts = vec![list(&["spec", "devices", "constraints"], is_new_constraint)];
            vec![Place { owner, annotation: DEVICE_CONSTRAINTS.to_owned(), parts }]
        }
        "CustomResourceDefinition" => {
            let versions = object.list_at(&["spec", "versions"]);
            let places = versions.iter().enumerate().map(|(index, version)| Place {
                owner: Vec::new(),
                annotation: format!("{COLUMNS}{}", version.text("name")),
                parts: vec![list(
                    &["spec", "versions", format!("[{index}]").as_str(), "additionalPrinterColumns"],
                    is_new_column,
                )],
            });
            places.collect()
        }
        _ => {
            let Some(owner) = template_path(kind) else { return Vec::new() };
            let affinity = ["spec", "affinity", "nodeAffinity"];
            let required = Part {
                path: path(&[affinity.as_slice(), &[REQUIRED]].concat()),
                key: REQUIRED,
                is_list: false,
                needs: is_new_selector,
            };
            let preferred = Part {
                path: path(&[affinity.as_slice(), &[PREFERRED]].concat()),
                key: PREFERRED,
                is_list: true,
                needs: is_new_preference,
            };
            vec![
                Place {
                    owner: path(owner),
                    annotation: TOLERATIONS.to_owned(),
                    parts: vec![list(&["spec", "tolerations"], is_new_toleration)],
                },
                Place { owner: path(owner), annotation: NODE_AFFINITY.to_owned(), parts: vec![required, preferred] },
            ]
        }
    }
}
