//! What kinds mean beyond their metadata: which parts of an object a write may touch, and what validation says.
//!
//! Kinds that `registry` knows are prepared and validated there; the others get the same treatment of their metadata and
//! status, from tables. The steps follow Kubernetes' `registry/rest` (`BeforeCreate`, `BeforeUpdate`).

use std::sync::{Arc, OnceLock};

use api::features::Features;
use api::field::{Errors, Path};
use api::json::Value;
use api::types::Type;
use registry::admit;
use registry::expressions::{CompiledRule, Environments, Expressions, Languages, Place, Refusal};
use registry::strategy::Context;

use crate::clock;
use crate::custom::Customs;
use crate::custom::serving::Serving;
use crate::objects::conversion;
use crate::objects::metadata;
use crate::resources::{self, Resource};
use crate::storage::cache::Cache;

/// Prepares and validates objects.
pub struct Meaning {
    features: Features,
    cache: Arc<Cache>,
    customs: Arc<Customs>,
    expressions: LazyEnvironments,
}

/// The environments of expressions, made when the first expression comes.
#[derive(Debug)]
struct LazyEnvironments {
    languages: Arc<Languages>,
    made: OnceLock<Option<Environments>>,
}

impl LazyEnvironments {
    fn get(&self) -> Option<&Environments> {
        self.made.get_or_init(|| Environments::sharing(&self.languages).ok()).as_ref()
    }
}

impl Expressions for LazyEnvironments {
    fn check(&self, place: Place<'_>, expression: &str) -> Result<(), Refusal> {
        match self.get() {
            Some(environments) => environments.check(place, expression),
            None => Err(Refusal::Internal("the environments of expressions cannot be made".to_owned())),
        }
    }

    fn advise(&self, place: Place<'_>, expression: &str) -> Vec<String> {
        self.get().map(|environments| environments.advise(place, expression)).unwrap_or_default()
    }

    fn compile_rules(&self, schema: &Value, is_resource: bool) -> Result<Vec<CompiledRule>, String> {
        match self.get() {
            Some(environments) => environments.compile_rules(schema, is_resource),
            None => Err("the environments of expressions cannot be made".to_owned()),
        }
    }
}

impl Meaning {
    /// With these features on; the cache tells about namespaces.
    #[must_use]
    pub(crate) fn new(features: Features, cache: Arc<Cache>, customs: Arc<Customs>) -> Self {
        let expressions = LazyEnvironments { languages: customs.languages.clone(), made: OnceLock::new() };
        Self { features, cache, customs, expressions }
    }

    /// What a custom resource means; none for built-in ones.
    fn custom(&self, resource: &'static Resource) -> Option<Arc<Serving>> {
        self.customs.of(resource)
    }

    /// What a user should know about an object that is accepted.
    #[must_use]
    pub fn warnings(
        &self,
        resource: &'static Resource,
        object: &Value,
        old: Option<&Value>,
        subresource: &str,
    ) -> Vec<String> {
        let part = Some(subresource).filter(|it| !it.is_empty());
        if let Some(custom) = self.custom(resource) {
            let mut warnings = match old {
                Some(old) if custom.meaning.has_rules() => custom.meaning.validate_update(object, old, part).warnings,
                _ => Vec::new(),
            };
            if part.is_none() {
                warnings.extend(custom.meaning.warnings(object, old));
            }
            return warnings;
        }
        let is_new = || old.and_then(|old| old.get("spec")) != object.get("spec");
        if crate::custom::is_definition(resource) && part.is_none() && is_new() {
            let mut warnings = crate::custom::column_warnings(object, &self.customs.languages);
            if let Some(row) = row(resource) {
                let now = clock::now().to_string();
                warnings.extend(admit::warnings(row, object, old, &self.context(resource, "", &now)));
            }
            return warnings;
        }
        let Some(row) = row(resource).filter(|_| part.is_none()) else { return Vec::new() };
        let now = clock::now().to_string();
        admit::warnings(row, object, old, &self.context(resource, metadata::text(object, "namespace"), &now))
    }

