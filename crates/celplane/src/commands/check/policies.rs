//! Admission policies applied to manifests, as the server would apply them when the objects are created.
//!
//! Policies, bindings, parameters, namespaces and answers to authorization checks come from files. A policy that needs
//! something that no file holds is not evaluated, which is reported.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::json::{Object, Value};
use api::labels::Selector;
use api::well_known::LABEL_METADATA_NAME;
use cel_kubernetes::environments::admission::Compiler;
use cel_kubernetes::libraries::authorization::{Authorizer, Decision, Question, User};
use registry::admission::cluster::{MissingNamespace, ParamScope};
use registry::admission::mutating::{self, Reinvocation};
use registry::admission::request::is_exempt;
use registry::admission::validating::{self, Deadline};
use registry::admission::{
    Binding, Catalog, Cluster, GroupVersionKind, GroupVersionResource, MutatingBody, Operation, ParamError, PatchError,
    Policy, Request, ValidatingBody,
};
use registry::resources::{self, Resource};
use registry::{conversion, defaults};

use crate::manifests::Manifest;

/// Evaluation of all policies for one object takes at most this long.
const EVALUATION_MAX: Duration = Duration::from_secs(10);
const GROUP: &str = "admissionregistration.k8s.io/v1";

/// Policies, and the objects that they may need.
pub(super) struct Policies {
    validating: Catalog<ValidatingBody>,
    mutating: Catalog<MutatingBody>,
    files: Files,
    user: Arc<User>,
}

/// The verdict of all policies about an object.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// The object as mutations left it, if there were any.
    pub(super) object: Option<Value>,
    /// Refusals: reason and text.
    pub(super) denials: Vec<(&'static str, String)>,
    /// Warnings.
    pub(super) warnings: Vec<String>,
    /// Policies that could not be evaluated, and why.
    pub(super) unknown: Vec<String>,
}

/// Objects by kind.
#[derive(Default)]
struct Files {
    objects: HashMap<GroupVersionKind, Vec<Arc<Value>>>,
    answers: Arc<Answers>,
}

