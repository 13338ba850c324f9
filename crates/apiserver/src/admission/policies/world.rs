//! The cluster as the evaluation of policies sees it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, OnceLock};

use api::json::Value;
use api::labels::{Labels, Selector};
use api::metadata;
use api::types;
use cel_kubernetes::libraries::authorization::{self as rights, Decision, Question};
use locks::Mutex;
use patching::policy;
use registry::admission::cluster::{MissingNamespace, ParamScope};
use registry::admission::{self, GroupVersionKind, GroupVersionResource, ParamError, PatchError, Request};
use registry::conversion;
use registry::pipeline::Rules as _;

use super::super::Cluster;
use crate::authorization;
use crate::custom::serving::ServedVersion;
use crate::identity::User;
use crate::resources::{self, Resource};
use crate::wire::request::Target;
use cache::stored::ServedObject;

/// Served versions of the resource of a request.
type Equivalents = Arc<[(GroupVersionResource, GroupVersionKind)]>;

/// Other objects, rights and versions, for one request.
pub(in crate::admission) struct World {
    cluster: Arc<dyn Cluster>,
    equivalents: OnceLock<Equivalents>,
    namespace: OnceLock<Result<Arc<Value>, MissingNamespace>>,
    namespace_name: String,
    parameters: Mutex<DecodedParameters>,
}

/// Parameters by key and version. Selections that overlap share what they have in common.
#[derive(Default)]
struct DecodedParameters(HashMap<(Arc<str>, String), Arc<Value>>);

impl DecodedParameters {
    /// An object in a version; `decode` is called once for both.
    fn get<E>(
        &mut self,
        key: Arc<str>,
        version: &str,
        decode: impl FnOnce() -> Result<Value, E>,
    ) -> Result<Arc<Value>, E> {
        Ok(match self.0.entry((key, version.to_owned())) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(place) => place.insert(Arc::new(decode()?)).clone(),
        })
    }
}

/// A resource of either kind.
enum Row {
    BuiltIn(&'static Resource<'static>),
    Custom(Arc<ServedVersion>),
}

impl World {
    pub(in crate::admission) fn new(cluster: Arc<dyn Cluster>, request: &Request) -> Self {
        let namespace_name = request.namespace.clone();
        let (equivalents, namespace) = (OnceLock::new(), OnceLock::new());
        Self { cluster, equivalents, namespace, namespace_name, parameters: Mutex::default() }
    }

    fn custom(&self, group: &str, version: &str, plural: &str) -> Option<Arc<ServedVersion>> {
        self.cluster.customs().snapshot().find(group, version, plural).cloned()
    }

    /// The resource that serves a kind.
    fn row_of_kind(&self, kind: &GroupVersionKind) -> Option<Row> {
        if let Some(row) = resources::find_by_api_version(&kind.api_version(), &kind.kind) {
            return Some(Row::BuiltIn(row));
        }
        let snapshot = self.cluster.customs().snapshot();
        let plural = snapshot.rows(&kind.group, &kind.version).find(|row| row.kind == kind.kind)?.plural.to_owned();
        self.custom(&kind.group, &kind.version, &plural).map(Row::Custom)
    }

    fn read_namespace(&self, name: &str) -> Result<Arc<Value>, MissingNamespace> {
        self.cluster.object(resources::NAMESPACES, "", name).map(Arc::new).ok_or(MissingNamespace::NotFound)
    }

