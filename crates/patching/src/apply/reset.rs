//! Fields that a write through one part of an object cannot change, and therefore does not own.
//!
//! Follows `GetResetFields` and `GetResetFieldsFilter` of Kubernetes' strategies: the status on the main path, the spec
//! on the status path, and so on.

use super::Element;
use super::set::FieldSet;
use registry::resources::Resource;

/// Filter for the paths that a write owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reset {
    /// All but these and the paths below them.
    Except(FieldSet),
    /// Only these and the paths below them; `None` stands for any step.
    Only(Vec<Vec<Option<&'static str>>>),
}

impl Reset {
    /// The filter that keeps everything.
    #[must_use]
    pub const fn nothing() -> Self {
        Reset::Except(FieldSet::new())
    }

    /// All but paths of field names.
    #[must_use]
    pub fn except(paths: &[&[&str]]) -> Self {
        Reset::Except(FieldSet::of_names(paths))
    }

    /// The part of a set that counts.
    #[must_use]
    pub fn filter(&self, set: FieldSet) -> FieldSet {
        match self {
            Reset::Except(paths) => set.recursive_difference(paths),
            Reset::Only(patterns) => {
                let patterns: Vec<&[Option<&str>]> = patterns.iter().map(Vec::as_slice).collect();
                only(&set, &patterns)
            }
        }
    }

    /// Fields that a write to a custom resource resets: its status, if that is a subresource.
    #[must_use]
    pub fn of_custom_resource(has_status: bool, subresource: &str) -> Self {
        match subresource {
            "status" => Reset::except(&[&["metadata"], &["spec"]]),
            _ if has_status => Reset::except(&[&["status"]]),
            _ => Reset::nothing(),
        }
    }

    /// Fields that a write to a built-in resource resets.
    #[must_use]
    pub fn of_resource(resource: &Resource<'_>, subresource: &str) -> Self {
        let name = (resource.group, resource.plural);
        let any = None;
        match (subresource, name) {
            ("", ("certificates.k8s.io", "certificatesigningrequests")) => Reset::except(&[&["spec"], &["status"]]),
            ("", _) if resource.subresource("status").is_some() => Reset::except(&[&["status"]]),
            ("finalize", _) => Reset::except(&[&["status"]]),
            ("status", ("certificates.k8s.io", "certificatesigningrequests")) => {
                Reset::except(&[&["spec"], &["status", "conditions"]])
            }
            ("approval", _) => Reset::except(&[&["spec"], &["status", "certificate"]]),
            ("status", ("apps", "deployments")) => Reset::except(&[&["spec"], &["metadata", "labels"]]),
            ("status", ("", "pods")) => {
                Reset::except(&[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]])
            }
            (
                "status",
                ("admissionregistration.k8s.io" | "resource.k8s.io" | "storage.k8s.io" | "apiregistration.k8s.io", _)
                | ("certificates.k8s.io", "podcertificaterequests")
                | ("networking.k8s.io", "servicecidrs"),
            ) => Reset::except(&[&["metadata"], &["spec"]]),
            ("status", _) => Reset::except(&[&["spec"]]),
            ("ephemeralcontainers", _) => Reset::Only(vec![vec![Some("spec"), Some("ephemeralContainers")]]),
            ("resize", _) => Reset::Only(vec![
                vec![Some("spec"), Some("containers"), any, Some("resources")],
                vec![Some("spec"), Some("containers"), any, Some("resizePolicy")],
                vec![Some("spec"), Some("initContainers"), any, Some("resources")],
                vec![Some("spec"), Some("initContainers"), any, Some("resizePolicy")],
            ]),
            _ => Reset::nothing(),
        }
    }
}

fn only(set: &FieldSet, patterns: &[&[Option<&str>]]) -> FieldSet {
    if patterns.iter().any(|pattern| pattern.is_empty()) {
        return set.clone();
    }
    set.map(|node| {
        let below: Vec<&[Option<&str>]> = patterns
            .iter()
            .filter_map(|pattern| {
                let (first, rest) = pattern.split_first()?;
                let fits = match (first, &node.element) {
                    (None, _) => true,
                    (Some(name), Element::Field(field)) => field == name,
                    _ => false,
                };
                fits.then_some(rest)
            })
            .collect();
        if below.is_empty() { (false, FieldSet::new()) } else { (node.member, only(&node.children, &below)) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use registry::resources;

    #[test]
    fn writes_do_not_own_reset_fields() {
        let all = FieldSet::of_names(&[
            &["metadata", "labels", "a"],
            &["spec", "replicas"],
            &["status", "replicas"],
            &["status"],
        ]);
        let deployments = resources::find("apps", "v1", "deployments").unwrap();
        let main = Reset::of_resource(deployments, "").filter(all.clone());
        assert_eq!(main, FieldSet::of_names(&[&["metadata", "labels", "a"], &["spec", "replicas"]]));
        let status = Reset::of_resource(deployments, "status").filter(all.clone());
        assert_eq!(status, FieldSet::of_names(&[&["status", "replicas"], &["status"]]));
        let maps = resources::find("", "v1", "configmaps").unwrap();
        assert_eq!(Reset::of_resource(maps, "").filter(all.clone()), all);
        let pods = resources::find("", "v1", "pods").unwrap();
        let mut containers = FieldSet::of_names(&[&["spec", "nodeName"]]);
        let step = Element::Key(vec![("name".into(), "c".into())]);
        for field in ["image", "resources"] {
            containers.insert(&["spec".into(), "containers".into(), step.clone(), field.into()]);
        }
        let resized = Reset::of_resource(pods, "resize").filter(containers);
        let path = ["spec".into(), "containers".into(), step, "resources".into()];
        assert_eq!(resized, FieldSet::of_path(&path));
    }
}
