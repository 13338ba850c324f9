//! Discovery: every resource of every group and version, in one document.
//!
//! Requests only the aggregated form, which Kubernetes has since 1.26. Follows client-go's `discovery`: the
//! versions of a group come in the server's order of preference, and a resource is preferred in the first
//! version that has it.

use api::json::{Text, Value};

use crate::client::Client;
use crate::error::Error;
use crate::resources::Resource;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A resource that the server serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedResource {
    /// Path of the resource.
    pub resource: Resource,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
    /// Supported verbs.
    pub verbs: Vec<Text>,
    /// Names of its subresources.
    pub subresources: Vec<Text>,
    /// Whether this is the version that the server prefers for the resource.
    pub preferred: bool,
}

impl ServedResource {
    /// Whether all these verbs can be used.
    #[must_use]
    pub fn allows(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|it| it == verb))
    }
}

/// Resources that the server offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Discovery {
    /// All resources, group by group, in the server's order.
    pub resources: Vec<ServedResource>,
    /// Groups and versions whose resources are unavailable, as `GROUP/VERSION`.
    pub stale: Vec<String>,
}

impl Discovery {
    /// The resource of a kind.
    #[must_use]
    pub fn find(&self, api_version: &str, kind: &str) -> Option<&ServedResource> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.resources
            .iter()
            .find(|it| it.resource.kind == kind && it.resource.group == group && it.resource.version == version)
    }

    /// Adds the contents of one aggregated document.
    fn add(&mut self, document: &Value) {
        let text = |value: &Value, path: &[&str]| value.text_at(path).to_owned();
        let list = |value: &Value, key: &str| value.get(key).and_then(Value::as_array).unwrap_or_default().to_vec();
        for group in list(document, "items") {
            let name = text(&group, &["metadata", "name"]);
            let mut seen: Vec<String> = Vec::new();
            for version in list(&group, "versions") {
                let version_name = text(&version, &["version"]);
                if text(&version, &["freshness"]) == "Stale" {
                    self.stale.push(format!("{name}/{version_name}"));
                }
                for served in list(&version, "resources") {
                    let plural = text(&served, &["resource"]);
                    let resource = Resource {
                        group: name.clone().into(),
                        version: version_name.clone().into(),
                        plural: plural.clone().into(),
                        kind: text(&served, &["responseKind", "kind"]).into(),
                    };
                    let verbs = list(&served, "verbs").iter().filter_map(Value::as_str).map(Text::from).collect();
                    let below = list(&served, "subresources");
                    let subresources = below.iter().filter_map(|it| it.str_at(&["subresource"])).map(Text::from);
                    let preferred = !seen.contains(&plural);
                    self.resources.push(ServedResource {
                        resource,
                        namespaced: text(&served, &["scope"]) == "Namespaced",
                        verbs,
                        subresources: subresources.collect(),
                        preferred,
                    });
                    if preferred {
                        seen.push(plural);
                    }
                }
            }
        }
    }
}

impl Client {
    /// Requests the resources of the server.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn discover(&self) -> Result<Discovery, Error> {
        let mut discovery = Discovery::default();
        for path in ["/api", "/apis"] {
            discovery.add(&api::json::parse(&self.get_as(path, AGGREGATED).await?)?);
        }
        Ok(discovery)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_version_that_has_a_resource_is_preferred() {
        let resource = |name: &str, kind: &str| {
            api::json!({"resource": name, "responseKind": {"group": "", "version": "", "kind": kind},
                "scope": "Namespaced", "verbs": ["delete", "list"], "subresources": [{"subresource": "status"}]})
        };
        let (v2, old) = (resource("scalers", "Scaler"), resource("scalers", "Scaler"));
        let only_old = resource("things", "Thing");
        let document = api::json!({"items": [{"metadata": {"name": "example.com"}, "versions": [
            {"version": "v2", "resources": [v2]},
            {"version": "v1", "resources": [old, only_old], "freshness": "Stale"}]}]});
        let mut discovery = Discovery::default();
        discovery.add(&document);
        let preferred: Vec<(&str, bool)> =
            discovery.resources.iter().map(|it| (&*it.resource.version, it.preferred)).collect();
        assert_eq!(preferred, [("v2", true), ("v1", false), ("v1", true)]);
        assert_eq!(discovery.stale, ["example.com/v1"]);
        let thing = discovery.find("example.com/v1", "Thing").expect("it is served");
        assert!(thing.namespaced && thing.allows(&["delete", "list"]) && !thing.allows(&["watch"]));
        assert_eq!(thing.subresources, ["status"]);
        assert!(discovery.find("example.com/v2", "Thing").is_none());
    }
}