    fn find_equivalents(&self, request: &Request) -> Equivalents {
        let GroupVersionResource { group, version, resource } = &request.resource;
        let other = |group: &str, version: &str, kind: &str| {
            let at = GroupVersionResource {
                group: group.to_owned(),
                version: version.to_owned(),
                resource: resource.clone(),
            };
            // A subresource may have its own kind, independent of the version.
            let is_own =
                request.kind.group == request.resource.group && request.kind.version == request.resource.version;
            let kind = match is_own {
                true => {
                    GroupVersionKind { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
                }
                false => request.kind.clone(),
            };
            (at, kind)
        };
        if let Some(row) = resources::find(group, version, resource) {
            let is_served = |group: &str, version: &str| self.cluster.serves(group, version);
            let same = row.versions.iter().filter(|version| is_served(group, version));
            let same = same.map(|version| other(group, version, &request.kind.kind));
            let others = resources::all().iter().filter(|it| {
                it.plural == row.plural && it.group != row.group && it.storage_name() == row.storage_name()
            });
            let others = others.flat_map(|it| it.versions.iter().map(move |version| (it, version)));
            let others = others.filter(|(it, version)| is_served(it.group, version));
            let others = others.map(|(it, version)| other(it.group, version, it.kind));
            return same.chain(others).collect();
        }
        let snapshot = self.cluster.customs().snapshot();
        let Some(serving) = snapshot.find(group, version, resource) else { return Arc::new([]) };
        let served = serving.all().iter().filter(|(version, _)| snapshot.find(group, version, resource).is_some());
        served.map(|(version, _)| other(group, version, &request.kind.kind)).collect()
    }

    fn shown(&self, row: &Row, kind: &GroupVersionKind, object: &Arc<ServedObject>) -> Result<Value, ParamError> {
        Ok(match row {
            Row::Custom(serving) if serving.has_webhook() => {
                let converted = wait(serving.shared(object)).map_err(ParamError::Refused)?;
                serving.decode(&converted)
            }
            Row::Custom(serving) => serving.decode(object),
            Row::BuiltIn(row) => {
                let mut value = object.decode();
                crate::objects::conversion::convert(row, &kind.version, &mut value);
                value
            }
        })
    }

    /// The version of a request's custom resource that a webhook converts its documents to.
    pub(in crate::admission) fn webhook(
        &self,
        request: &Request,
        kind: &GroupVersionKind,
    ) -> Option<Arc<ServedVersion>> {
        let GroupVersionResource { group, resource, .. } = &request.resource;
        self.custom(group, &kind.version, resource).filter(|serving| serving.has_webhook())
    }
}

/// Waits for a webhook on a thread that may wait: policies are evaluated on such.
fn wait<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => Err(error.to_string()),
    }
}

impl Row {
    fn prefix(&self) -> String {
        match self {
            Row::BuiltIn(row) => row.prefix(),
            Row::Custom(serving) => serving.row().prefix(),
        }
    }

    fn key(&self, namespace: &str, name: &str) -> String {
        match self {
            Row::BuiltIn(row) => row.key(namespace, name),
            Row::Custom(serving) => serving.row().key(namespace, name),
        }
    }

    fn is_namespaced(&self) -> bool {
        match self {
            Row::BuiltIn(row) => row.namespaced,
            Row::Custom(serving) => serving.row().namespaced,
        }
    }
}

impl admission::Cluster for World {
    fn namespace(&self, name: &str) -> Result<Arc<Value>, MissingNamespace> {
        if name == self.namespace_name {
            return self.namespace.get_or_init(|| self.read_namespace(name)).clone();
        }
        self.read_namespace(name)
    }

    fn equivalents(&self, request: &Request) -> Equivalents {
        self.equivalents.get_or_init(|| self.find_equivalents(request)).clone()
    }

    fn convert(&self, request: &Request, document: &Value, kind: &GroupVersionKind) -> Result<Value, String> {
        let GroupVersionResource { group, version, resource } = &request.resource;
        let mut value = document.clone();
        if document.str_at(&["apiVersion"]) == Some(&kind.api_version()) {
            // A document of a subresource, such as a `Scale`, is the same in all versions.
            return Ok(value);
        }
        if let Some(row) = resources::find(group, version, resource) {
            let from = document.text("apiVersion");
            let from = from.split_once('/').map_or(from, |(_, version)| version).to_owned();
            conversion::to_stored(row, &from, &mut value);
            let to = resources::find(&kind.group, &kind.version, resource).unwrap_or(row);
            crate::objects::conversion::convert(to, &kind.version, &mut value);
            return Ok(value);
        }
        let Some(serving) = self.custom(group, &kind.version, resource) else {
            return Err(format!("{kind} is not served"));
        };
        if serving.has_webhook() {
            return wait(serving.converted_value(value));
        }
        serving.refresh(&mut value);
        Ok(value)
    }

