//! Rules of kinds beyond their metadata: the parts of an object that a write may change, and validation.
//!
//! Built-in kinds are prepared and validated by their rows in `registry`, custom resources by their definitions. The steps
//! follow Kubernetes' `registry/rest` (`BeforeCreate`, `BeforeUpdate`).

use std::sync::{Arc, OnceLock};

use ::clock::Clock;
use api::features::Features;
use api::field::Errors;
use api::json::Value;
use api::types::Type;
use cel_kubernetes::environments::admission::Compiler;
use registry::admit::BuiltIn;
use registry::conversion;
use registry::expressions::{CompiledRule, Environments, Expressions, Languages, Place, Refusal};
use registry::pipeline::{Rules, Update};
use registry::strategy::Context;

use crate::custom::CustomResources;
use crate::custom::serving::ServedVersion;
use crate::resources::{self, Resource};
use api::metadata;
use cache::Cache;

/// Prepares and validates objects.
pub struct Meaning {
    features: Features,
    cache: Arc<Cache>,
    customs: Arc<CustomResources>,
    expressions: LazyEnvironments,
    clock: Clock,
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
    fn check(&self, place: Place, schema: Option<&Value>, expression: &str) -> Result<u64, Refusal> {
        match self.get() {
            Some(environments) => environments.check(place, schema, expression),
            None => Err(Refusal::Internal("cannot create the CEL environments".to_owned())),
        }
    }

    fn advise(&self, place: Place, expression: &str) -> Vec<String> {
        self.get().map(|environments| environments.advise(place, expression)).unwrap_or_default()
    }

    fn compile_rules(&self, schema: &Value, is_resource: bool) -> Result<Vec<CompiledRule>, String> {
        match self.get() {
            Some(environments) => environments.compile_rules(schema, is_resource),
            None => Err("cannot create the CEL environments".to_owned()),
        }
    }

    fn policies(&self) -> Option<&Compiler> {
        self.get().and_then(Expressions::policies)
    }
}

impl Meaning {
    /// Creates the strategies with these features; namespaces are read from the cache.
    #[must_use]
    pub(crate) fn new(features: Features, cache: Arc<Cache>, customs: Arc<CustomResources>, clock: Clock) -> Self {
        let expressions = LazyEnvironments { languages: customs.languages.clone(), made: OnceLock::new() };
        Self { features, cache, customs, expressions, clock }
    }

    /// Help about the errors of an object, beyond their texts.
    pub(crate) fn hints(&self, object: &Value, errors: &Errors) -> Vec<String> {
        let hints = registry::hints::of_errors(object, errors, self.features, &self.expressions);
        hints.into_iter().map(|(field, hint)| format!("{field}: {hint}")).collect()
    }

    /// The compiler of admission policies; none if it cannot be made.
    pub(crate) fn policies(&self) -> Option<&Compiler> {
        self.expressions.policies()
    }

    /// The rules of a kind for one request in a namespace, which is empty for kinds without namespaces.
    #[must_use]
    pub fn rules<'a>(&'a self, resource: &'a Resource<'a>, namespace: &'a str) -> KindRules<'a> {
        KindRules {
            meaning: self,
            resource,
            custom: self.customs.of(resource),
            namespace,
            now: self.clock.now_seconds().to_string(),
            allows_admin_access: resource.group == "resource.k8s.io" && self.allows_admin_access(namespace),
        }
    }

    /// Whether a namespace is marked for claims with access to devices in use.
    fn allows_admin_access(&self, namespace: &str) -> bool {
        let namespaces = resources::NAMESPACES;
        let namespace = self.cache.resource(&namespaces.prefix()).get(&namespaces.key("", namespace));
        let label = "resource.kubernetes.io/admin-access";
        namespace.is_some_and(|it| it.decode().str_at(&["metadata", "labels", label]) == Some("true"))
    }
}

/// The rules of a kind, and the facts that they may use besides the object.
pub struct KindRules<'a> {
    meaning: &'a Meaning,
    resource: &'a Resource<'a>,
    /// The rules of a custom resource; missing for built-in kinds.
    custom: Option<Arc<ServedVersion>>,
    namespace: &'a str,
    now: String,
    allows_admin_access: bool,
}

