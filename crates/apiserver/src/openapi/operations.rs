//! All operations of the server, path by path, independent of the version of OpenAPI.
//!
//! Names of operations and parameters follow Kubernetes' `endpoints/installer.go` and `endpoints/openapi`.

use std::collections::BTreeMap;

use api::json::Value;

use super::parameters::{DELETE, FORCE, LIST, PRETTY, Parameter, WRITE};
use super::schema_of_meta;
use crate::resources::{Resource, Subresource};

/// One method of one path.
pub(crate) struct Operation {
    pub(crate) path: String,
    /// The HTTP method in lower case.
    pub(crate) method: &'static str,
    /// Kubernetes' name of the action: `list`, `post` …
    pub(crate) action: &'static str,
    pub(crate) id: String,
    pub(crate) description: String,
    /// Group, version and kind of the object; null for paths that are not resources.
    pub(crate) kind: Value,
    /// The schema of the request body.
    pub(crate) body: Option<String>,
    /// The schema of the response body; none for text.
    pub(crate) answer: Option<String>,
    pub(crate) codes: &'static [(&'static str, &'static str)],
    pub(crate) parameters: Vec<Parameter>,
    /// Whether the kind is built in, and accepts strategic merge patches.
    pub(crate) is_built_in: bool,
}

const OK: (&str, &str) = ("200", "OK");
const CREATED: (&str, &str) = ("201", "Created");
const ACCEPTED: (&str, &str) = ("202", "Accepted");
const DENIED: (&str, &str) = ("401", "Unauthorized");

/// A row of the table: one operation on a collection or on an object.
struct Method {
    verb: &'static str,
    method: &'static str,
    action: &'static str,
    /// The first word of the operation's name.
    word: &'static str,
    codes: &'static [(&'static str, &'static str)],
}

const COLLECTION: [Method; 3] = [
    Method { verb: "list", method: "get", action: "list", word: "list", codes: &[OK, DENIED] },
    Method { verb: "create", method: "post", action: "post", word: "create", codes: &[OK, CREATED, ACCEPTED, DENIED] },
    Method {
        verb: "deletecollection",
        method: "delete",
        action: "deletecollection",
        word: "delete",
        codes: &[OK, DENIED],
    },
];

const ITEM: [Method; 4] = [
    Method { verb: "get", method: "get", action: "get", word: "read", codes: &[OK, DENIED] },
    Method { verb: "update", method: "put", action: "put", word: "replace", codes: &[OK, CREATED, DENIED] },
    Method { verb: "delete", method: "delete", action: "delete", word: "delete", codes: &[OK, ACCEPTED, DENIED] },
    Method { verb: "patch", method: "patch", action: "patch", word: "patch", codes: &[OK, CREATED, DENIED] },
];

const PART: [Method; 4] = [
    Method { verb: "get", method: "get", action: "get", word: "read", codes: &[OK, DENIED] },
    Method { verb: "update", method: "put", action: "put", word: "replace", codes: &[OK, CREATED, DENIED] },
    Method { verb: "patch", method: "patch", action: "patch", word: "patch", codes: &[OK, CREATED, DENIED] },
    Method { verb: "create", method: "post", action: "post", word: "create", codes: &[OK, CREATED, ACCEPTED, DENIED] },
];

/// Operations on a connection to a pod, node or service.
const CONNECT: [Method; 5] = [
    Method { verb: "get", method: "get", action: "connect", word: "connectGet", codes: &[OK, DENIED] },
    Method { verb: "update", method: "put", action: "connect", word: "connectPut", codes: &[OK, DENIED] },
    Method { verb: "create", method: "post", action: "connect", word: "connectPost", codes: &[OK, DENIED] },
    Method { verb: "delete", method: "delete", action: "connect", word: "connectDelete", codes: &[OK, DENIED] },
    Method { verb: "patch", method: "patch", action: "connect", word: "connectPatch", codes: &[OK, DENIED] },
];

/// A resource in one version, and the names of its schemas.
pub(crate) struct DescribedResource<'a> {
    pub(crate) resource: Resource<'a>,
    pub(crate) version: &'a str,
    pub(crate) schema: String,
    pub(crate) list_schema: String,
}