    fn is_built_in(&self, kind: &GroupVersionKind) -> bool {
        types::by_kind(&kind.group, &kind.version, &kind.kind).is_some()
    }

    fn param_scope(&self, kind: &GroupVersionKind) -> Result<Option<ParamScope>, ParamError> {
        Ok(self.row_of_kind(kind).map(|row| ParamScope { namespaced: row.is_namespaced() }))
    }

    fn param(&self, kind: &GroupVersionKind, namespace: &str, name: &str) -> Result<Option<Arc<Value>>, ParamError> {
        let Some(row) = self.row_of_kind(kind) else { return Ok(None) };
        let found = self.cluster.cache().resource(&row.prefix()).get(&row.key(namespace, name));
        found.map(|object| self.shown(&row, kind, &object).map(Arc::new)).transpose()
    }

    fn params(
        &self,
        kind: &GroupVersionKind,
        namespace: &str,
        selector: &Selector,
    ) -> Result<Vec<Arc<Value>>, ParamError> {
        let Some(row) = self.row_of_kind(kind) else { return Ok(Vec::new()) };
        let prefix = match namespace {
            "" => row.prefix(),
            namespace => format!("{}{namespace}/", row.prefix()),
        };
        // A conversion may change labels: then they are those of the version that is asked for. Otherwise only selected objects
        // are decoded.
        let is_converted = matches!(&row, Row::Custom(serving) if serving.has_webhook());
        let keep = |_: &str, object: &ServedObject| is_converted || is_selected(selector, object);
        let found = self.cluster.cache().resource(&row.prefix()).list(&prefix, None, 0, keep).objects;
        let mut known = self.parameters.lock();
        let mut selected = Vec::with_capacity(found.len());
        for (key, object) in found {
            let value = known.get(key, &kind.version, || self.shown(&row, kind, &object))?;
            if !is_converted || selects(selector, &value) {
                selected.push(value);
            }
        }
        Ok(selected)
    }

    fn authorizer(&self) -> Arc<dyn rights::Authorizer> {
        Arc::new(Rights(self.cluster.clone()))
    }

    fn apply(
        &self,
        request: &Request,
        kind: &GroupVersionKind,
        object: &Value,
        patch: Value,
    ) -> Result<Value, PatchError> {
        let custom = self.custom(&kind.group, &kind.version, &request.resource.resource);
        let merged = match &custom {
            Some(serving) => policy::apply_custom(Some(serving.meaning.schema()), object, patch)?,
            None => policy::apply(kind, object, patch)?,
        };
        Ok(self.defaulted(request, kind, merged))
    }

    fn patch(
        &self,
        request: &Request,
        kind: &GroupVersionKind,
        object: &Value,
        operations: Vec<Value>,
    ) -> Result<Option<Value>, PatchError> {
        let patched = policy::json_patch(kind, object, operations)?;
        Ok(patched.map(|patched| self.defaulted(request, kind, patched)))
    }
}

impl World {
    /// Removes fields of a custom resource that its schema does not know.
    pub(in crate::admission) fn prune(&self, request: &Request, kind: &GroupVersionKind, object: &mut Value) {
        if kind.group == request.resource.group
            && let Some(serving) = self.custom(&kind.group, &kind.version, &request.resource.resource)
        {
            serving.meaning.prune(object);
        }
    }

