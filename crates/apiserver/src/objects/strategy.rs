//! What kinds mean beyond their metadata: which parts of an object a write may touch, and what validation says.
//!
//! Built-in kinds are prepared and validated by their rows in `registry`, custom resources by their definitions. The steps
//! follow Kubernetes' `registry/rest` (`BeforeCreate`, `BeforeUpdate`).

use std::sync::{Arc, OnceLock};

use api::features::Features;
use api::field::Errors;
use api::json::Value;
use api::types::Type;
use registry::admit;
use registry::conversion;
use registry::expressions::{CompiledRule, Environments, Expressions, Languages, Place, Refusal};
use registry::strategy::Context;

use crate::clock;
use crate::custom::Customs;
use crate::custom::serving::Serving;
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
    fn custom(&self, resource: &Resource<'_>) -> Option<Arc<Serving>> {
        self.customs.of(resource)
    }

    /// What a user should know about an object that is accepted.
    #[must_use]
    pub fn warnings(
        &self,
        resource: &Resource<'_>,
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
            let now = clock::now().to_string();
            warnings.extend(admit::warnings(resource, object, old, &self.context(resource, "", &now)));
            return warnings;
        }
        if part.is_some() {
            return Vec::new();
        }
        let row = stored_row(resource);
        let now = clock::now().to_string();
        admit::warnings(row, object, old, &self.context(resource, metadata::text(object, "namespace"), &now))
    }

    fn context<'a>(&'a self, resource: &Resource<'_>, namespace: &'a str, now: &'a str) -> Context<'a> {
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
    pub fn judges_metadata(&self, resource: &Resource<'_>) -> bool {
        self.custom(resource).is_none()
    }

    /// The last touch to an object that is accepted.
    pub fn canonicalize(&self, resource: &Resource<'_>, object: &mut Value) {
        if self.custom(resource).is_none() {
            admit::canonicalize(stored_row(resource), object);
        }
    }

    /// Fills in defaults. The object is in the stored version and in normal form.
    pub fn default(&self, resource: &Resource<'_>, object: &mut Value) {
        if let Some(custom) = self.custom(resource) {
            custom.meaning.default(object);
            return;
        }
        if let Some(of) = stored_type(resource) {
            registry::defaults::apply(of, object, &clock::now().to_string());
        }
    }

    /// Resets what users may not set in a new object, and brings it into normal form.
    pub fn prepare_create(&self, resource: &Resource<'_>, object: &mut Value) {
        if let Some(custom) = self.custom(resource) {
            custom.meaning.prepare_create(object);
            return;
        }
        let namespace = metadata::text(object, "namespace").to_owned();
        let now = clock::now().to_string();
        admit::prepare_create(stored_row(resource), object, &self.context(resource, &namespace, &now));
    }

    /// What is wrong with a new object.
    #[must_use]
    pub fn validate_create(&self, resource: &Resource<'_>, object: &Value) -> Errors {
        if let Some(custom) = self.custom(resource) {
            return custom.meaning.validate_create(object).errors;
        }
        let row = stored_row(resource);
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
    pub fn prepare_update(&self, resource: &Resource<'_>, object: &mut Value, old: &Value, subresource: &str) {
        if let Some(custom) = self.custom(resource) {
            metadata::copy(object, old, "generation");
            let part = Some(subresource).filter(|it| !it.is_empty());
            custom.meaning.prepare_update(object, old, part);
            return;
        }
        let row = stored_row(resource);
        let namespace = metadata::text(object, "namespace").to_owned();
        let now = clock::now().to_string();
        let part = Some(subresource).filter(|it| !it.is_empty());
        admit::prepare_update(row, object, old, part, &self.context(resource, &namespace, &now));
    }

    /// What is wrong with a change.
    #[must_use]
    pub fn validate_update(&self, resource: &Resource<'_>, object: &Value, old: &Value, subresource: &str) -> Errors {
        if let Some(custom) = self.custom(resource) {
            let part = Some(subresource).filter(|it| !it.is_empty());
            return custom.meaning.validate_update(object, old, part).errors;
        }
        let row = stored_row(resource);
        let now = clock::now().to_string();
        let part = Some(subresource).filter(|it| !it.is_empty());
        let context = self.context(resource, metadata::text(object, "namespace"), &now);
        if let (Some((row, event)), Some((_, old))) = (newer_event(resource, object), newer_event(resource, old)) {
            return admit::validate_update(row, &event, &old, part, &context);
        }
        admit::validate_update(row, object, old, part, &context)
    }
}

/// The row of the kind that objects are stored as: events of both groups are stored as those of the core group.
fn stored_row<'a>(resource: &'a Resource<'a>) -> &'a Resource<'a> {
    match resource.group {
        "events.k8s.io" => resources::find("", "v1", resource.plural).unwrap_or(resource),
        _ => resource,
    }
}

/// Of events that are written through the newer group more is asked: the row and the event as it was written.
fn newer_event<'a>(resource: &'a Resource<'a>, object: &Value) -> Option<(&'a Resource<'a>, Value)> {
    if resource.group != "events.k8s.io" {
        return None;
    }
    let mut event = object.clone();
    conversion::from_stored(resource, "v1", &mut event);
    Some((resource, event))
}

fn stored_type(resource: &Resource<'_>) -> Option<&'static Type> {
    api::types::by_api_version(&conversion::stored_api_version(resource), resource.kind)
}