impl DescribedResource<'_> {
    /// Returns all operations on it.
    pub(crate) fn operations(&self) -> Vec<Operation> {
        let resource = &self.resource;
        let (root, plural) = (root(resource.group, self.version), resource.plural);
        let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
        let collection = format!("{root}{scope}/{plural}");
        let item = format!("{collection}/{{name}}");
        let has = |method: &&Method| resource.verbs.contains(&method.verb);
        let mut all = Vec::new();
        all.extend(COLLECTION.iter().filter(has).map(|it| self.operation(&collection, it, None, "")));
        all.extend(ITEM.iter().filter(has).map(|it| self.operation(&item, it, None, "")));
        for part in resource.subresources {
            let path = format!("{item}/{}", part.name);
            let is_connection = part.kind.2.ends_with("Options");
            let methods = if is_connection { &CONNECT[..] } else { &PART[..] };
            let methods = || methods.iter().filter(|method| part.verbs.contains(&method.verb));
            all.extend(methods().map(|it| self.operation(&path, it, Some(part), "")));
            if part.name == "proxy" {
                let below = format!("{path}/{{path}}");
                all.extend(methods().map(|it| self.operation(&below, it, Some(part), "WithPath")));
            }
        }
        if resource.namespaced && resource.verbs.contains(&"list") {
            let path = format!("{root}/{plural}");
            all.extend(COLLECTION.iter().take(1).map(|it| self.operation(&path, it, None, "ForAllNamespaces")));
        }
        if resource.verbs.contains(&"watch") && resource.custom.is_none() {
            let list =
                Method { verb: "watch", method: "get", action: "watchlist", word: "watch", codes: &[OK, DENIED] };
            let one = Method { action: "watch", ..list };
            let watch = |path: &str| path.replacen(&root, &format!("{root}/watch"), 1);
            all.push(self.operation(&watch(&collection), &list, None, "List"));
            all.push(self.operation(&watch(&item), &one, None, ""));
            if resource.namespaced {
                all.push(self.operation(&format!("{root}/watch/{plural}"), &list, None, "ListForAllNamespaces"));
            }
        }
        all
    }

    fn operation(&self, path: &str, method: &Method, part: Option<&Subresource>, suffix: &str) -> Operation {
        let (resource, action) = (self.resource, method.action);
        let (group, version, part_kind) = part.map_or(("", "", ""), |part| part.kind);
        let own = api::json!({"group": (resource.group), "kind": (resource.kind), "version": (self.version)});
        let kind = match (part_kind, version) {
            ("", _) => own,
            (kind, "") => {
                api::json!({"group": (resource.group), "kind": kind, "version": (self.version)})
            }
            (kind, version) => api::json!({"group": group, "kind": kind, "version": version}),
        };
        let part_schema = || {
            let version = if version.is_empty() { (resource.group, self.version) } else { (group, version) };
            api::types::by_kind(version.0, version.1, part_kind).map(|of| of.schema_name())
        };
        let schema = if part_kind.is_empty() { Some(self.schema.clone()) } else { part_schema() };
        let body = match action {
            "post" | "put" => schema.clone(),
            "patch" => Some(schema_of_meta("Patch")),
            "delete" | "deletecollection" => Some(schema_of_meta("DeleteOptions")),
            _ => None,
        };
        let answer = match action {
            "list" => Some(self.list_schema.clone()),
            "watch" | "watchlist" => Some(schema_of_meta("WatchEvent")),
            "deletecollection" => Some(schema_of_meta("Status")),
            "delete" if !resource.delete_returns_object => Some(schema_of_meta("Status")),
            "connect" => None,
            _ if part.is_some_and(|part| part.name == "log") => None,
            _ => schema,
        };
        let parameters = match action {
            "list" | "watch" | "watchlist" => LIST.to_vec(),
            "post" | "put" => WRITE.to_vec(),
            "patch" => WRITE.into_iter().chain([FORCE]).collect(),
            "delete" => DELETE.to_vec(),
            "deletecollection" => DELETE.into_iter().chain(LIST.into_iter().take(9)).collect(),
            _ => Vec::new(),
        };
        let mut parameters: Vec<Parameter> =
            parameters.into_iter().chain((action != "connect").then_some(PRETTY)).collect();
        parameters.sort_by_key(|it| it.name);
        let spans_namespaces = suffix.ends_with("ForAllNamespaces");
        let namespaced = if resource.namespaced && !spans_namespaces { "Namespaced" } else { "" };
        let collection = if action == "deletecollection" { "Collection" } else { "" };
        let part_name = part.map(|part| capitalized(part.name)).unwrap_or_default();
        let (word, rest) =
            method.word.split_at_checked("connect".len()).filter(|_| action == "connect").unwrap_or((method.word, ""));
        let id = format!(
            "{word}{}{}{rest}{collection}{namespaced}{}{part_name}{suffix}",
            group_title(resource.group),
            capitalized(self.version),
            resource.kind
        );
        let object = match part {
            Some(part) => format!("{} of the specified {}", part.name, resource.kind),
            None if matches!(action, "list" | "watchlist" | "deletecollection") => {
                format!("objects of kind {}", resource.kind)
            }
            None => format!("the specified {}", resource.kind),
        };
        Operation {
            path: path.to_owned(),
            method: method.method,
            action,
            id,
            description: format!("{} {object}", method.word),
            kind,
            body,
            answer,
            codes: method.codes,
            parameters,
            is_built_in: resource.custom.is_none(),
        }
    }
}