impl Policies {
    /// The policies among the objects of `--policies`, and everything that they may refer to in these and in the manifests.
    pub(super) fn new<'m>(
        policies: impl Iterator<Item = &'m Manifest>,
        manifests: impl Iterator<Item = &'m Manifest>,
        compiler: &Compiler,
        user: User,
    ) -> Self {
        let (mut validating, mut mutating) = (Vec::new(), Vec::new());
        let (mut validating_bindings, mut mutating_bindings) = (Vec::new(), Vec::new());
        let mut files = Files::default();
        let mut answers = Vec::new();
        for manifest in policies {
            match (manifest.api_version(), manifest.kind()) {
                (GROUP, "ValidatingAdmissionPolicy") => {
                    validating.push(Arc::new(Policy::validating(&defaulted(&manifest.value), compiler)));
                }
                (GROUP, "MutatingAdmissionPolicy") => {
                    mutating.push(Arc::new(Policy::mutating(&defaulted(&manifest.value), compiler)));
                }
                (GROUP, "ValidatingAdmissionPolicyBinding") => {
                    validating_bindings.push(Arc::new(Binding::new(&defaulted(&manifest.value))));
                }
                (GROUP, "MutatingAdmissionPolicyBinding") => {
                    mutating_bindings.push(Arc::new(Binding::new(&defaulted(&manifest.value))));
                }
                ("authorization.k8s.io/v1", "SubjectAccessReview") => answers.push(manifest.value.clone()),
                _ => files.add(manifest),
            }
        }
        manifests.for_each(|manifest| files.add(manifest));
        files.answers = Arc::new(Answers { reviews: answers });
        Self {
            validating: Catalog::new(validating, validating_bindings),
            mutating: Catalog::new(mutating, mutating_bindings),
            files,
            user: Arc::new(user),
        }
    }

    /// The number of policies that have a binding.
    pub(super) fn len(&self) -> usize {
        self.validating.len().saturating_add(self.mutating.len())
    }

    /// Applies the mutating policies to a new object.
    pub(super) fn mutate(&self, object: &Value, row: Row<'_>) -> Verdict {
        let mut verdict = Verdict::default();
        if row.is_exempt(object) {
            return verdict;
        }
        let mut reinvocation = Reinvocation::default();
        let mut current = object.clone();
        for pass in 0..2 {
            reinvocation.is_second = pass == 1;
            reinvocation.is_needed = false;
            let request = self.request(&current, row);
            let outcome = with_deadline(|deadline| {
                mutating::evaluate_all(&self.mutating, &request, &self.files, deadline, &mut reinvocation)
            });
            let unknown = outcome.unknown.iter().map(|(policy, why)| format!("policy '{policy}': {why}"));
            verdict.unknown.extend(unknown);
            verdict.denials.extend(outcome.denials.iter().take(1).map(|denial| (denial.reason, denial.text())));
            verdict.denials.extend(outcome.error.map(|(_, why)| ("InternalError", why)));
            if let Some(object) = outcome.object {
                current = object;
                verdict.object = Some(current.clone());
            }
            if !reinvocation.is_needed || !verdict.denials.is_empty() {
                break;
            }
        }
        verdict.unknown.dedup();
        verdict
    }

    /// Applies the validating policies to a new object.
    pub(super) fn validate(&self, object: &Value, row: Row<'_>) -> Verdict {
        if row.is_exempt(object) {
            return Verdict::default();
        }
        let request = self.request(object, row);
        let outcome =
            with_deadline(|deadline| validating::evaluate_all(&self.validating, &request, &self.files, deadline));
        let name = match request.name.as_str() {
            "" => object.str_at(&["metadata", "generateName"]).unwrap_or("Unknown"),
            name => name,
        };
        let resource = resources::qualified(&request.resource.resource, &request.resource.group);
        let text = |denial: &validating::Denial| format!("{resource} \"{name}\" is forbidden: {}", denial.text());
        Verdict {
            object: None,
            // The server reports the first one.
            denials: outcome.denials.iter().take(1).map(|denial| (denial.reason, text(denial))).collect(),
            warnings: outcome.warnings,
            unknown: outcome.unknown.iter().map(|(policy, why)| format!("policy '{policy}': {why}")).collect(),
        }
    }

    fn request(&self, object: &Value, row: Row<'_>) -> Request {
        let text = |field: &str| object.text_at(&["metadata", field]).to_owned();
        let api_version = object.text("apiVersion");
        let kind = GroupVersionKind::new(api_version, object.text("kind"));
        let is_namespace = kind.kind == "Namespace" && kind.group.is_empty();
        let namespace = match (row.namespaced, text("namespace")) {
            (true, namespace) if namespace.is_empty() => "default".to_owned(),
            (true, namespace) => namespace,
            (false, _) if is_namespace => text("name"),
            (false, _) => String::new(),
        };
        Request {
            operation: Operation::Create,
            resource: GroupVersionResource {
                group: kind.group.clone(),
                version: kind.version.clone(),
                resource: row.plural.to_owned(),
            },
            kind,
            subresource: String::new(),
            name: text("name"),
            namespace,
            user: self.user.clone(),
            dry_run: false,
            options: api::json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}),
            object: Some(Arc::new(object.clone())),
            old: None,
        }
    }
}

/// The resource of an object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'r> {
    /// The plural name.
    pub(super) plural: &'r str,
    /// Whether it is in a namespace.
    pub(super) namespaced: bool,
}

impl Row<'_> {
    /// Whether policies do not apply to an object of the resource.
    fn is_exempt(self, object: &Value) -> bool {
        is_exempt((&GroupVersionKind::new(object.text("apiVersion"), "").group, self.plural))
    }
}

