//! The status of a definition: which of its names are accepted, whether it is served, and how it goes.
//!
//! Follows `naming_controller.go`, `establishing_controller.go` and `crd_finalizer.go` of apiextensions. Each
//! function changes the status of one definition; the server decides when to call them, and in which order to
//! write.

use std::collections::HashSet;

use api::json::Value;

/// Finalizer that keeps a definition until its objects are deleted.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Whether a condition of a definition is true.
#[must_use]
pub fn is_true(definition: &Value, condition: &str) -> bool {
    let mut conditions = definition.field("status").list("conditions").iter();
    conditions.any(|it| it.text("type") == condition && it.text("status") == "True")
}

/// Sets a condition; the time moves when the status does.
pub fn set_condition(definition: &mut Value, condition: &str, is_true: bool, reason: &str, message: &str, now: &str) {
    let status = if is_true { "True" } else { "False" };
    let mut conditions = definition.field("status").list("conditions").to_vec();
    match conditions.iter_mut().find(|it| it.text("type") == condition) {
        Some(found) => {
            if found.text("status") != status || found.text("lastTransitionTime").is_empty() {
                found.set("lastTransitionTime", now);
            }
            found.set("status", status);
            found.set("reason", reason);
            found.set("message", message);
        }
        None => conditions.push(api::json!({
            "type": condition, "status": status, "lastTransitionTime": now, "reason": reason, "message": message
        })),
    }
    definition.make("status").set("conditions", conditions);
}

/// Accepts the names of a definition that no other one of its group has; whether its status changed.
pub fn accept_names<'d>(definition: &mut Value, group: impl Iterator<Item = &'d Value>, now: &str) -> bool {
    let wanted = definition.field("spec").field("names").clone();
    let accepted = definition.field("status").field("acceptedNames").clone();
    let (mut resources, mut kinds): (HashSet<String>, HashSet<String>) = (HashSet::new(), HashSet::new());
    for other in group {
        let names = other.field("status").field("acceptedNames");
        resources.extend(["plural", "singular"].iter().map(|name| names.text(name).to_owned()));
        resources.extend(names.texts("shortNames").map(ToOwned::to_owned));
        kinds.extend(["kind", "listKind"].iter().map(|name| names.text(name).to_owned()));
    }
    let mut names = accepted.clone();
    if !matches!(names, Value::Object(_)) {
        names = Value::object();
    }
    // The last conflict is reported.
    let mut conflict: Option<(&str, String)> = None;
    let in_use = |name: &str| format!("{} is already in use", api::go_text::quote(name));
    let fields = [
        ("plural", "PluralConflict", &resources),
        ("singular", "SingularConflict", &resources),
        ("shortNames", "ShortNamesConflict", &resources),
        ("kind", "KindConflict", &kinds),
        ("listKind", "ListKindConflict", &kinds),
    ];
    for (field, reason, used) in fields {
        if field == "shortNames" {
            let own: Vec<&str> = accepted.texts(field).collect();
            let taken = wanted.texts(field).filter(|name| !own.contains(name) && used.contains(*name));
            let taken: Vec<String> = taken.map(in_use).collect();
            match taken.as_slice() {
                [] => copy(&mut names, &wanted, field),
                [one] => conflict = Some((reason, one.clone())),
                several => conflict = Some((reason, format!("[{}]", several.join(", ")))),
            }
            continue;
        }
        let name = wanted.text(field);
        if name != accepted.text(field) && used.contains(name) {
            conflict = Some((reason, in_use(name)));
        } else {
            copy(&mut names, &wanted, field);
        }
    }
    copy(&mut names, &wanted, "categories");
    let before = definition.field("status").clone();
    definition.make("status").set("acceptedNames", names);
    match conflict {
        Some((reason, message)) => set_condition(definition, "NamesAccepted", false, reason, &message, now),
        None => set_condition(definition, "NamesAccepted", true, "NoConflicts", "no conflicts found", now),
    }
    let is_known = before.list("conditions").iter().any(|it| it.text("type") == "Established");
    if is_true(definition, "NamesAccepted") && !is_true(definition, "Established") {
        set_condition(definition, "Established", false, "Installing", "the initial names have been accepted", now);
    } else if !is_known {
        set_condition(definition, "Established", false, "NotAccepted", "not all names are accepted", now);
    }
    *definition.field("status") != before
}