impl KindRules<'_> {
    /// The time of the request, as objects show it.
    #[must_use]
    pub fn now(&self) -> &str {
        &self.now
    }

    /// Whether validation rejects wrong changes of metadata.
    #[must_use]
    pub fn judges_metadata(&self) -> bool {
        self.custom.is_none()
    }

    /// The rules of the row as which a built-in kind is stored.
    fn built_in(&self) -> BuiltIn<'_> {
        self.of_row(stored_row(self.resource))
    }

    fn of_row<'r>(&'r self, resource: &'r Resource<'r>) -> BuiltIn<'r> {
        let context = Context {
            features: self.meaning.features,
            expressions: &self.meaning.expressions,
            namespace: self.namespace,
            now: &self.now,
            uid: "",
            name_suffix: "",
            namespace_allows_admin_access: self.allows_admin_access,
        };
        BuiltIn { resource, context }
    }
}

impl Rules for KindRules<'_> {
    fn fill_defaults(&self, object: &mut Value) {
        match &self.custom {
            Some(custom) => custom.meaning.default(object),
            None => {
                if let Some(of) = stored_type(self.resource) {
                    registry::defaults::apply(of, object, &self.now);
                }
            }
        }
    }

    fn prepare(&self, object: &mut Value, update: Option<Update<'_>>) {
        match (&self.custom, update) {
            (None, update) => self.built_in().prepare(object, update),
            (Some(custom), None) => custom.meaning.prepare_create(object),
            (Some(custom), Some(Update { old, subresource })) => {
                metadata::copy(object, old, "generation");
                custom.meaning.prepare_update(object, old, subresource);
            }
        }
    }

    fn validate(&self, object: &Value, update: Option<Update<'_>>) -> Errors {
        if let Some(custom) = &self.custom {
            return match update {
                Some(Update { old, subresource }) => custom.meaning.validate_update(object, old, subresource).errors,
                None => custom.meaning.validate_create(object).errors,
            };
        }
        if self.resource.group == EVENTS {
            // Kubernetes has more rules for events that are written through the newer group.
            let event = as_written(self.resource, object);
            let old = update.map(|update| as_written(self.resource, update.old));
            let update = update.zip(old.as_ref()).map(|(update, old)| Update { old, ..update });
            return self.of_row(self.resource).validate(&event, update);
        }
        self.built_in().validate(object, update)
    }

    fn canonicalize(&self, object: &mut Value) {
        if self.custom.is_none() {
            self.built_in().canonicalize(object);
        }
    }

    fn normalize(&self, object: &mut Value) {
        if self.custom.is_none()
            && let Some(of) = stored_type(self.resource)
        {
            api::types::normalize(of, object);
        }
    }

    fn warnings(&self, object: &Value, update: Option<Update<'_>>) -> Vec<String> {
        let (old, part) = (update.map(|update| update.old), update.and_then(|update| update.subresource));
        if let Some(custom) = &self.custom {
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
        let mut warnings = Vec::new();
        if crate::custom::is_definition(self.resource) && part.is_none() && is_new() {
            warnings = crate::custom::column_warnings(object, &self.meaning.customs.languages);
        }
        warnings.extend(self.built_in().warnings(object, update));
        warnings
    }
}

/// The newer group of events.
const EVENTS: &str = "events.k8s.io";

/// The row of the kind that objects are stored as: events of both groups are stored as those of the core group.
fn stored_row<'a>(resource: &'a Resource<'a>) -> &'a Resource<'a> {
    match resource.group {
        EVENTS => resources::EVENTS,
        _ => resource,
    }
}

/// An event in the API group that the client used: `events.k8s.io` events are stored as core events.
fn as_written(resource: &Resource<'_>, object: &Value) -> Value {
    let mut event = object.clone();
    conversion::from_stored(resource, "v1", &mut event);
    event
}

fn stored_type(resource: &Resource<'_>) -> Option<&'static Type> {
    api::types::by_api_version(&conversion::stored_api_version(resource), resource.kind)
}