    fn context<'a>(&'a self, resource: &Resource, namespace: &'a str, now: &'a str) -> Context<'a> {
        Context {
            features: self.features,
            expressions: &self.expressions,
            namespace,
            now,
            uid: "",
            name_suffix: "",
            namespace_allows_admin_access: resource.group == "resource.k8s.io" && self.allows_admin_access(namespace),
        }
    }

    /// Whether a namespace is marked for claims with access to devices in use.
    fn allows_admin_access(&self, namespace: &str) -> bool {
        let Some(namespaces) = resources::find("", "v1", "namespaces") else { return false };
        let namespace = self.cache.resource(&namespaces.prefix()).get(&namespaces.key("", namespace));
        let label = "resource.kubernetes.io/admin-access";
        namespace
            .is_some_and(|it| it.decode().at(&["metadata", "labels", label]).and_then(Value::as_str) == Some("true"))
    }

    /// Whether validation says what changes of metadata are wrong.
    #[must_use]
    pub fn judges_metadata(&self, resource: &'static Resource) -> bool {
        self.custom(resource).is_none() && row(resource).is_some()
    }

    /// The last touch to an object that is accepted.
    pub fn canonicalize(&self, resource: &'static Resource, object: &mut Value) {
        if let Some(row) = row(resource).filter(|_| self.custom(resource).is_none()) {
            admit::canonicalize(row, object);
        }
    }

    /// Fills in defaults. The object is in the stored version and in normal form.
    pub fn default(&self, resource: &'static Resource, object: &mut Value) {
        if let Some(custom) = self.custom(resource) {
            custom.meaning.default(object);
            return;
        }
        if let Some(of) = stored_type(resource) {
            registry::defaults::apply(of, object, &clock::now().to_string());
        }
    }

    /// Resets what users may not set in a new object, and brings it into normal form.
    pub fn prepare_create(&self, resource: &'static Resource, object: &mut Value) {
        if let Some(custom) = self.custom(resource) {
            custom.meaning.prepare_create(object);
            return;
        }
        prepare_create(resource, object);
        if let Some(row) = row(resource) {
            let namespace = metadata::text(object, "namespace").to_owned();
            let now = clock::now().to_string();
            admit::prepare_create(row, object, &self.context(resource, &namespace, &now));
        } else if let Some(of) = stored_type(resource) {
            api::types::normalize(of, object);
        }
    }

    /// What is wrong with a new object.
    #[must_use]
    pub fn validate_create(&self, resource: &'static Resource, object: &Value) -> Errors {
        if let Some(custom) = self.custom(resource) {
            return custom.meaning.validate_create(object).errors;
        }
        let Some(row) = row(resource) else { return validate_create(resource, object) };
        let now = clock::now().to_string();
        if let Some((row, event)) = newer_event(resource, object) {
            return admit::validate_create(
                row,
                &event,
                &self.context(resource, metadata::text(object, "namespace"), &now),
            );
        }
        admit::validate_create(row, object, &self.context(resource, metadata::text(object, "namespace"), &now))
    }

    /// Keeps what an update of the whole object or of a part of it may not change, and brings it into normal form.
    pub fn prepare_update(&self, resource: &'static Resource, object: &mut Value, old: &Value, subresource: &str) {
        if let Some(custom) = self.custom(resource) {
            metadata::copy(object, old, "generation");
            let part = Some(subresource).filter(|it| !it.is_empty());
            custom.meaning.prepare_update(object, old, part);
            return;
        }
        let Some(row) = row(resource) else {
            prepare_update(resource, object, old, subresource);
            return stored_type(resource).into_iter().for_each(|of| api::types::normalize(of, object));
        };
        let namespace = metadata::text(object, "namespace").to_owned();
        let now = clock::now().to_string();
        let part = Some(subresource).filter(|it| !it.is_empty());
        admit::prepare_update(row, object, old, part, &self.context(resource, &namespace, &now));
    }

    /// What is wrong with a change.
    #[must_use]
    pub fn validate_update(
        &self,
        resource: &'static Resource,
        object: &Value,
        old: &Value,
        subresource: &str,
    ) -> Errors {
        if let Some(custom) = self.custom(resource) {
            let part = Some(subresource).filter(|it| !it.is_empty());
            return custom.meaning.validate_update(object, old, part).errors;
        }
        let Some(row) = row(resource) else { return validate_update(object, old) };
        let now = clock::now().to_string();
        let part = Some(subresource).filter(|it| !it.is_empty());
        let context = self.context(resource, metadata::text(object, "namespace"), &now);
        if let (Some((row, event)), Some((_, old))) = (newer_event(resource, object), newer_event(resource, old)) {
            return admit::validate_update(row, &event, &old, part, &context);
        }
        admit::validate_update(row, object, old, part, &context)
    }
}