fn with_deadline<T>(work: impl FnOnce(Deadline<'_>) -> T) -> T {
    let started = Instant::now();
    let now = move || started.elapsed();
    work(Deadline { now: &now, end: EVALUATION_MAX })
}

/// A policy or binding with its defaults.
fn defaulted(policy: &Value) -> Value {
    let (api_version, kind) = (policy.str_at(&["apiVersion"]), policy.str_at(&["kind"]));
    let of = api_version.zip(kind).and_then(|(api_version, kind)| api::types::by_api_version(api_version, kind));
    let mut policy = policy.clone();
    if let Some(of) = of {
        defaults::apply(of, &mut policy, "2000-01-01T00:00:00Z");
    }
    policy
}

impl Files {
    fn add(&mut self, manifest: &Manifest) {
        let kind = GroupVersionKind::new(manifest.api_version(), manifest.kind());
        self.objects.entry(kind).or_default().push(Arc::new(manifest.value.clone()));
    }

    fn of(&self, kind: &GroupVersionKind) -> &[Arc<Value>] {
        self.objects.get(kind).map(Vec::as_slice).unwrap_or_default()
    }

    fn row(kind: &GroupVersionKind) -> Option<&'static Resource<'static>> {
        resources::find_by_api_version(&kind.api_version(), &kind.kind)
    }

    /// The definition of a custom kind.
    fn definition(&self, kind: &GroupVersionKind) -> Option<&Value> {
        let definitions = self.of(&GroupVersionKind::new("apiextensions.k8s.io/v1", "CustomResourceDefinition"));
        let is_it = |definition: &&Arc<Value>| {
            definition.str_at(&["spec", "group"]) == Some(kind.group.as_str())
                && definition.str_at(&["spec", "names", "kind"]) == Some(kind.kind.as_str())
        };
        definitions.iter().find(is_it).map(AsRef::as_ref)
    }
}

fn namespace_of(object: &Value) -> &str {
    object.str_at(&["metadata", "namespace"]).unwrap_or("default")
}

impl Cluster for Files {
    fn namespace(&self, name: &str) -> Result<Arc<Value>, MissingNamespace> {
        let all = self.of(&GroupVersionKind::new("v1", "Namespace"));
        let found =
            all.iter().find(|it| it.str_at(&["metadata", "name"]) == Some(name)).ok_or(MissingNamespace::Unknown)?;
        let mut namespace = found.as_ref().clone();
        // The server adds it.
        if let Some(metadata) = namespace.get_mut("metadata").and_then(Value::as_object_mut) {
            let labels = metadata.get_or_insert("labels", Value::object);
            if let Some(labels) = labels.as_object_mut() {
                labels.insert(LABEL_METADATA_NAME, name);
            }
        }
        Ok(Arc::new(namespace))
    }

    fn equivalents(&self, request: &Request) -> Arc<[(GroupVersionResource, GroupVersionKind)]> {
        let Some(row) = Self::row(&request.kind) else { return Arc::new([]) };
        let other = |version: &&str| {
            let (mut resource, mut kind) = (request.resource.clone(), request.kind.clone());
            resource.version = (*version).to_owned();
            kind.version = (*version).to_owned();
            (resource, kind)
        };
        row.versions.iter().map(other).collect()
    }

    fn convert(&self, request: &Request, document: &Value, kind: &GroupVersionKind) -> Result<Value, String> {
        let Some(row) = Self::row(&request.kind) else { return Err(format!("unknown kind {kind}")) };
        let mut value = document.clone();
        conversion::to_stored(row, &request.kind.version, &mut value);
        conversion::from_stored(row, &kind.version, &mut value);
        Ok(value)
    }

    fn is_built_in(&self, kind: &GroupVersionKind) -> bool {
        api::types::by_kind(&kind.group, &kind.version, &kind.kind).is_some()
    }

    fn param_scope(&self, kind: &GroupVersionKind) -> Result<Option<ParamScope>, ParamError> {
        if let Some(row) = Self::row(kind) {
            return Ok(Some(ParamScope { namespaced: row.namespaced }));
        }
        let namespaced = match (self.definition(kind), self.of(kind)) {
            (Some(definition), _) => definition.str_at(&["spec", "scope"]) == Some("Namespaced"),
            (None, []) => {
                return Err(ParamError::Unknown(format!("no file contains the definition of {}", kind.kind)));
            }
            // A kind without a definition is what its objects are.
            (None, objects) => objects.iter().any(|it| it.at(&["metadata", "namespace"]).is_some()),
        };
        Ok(Some(ParamScope { namespaced }))
    }

    fn param(&self, kind: &GroupVersionKind, namespace: &str, name: &str) -> Result<Option<Arc<Value>>, ParamError> {
        let is_it = |it: &&Arc<Value>| {
            it.str_at(&["metadata", "name"]) == Some(name) && (namespace.is_empty() || namespace_of(it) == namespace)
        };
        match self.of(kind).iter().find(is_it) {
            Some(found) => Ok(Some(found.clone())),
            None => Err(ParamError::Unknown(format!("no file contains the parameter {} `{name}`", kind.kind))),
        }
    }

    fn params(
        &self,
        kind: &GroupVersionKind,
        namespace: &str,
        selector: &Selector,
    ) -> Result<Vec<Arc<Value>>, ParamError> {
        let selects = |it: &&Arc<Value>| {
            let labels = it.object_at(&["metadata", "labels"]);
            (namespace.is_empty() || namespace_of(it) == namespace)
                && labels.map_or_else(|| selector.matches(&Object::new()), |labels| selector.matches(labels))
        };
        let found: Vec<Arc<Value>> = self.of(kind).iter().filter(selects).cloned().collect();
        if found.is_empty() {
            return Err(ParamError::Unknown(format!("no file contains a selected parameter {}", kind.kind)));
        }
        Ok(found)
    }

    fn authorizer(&self) -> Arc<dyn Authorizer> {
        self.answers.clone()
    }

    fn undecided(&self) -> Option<String> {
        UNDECIDED.take()
    }

    fn apply(&self, _: &Request, kind: &GroupVersionKind, object: &Value, patch: Value) -> Result<Value, PatchError> {
        if self.is_built_in(kind) {
            return patching::policy::apply(kind, object, patch).map(with_defaults);
        }
        let versions = self.definition(kind).and_then(|it| it.at(&["spec", "versions"])).and_then(Value::as_array);
        let version = versions.into_iter().flatten().find(|it| it.str_at(&["name"]) == Some(kind.version.as_str()));
        let schema = version.and_then(|version| version.at(&["schema", "openAPIV3Schema"]));
        let schema = schema.and_then(|schema| api::structural_schema::Schema::from_value(schema).ok());
        patching::policy::apply_custom(schema.as_ref(), object, patch)
    }

    fn patch(
        &self,
        _: &Request,
        kind: &GroupVersionKind,
        object: &Value,
        operations: Vec<Value>,
    ) -> Result<Option<Value>, PatchError> {
        Ok(patching::policy::json_patch(kind, object, operations)?.map(with_defaults))
    }
}

fn with_defaults(object: Value) -> Value {
    defaulted(&object)
}

/// Answers to authorization checks: SubjectAccessReviews with a status.
#[derive(Default)]
struct Answers {
    reviews: Vec<Value>,
}

thread_local! {
    /// A check of this thread's evaluation that no review answers.
    static UNDECIDED: Cell<Option<String>> = const { Cell::new(None) };
}

impl Answers {
    fn find(&self, user: &User, question: Question<'_>) -> Option<&Value> {
        let fits = |given: Option<&str>, asked: &str| given.unwrap_or_default() == asked;
        self.reviews.iter().find(|review| {
            let spec = |path: &[&str]| review.get("spec").and_then(|spec| spec.str_at(path));
            if spec(&["user"]).is_some_and(|name| name != user.name) {
                return false;
            }
            match question {
                Question::Path { path, verb } => {
                    spec(&["nonResourceAttributes", "path"]) == Some(path)
                        && spec(&["nonResourceAttributes", "verb"]) == Some(verb)
                }
                Question::Resource { check, verb } => {
                    let of = |field: &str| spec(&["resourceAttributes", field]);
                    of("resource") == Some(check.resource.as_str())
                        && of("verb") == Some(verb)
                        && fits(of("group"), &check.group)
                        && fits(of("subresource"), &check.subresource)
                        && fits(of("namespace"), &check.namespace)
                        && fits(of("name"), &check.name)
                }
            }
        })
    }
}

impl Authorizer for Answers {
    fn authorize(&self, user: &User, question: Question<'_>) -> Decision {
        if let Some(review) = self.find(user, question) {
            let allowed = review.flag_at(&["status", "allowed"]);
            let reason = review.text_at(&["status", "reason"]).to_owned();
            return Decision { allowed, reason, error: None };
        }
        let shown = match question {
            Question::Path { path, verb } => format!("{verb} {path}"),
            Question::Resource { check, verb } => format!("{verb} {}", check.resource),
        };
        let why = format!("no SubjectAccessReview answers whether `{}` may {shown}", user.name);
        UNDECIDED.set(Some(why));
        Decision::default()
    }
}