    /// Fills in defaults after a mutation.
    pub(in crate::admission) fn defaulted(
        &self,
        request: &Request,
        kind: &GroupVersionKind,
        mut object: Value,
    ) -> Value {
        let resource = &request.resource;
        let meaning = self.cluster.meaning();
        if let Some(serving) = self.custom(&kind.group, &kind.version, &resource.resource) {
            meaning.rules(&serving.row(), "").fill_defaults(&mut object);
        } else if let Some(row) = resources::find(&kind.group, &kind.version, &resource.resource)
            && row.kind == kind.kind
        {
            conversion::to_stored(row, &kind.version, &mut object);
            meaning.rules(row, "").fill_defaults(&mut object);
            crate::objects::conversion::convert(row, &kind.version, &mut object);
        }
        // The document keeps its type, whatever the patch does.
        if let Some(fields) = object.as_object_mut() {
            fields.insert("kind", kind.kind.as_str());
            fields.insert("apiVersion", kind.api_version());
        }
        _ = metadata::make(&mut object);
        object
    }
}

/// The labels of an object that is not decoded.
struct StoredLabels<'o>(&'o ServedObject);

impl Labels for StoredLabels<'_> {
    fn label(&self, key: &str) -> Option<&str> {
        self.0.label(key)
    }
}

/// Whether labels select an object, without decoding it.
fn is_selected(selector: &Selector, object: &ServedObject) -> bool {
    selector.matches(&StoredLabels(object))
}

fn selects(selector: &Selector, object: &Value) -> bool {
    match object.object_at(&["metadata", "labels"]) {
        Some(labels) => selector.matches(labels),
        None => selector.matches(&api::json::Object::new()),
    }
}

/// Decides checks of expressions by the roles of the cluster.
struct Rights(Arc<dyn Cluster>);

impl rights::Authorizer for Rights {
    fn authorize(&self, user: &rights::User, question: Question<'_>) -> Decision {
        let user = User {
            name: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
        };
        let target;
        let request = match question {
            Question::Path { path, verb } => authorization::Request::Path { verb, path },
            Question::Resource { check, verb } => {
                let of = Target::of_check(&check.group, &check.resource, &check.namespace, &check.name);
                target = Target { subresource: check.subresource.clone(), version: "*".to_owned(), ..of };
                authorization::Request::Resource { verb, target: &target }
            }
        };
        let decided = self.0.authorizer().decide(&user, request);
        Decision { allowed: decided.allowed, reason: decided.reason, error: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_map(index: usize) -> (Arc<str>, ServedObject) {
        let metadata = api::json!({
            "name": (format!("m{index}")), "creationTimestamp": "2020-01-01T00:00:00Z",
            "labels": {"shard": (format!("s{}", index % 100)), "even": (if index.is_multiple_of(2) { "yes" } else { "no" })}
        });
        let mut object = api::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        let stored = cache::stored::encode(&mut object).unwrap();
        (format!("/registry/configmaps/ns/m{index:04}").into(), ServedObject::new(&stored, 1).unwrap())
    }

    #[test]
    fn only_selected_parameters_are_decoded_and_once() {
        let objects: Vec<_> = (0..1000).map(config_map).collect();
        let (mut known, mut decoded) = (DecodedParameters::default(), 0_usize);
        for (selector, selected, all_decoded) in [
            ("shard=s7", 10, 10),
            ("shard in (s7,s8)", 20, 20),
            // Bindings that select the same again.
            ("shard in (s7,s8)", 20, 20),
            ("shard=s8,even=yes", 10, 20),
            ("shard=s8,even=no", 0, 20),
            ("!shard", 0, 20),
        ] {
            let selector = Selector::parse(selector).unwrap();
            let found = objects.iter().filter(|(_, object)| is_selected(&selector, object));
            let mut get = |(key, object): &(Arc<str>, ServedObject)| {
                let decode = || {
                    decoded = decoded.saturating_add(1);
                    Ok::<_, ()>(object.decode())
                };
                known.get(key.clone(), "v1", decode).unwrap()
            };
            let found: Vec<Arc<Value>> = found.map(&mut get).collect();
            assert!(found.iter().all(|object| selects(&selector, object)));
            assert_eq!((found.len(), decoded), (selected, all_decoded), "{selector}");
        }
    }
}