/// What `registry` knows of the kind, in its stored version.
fn row(resource: &Resource) -> Option<&'static registry::strategy::Resource> {
    registry::resources::find_by_api_version(&conversion::stored_api_version(resource), resource.kind)
}

/// Events are stored as those of the core group; of those written through the newer group more is asked.
fn newer_event(resource: &Resource, object: &Value) -> Option<(&'static registry::strategy::Resource, Value)> {
    if resource.group != "events.k8s.io" {
        return None;
    }
    let mut event = object.clone();
    conversion::from_stored(resource, "v1", &mut event);
    Some((registry::resources::find("events.k8s.io", "v1", "Event")?, event))
}

fn stored_type(resource: &Resource) -> Option<&'static Type> {
    api::types::by_api_version(&conversion::stored_api_version(resource), resource.kind)
}

/// Kinds whose `metadata.generation` counts changes of the spec.
fn counts_generations(resource: &Resource) -> bool {
    matches!(
        (resource.group, resource.plural),
        ("", "pods" | "replicationcontrollers")
            | ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
            | ("batch", _)
            | ("networking.k8s.io", "ingresses" | "ingressclasses" | "networkpolicies")
            | ("policy", "poddisruptionbudgets")
            | ("apiextensions.k8s.io", "customresourcedefinitions")
            | ("discovery.k8s.io", "endpointslices")
            | ("admissionregistration.k8s.io", _)
            | ("autoscaling", "horizontalpodautoscalers")
            | ("resource.k8s.io", "deviceclasses" | "resourceslices" | "devicetaintrules")
    )
}

/// Kinds whose generation counts changes of annotations, too.
fn counts_annotations(resource: &Resource) -> bool {
    matches!((resource.group, resource.plural), ("apps", "deployments"))
}

/// Fields that stand beside metadata and are no spec, but count as one.
const NOT_SPEC: [&str; 4] = ["kind", "apiVersion", "metadata", "status"];

fn same_spec(new: &Value, old: &Value) -> bool {
    let spec = |object: &Value| {
        let mut object = object.clone();
        if let Some(fields) = object.as_object_mut() {
            fields.retain(|key, _| !NOT_SPEC.contains(&key));
        }
        object
    };
    spec(new) == spec(old)
}

/// Resets what users may not set in a new object.
fn prepare_create(resource: &Resource, object: &mut Value) {
    if counts_generations(resource) {
        metadata::set(object, "generation", 1_i64);
    }
    let keeps_status = matches!((resource.group, resource.plural), ("", "nodes" | "services" | "persistentvolumes"));
    if resource.subresource("status").is_some()
        && !keeps_status
        && let Some(fields) = object.as_object_mut()
        && fields.contains_key("status")
    {
        fields.insert("status", Value::object());
    }
    match (resource.group, resource.plural) {
        ("", "persistentvolumes" | "persistentvolumeclaims") => set(object, "status", api::json!({"phase": "Pending"})),
        ("", "pods") => set(object, "status", api::json!({"phase": "Pending"})),
        _ => {}
    }
}

fn set(object: &mut Value, field: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(field, value);
    }
}