fn copy(names: &mut Value, wanted: &Value, field: &str) {
    match wanted.optional(field) {
        Some(value) => names.set(field, value.clone()),
        None => names.unset(field),
    }
}

/// Marks a definition as served once its names are accepted; whether its status changed.
pub fn establish(definition: &mut Value, now: &str) -> bool {
    if !is_true(definition, "NamesAccepted") || is_true(definition, "Established") {
        return false;
    }
    set_condition(definition, "Established", true, "InitialNamesAccepted", "the initial names have been accepted", now);
    true
}

/// Marks a definition for deletion: its objects go first.
pub fn terminate(definition: &mut Value, now: &str) {
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_condition(definition, "Terminating", true, "InstanceDeletionPending", message, now);
    let metadata = definition.make("metadata");
    if !metadata.texts("finalizers").any(|it| it == CLEANUP_FINALIZER) {
        let mut finalizers = metadata.list("finalizers").to_vec();
        finalizers.push(CLEANUP_FINALIZER.into());
        metadata.set("finalizers", finalizers);
    }
}

/// Orders versions as discovery does: stable ones first, then beta, then alpha, newer before older.
#[must_use]
pub fn compare_versions(left: &str, right: &str) -> std::cmp::Ordering {
    let (left_rank, right_rank) = (rank(left), rank(right));
    match (left_rank, right_rank) {
        (Some(left), Some(right)) => right.cmp(&left),
        (Some(_), None) => std::cmp::Ordering::Less,
        (None, Some(_)) => std::cmp::Ordering::Greater,
        // Kubernetes: other names in the order of the alphabet.
        (None, None) => left.cmp(right),
    }
}

/// Stability, major and minor number of `v1`, `v2beta3` and the like.
fn rank(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = |text: &str| text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
    let (major, rest) = rest.split_at_checked(digits(rest))?;
    let major = major.parse().ok()?;
    if rest.is_empty() {
        return Some((2, major, 0));
    }
    let (stability, minor) = match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
        (Some(minor), _) => (1, minor),
        (_, Some(minor)) => (0, minor),
        _ => return None,
    };
    Some((stability, major, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str) -> Value {
        let list_kind = format!("{kind}List");
        api::json!({"metadata": {"name": plural}, "spec": {"group": "a.b", "names": {
            "plural": plural, "singular": (kind.to_lowercase()), "kind": kind, "listKind": list_kind, "shortNames": ["s"]
        }}})
    }

    fn reason<'d>(definition: &'d Value, condition: &str) -> &'d str {
        let conditions = definition.field("status").list("conditions");
        conditions.iter().find(|it| it.text("type") == condition).unwrap().text("reason")
    }

    #[test]
    fn names_are_accepted_once() {
        let mut first = definition("as", "A");
        assert!(accept_names(&mut first, std::iter::empty(), "t"));
        assert_eq!(reason(&first, "Established"), "Installing");
        assert!(establish(&mut first, "t") && is_true(&first, "Established"));
        let before = first.clone();
        assert!(!accept_names(&mut first, [&before].into_iter(), "t2"), "nothing is new");
        let mut second = definition("bs", "A");
        assert!(accept_names(&mut second, [&first].into_iter(), "t"));
        assert_eq!(reason(&second, "NamesAccepted"), "ListKindConflict");
        assert_eq!(reason(&second, "Established"), "NotAccepted");
        assert_eq!(second.field("status").field("acceptedNames"), &api::json!({"plural": "bs"}));
        assert!(!establish(&mut second, "t"));
    }

    #[test]
    fn versions_are_ordered_by_stability() {
        let mut versions = ["v1alpha1", "foo", "v2beta1", "v10", "v1", "v1beta2", "v2beta10", "v2"];
        versions.sort_by(|left, right| compare_versions(left, right));
        assert_eq!(versions, ["v10", "v2", "v1", "v2beta10", "v2beta1", "v1beta2", "v1alpha1", "foo"]);
    }

    #[test]
    fn a_definition_that_goes_waits_for_its_objects() {
        let mut definition = definition("as", "A");
        terminate(&mut definition, "t");
        terminate(&mut definition, "t");
        assert_eq!(definition.field("metadata").texts("finalizers").collect::<Vec<_>>(), [CLEANUP_FINALIZER]);
        assert!(is_true(&definition, "Terminating"));
    }
}