/// The operations of each path, in order of paths.
pub(crate) fn by_path(operations: &[Operation]) -> BTreeMap<&str, Vec<&Operation>> {
    let mut paths: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        paths.entry(&operation.path).or_default().push(operation);
    }
    paths
}

/// Query parameters that all operations of a path share, by name.
pub(crate) fn common_parameters(operations: &[&Operation]) -> Vec<Parameter> {
    let Some((first, others)) = operations.split_first() else { return Vec::new() };
    let is_common = |it: &&Parameter| others.iter().all(|other| other.parameters.contains(it));
    let mut common: Vec<Parameter> = first.parameters.iter().filter(is_common).copied().collect();
    common.sort_by_key(|it| it.name);
    common
}

/// A path that is only read and is not a resource.
pub(crate) fn plain(path: &str, id: String, description: &str, answer: Option<String>) -> Operation {
    Operation {
        path: path.to_owned(),
        method: "get",
        action: "",
        id,
        description: description.to_owned(),
        kind: Value::Null,
        body: None,
        answer,
        codes: &[OK, DENIED],
        parameters: Vec::new(),
        is_built_in: true,
    }
}

/// `/apis/apps/v1`, or `/api/v1`.
pub(crate) fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

/// `RbacAuthorization` of `rbac.authorization.k8s.io`, `ComExample` of `example.com`.
pub(crate) fn group_title(group: &str) -> String {
    match group.strip_suffix(".k8s.io").or_else(|| Some(group).filter(|it| !it.contains('.'))) {
        Some("") => "Core".to_owned(),
        Some(own) => own.split('.').map(capitalized).collect(),
        None => group.split('.').rev().map(capitalized).collect(),
    }
}

pub(crate) fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_the_names_that_clients_are_generated_with() {
        let resource = crate::resources::find("", "v1", "pods").unwrap();
        let (schema, list_schema) = ("P".to_owned(), "L".to_owned());
        let all = DescribedResource { resource: *resource, version: "v1", schema, list_schema }.operations();
        let ids: Vec<&str> = all.iter().map(|it| it.id.as_str()).collect();
        for id in [
            "listCoreV1NamespacedPod",
            "listCoreV1PodForAllNamespaces",
            "createCoreV1NamespacedPod",
            "deleteCoreV1CollectionNamespacedPod",
            "readCoreV1NamespacedPod",
            "replaceCoreV1NamespacedPodStatus",
            "createCoreV1NamespacedPodEviction",
            "connectCoreV1GetNamespacedPodExec",
            "connectCoreV1PutNamespacedPodProxyWithPath",
            "watchCoreV1NamespacedPodList",
            "watchCoreV1PodListForAllNamespaces",
        ] {
            assert!(ids.contains(&id), "{id} in {ids:?}");
        }
        assert_eq!(group_title("rbac.authorization.k8s.io"), "RbacAuthorization");
        assert_eq!(group_title("stable.example.com"), "ComExampleStable");
    }
}