/// Keeps what an update of the whole object or of a part of it may not change.
fn prepare_update(resource: &Resource, object: &mut Value, old: &Value, subresource: &str) {
    metadata::copy(object, old, "generation");
    let has_status = resource.subresource("status").is_some();
    match subresource {
        "" => {
            if has_status {
                keep(object, old, "status");
            }
            let annotations = |object: &Value| object.at(&["metadata", "annotations"]).cloned();
            let changed =
                !same_spec(object, old) || counts_annotations(resource) && annotations(object) != annotations(old);
            if changed && counts_generations(resource) {
                let generation = old.at(&["metadata", "generation"]).and_then(Value::as_i64).unwrap_or_default();
                metadata::set(object, "generation", generation.saturating_add(1));
            }
            if (resource.group, resource.plural) == ("", "namespaces") {
                keep(object, old, "spec");
            }
        }
        "status" => {
            let fields: Vec<String> = old
                .as_object()
                .into_iter()
                .chain(object.as_object())
                .flat_map(|fields| fields.keys())
                .filter(|key| !NOT_SPEC.contains(key))
                .map(ToOwned::to_owned)
                .collect();
            for field in fields {
                keep(object, old, &field);
            }
            // Kubernetes: labels sent with the status are kept for core kinds and dropped for workloads.
            if !resource.group.is_empty() {
                for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
                    metadata::copy(object, old, field);
                }
            }
        }
        _ => {}
    }
}

fn keep(object: &mut Value, old: &Value, field: &str) {
    let Some(fields) = object.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => fields.insert(field, value.clone()),
        None => fields.remove(field),
    };
}

/// What is wrong with the metadata of a new object.
fn validate_create(resource: &Resource, object: &Value) -> Errors {
    let mut errors = Errors::new();
    let at = Path::new("metadata");
    let name = metadata::text(object, "name");
    if name.is_empty() {
        errors.required(at.child("name"), "name or generateName is required");
    } else {
        for complaint in name_rule(resource)(name) {
            errors.invalid(at.child("name"), name, complaint);
        }
    }
    validate_common(object, &mut errors);
    errors
}

fn name_rule(resource: &Resource) -> fn(&str) -> Vec<String> {
    match (resource.group, resource.plural) {
        ("", "namespaces") => api::names::dns1123_label,
        ("", "services") => api::names::dns1123_label,
        ("rbac.authorization.k8s.io", _) => api::names::path_segment,
        _ => api::names::dns1123_subdomain,
    }
}

fn validate_common(object: &Value, errors: &mut Errors) {
    let at = Path::new("metadata");
    let labels_at = at.child("labels");
    for (key, value) in metadata::labels(object).into_iter().flat_map(|labels| labels.iter()) {
        for complaint in api::names::qualified_name(key) {
            errors.invalid(labels_at, key, complaint);
        }
        let value = value.as_str().unwrap_or_default();
        for complaint in api::names::label_value(value) {
            errors.invalid(labels_at, value, complaint);
        }
    }
    let annotations_at = at.child("annotations");
    let annotations = object.at(&["metadata", "annotations"]).and_then(Value::as_object);
    for (key, _) in annotations.into_iter().flat_map(|it| it.iter()) {
        for complaint in api::names::qualified_name(&key.to_lowercase()) {
            errors.invalid(annotations_at, key, complaint);
        }
    }
}

/// What is wrong with the metadata of a changed object.
fn validate_update(object: &Value, old: &Value) -> Errors {
    let mut errors = Errors::new();
    let at = Path::new("metadata");
    for field in ["name", "namespace", "uid"] {
        let (new, old) = (metadata::text(object, field), metadata::text(old, field));
        if new != old {
            errors.invalid(at.child(field), new, "field is immutable");
        }
    }
    if metadata::is_deleting(old) {
        let before = metadata::finalizers(old);
        let added: Vec<String> = metadata::finalizers(object)
            .into_iter()
            .filter(|it| !before.contains(it))
            .map(|it| format!("\"{it}\""))
            .collect();
        if !added.is_empty() {
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            errors.forbidden(at.child("finalizers"), detail);
        }
    }
    validate_common(object, &mut errors);
    errors
}
