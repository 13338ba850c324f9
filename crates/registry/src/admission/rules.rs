//! Rules and selectors: which requests a policy, a binding or a webhook is about.
//!
//! Follows `apiserver/pkg/admission/plugin/webhook/predicates` and `plugin/policy/matching` of Kubernetes.

use std::hash::Hasher as _;

use api::hash::Mixer;
use api::json::{self, Object, Value};
use api::labels::Selector;
use api::meta::v1::LabelSelector;

use super::cluster::{Cluster, MissingNamespace};
use super::request::{GroupVersionKind, GroupVersionResource, Operation, Request};

/// The scope of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    All,
    Namespaced,
    Cluster,
}

/// Operations on resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    operations: u8,
    groups: Box<[Box<str>]>,
    versions: Box<[Box<str>]>,
    /// Resource and subresource, each of which can be `*`.
    resources: Box<[(Box<str>, Box<str>)]>,
    scope: Scope,
    names: Box<[Box<str>]>,
}

fn texts(value: &Value, field: &str) -> Box<[Box<str>]> {
    value.texts(field).map(Box::from).collect()
}

fn has(list: &[Box<str>], wanted: &str) -> bool {
    list.iter().any(|it| **it == *wanted || **it == *"*")
}

impl Rule {
    /// Reads a rule.
    #[must_use]
    pub fn new(rule: &Value) -> Self {
        let operation = |name: &str| match name {
            "*" => u8::MAX,
            "CREATE" => Operation::Create.bit(),
            "UPDATE" => Operation::Update.bit(),
            "DELETE" => Operation::Delete.bit(),
            "CONNECT" => Operation::Connect.bit(),
            _ => 0,
        };
        let split = |text: &str| match text.split_once('/') {
            Some((resource, subresource)) => (Box::from(resource), Box::from(subresource)),
            None => (Box::from(text), Box::from("")),
        };
        Self {
            operations: rule.texts("operations").fold(0, |all, name| all | operation(name)),
            groups: texts(rule, "apiGroups"),
            versions: texts(rule, "apiVersions"),
            resources: rule.texts("resources").map(split).collect(),
            scope: match rule.text("scope") {
                "Namespaced" => Scope::Namespaced,
                "Cluster" => Scope::Cluster,
                _ => Scope::All,
            },
            names: texts(rule, "resourceNames"),
        }
    }

    /// Whether the rule is about an operation on a resource; names are not compared.
    #[must_use]
    pub fn matches(&self, request: &Request, resource: &GroupVersionResource) -> bool {
        self.operations & request.operation.bit() != 0
            && self.matches_resource(&resource.resource, &request.subresource)
            && has(&self.groups, &resource.group)
            && has(&self.versions, &resource.version)
            && self.matches_scope(request, resource)
    }

    fn matches_scope(&self, request: &Request, resource: &GroupVersionResource) -> bool {
        // The namespace of a namespace is itself, which does not make it namespaced.
        let is_namespaced = !resource.is_namespaces() && !request.namespace.is_empty();
        match self.scope {
            Scope::All => true,
            Scope::Namespaced => is_namespaced,
            Scope::Cluster => !is_namespaced,
        }
    }

    fn matches_resource(&self, resource: &str, subresource: &str) -> bool {
        let fits = |pattern: &str, text: &str| pattern == "*" || pattern == text;
        self.resources.iter().any(|(of, part)| fits(of, resource) && fits(part, subresource))
    }

    fn matches_name(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|it| **it == *name)
    }

    /// The groups and resources the rule can be about, without subresources; nothing if it is about any.
    pub(crate) fn keys(&self) -> Option<Vec<(&str, &str)>> {
        let is_any = |text: &str| text == "*";
        if self.groups.iter().any(|it| is_any(it)) || self.resources.iter().any(|(of, _)| is_any(of)) {
            return None;
        }
        let resources = || self.resources.iter().map(|(of, _)| of.as_ref());
        Some(self.groups.iter().flat_map(|group| resources().map(move |of| (group.as_ref(), of))).collect())
    }

    pub(crate) fn operations(&self) -> u8 {
        self.operations
    }
}

/// A label selector as written; an invalid one is an error for every request that it is evaluated on.
pub type LabelRule = Result<Selector, String>;

/// Reads a selector; none selects everything.
pub fn label_rule(selector: &Value) -> LabelRule {
    if selector.is_null() {
        return Ok(Selector::everything());
    }
    let view: LabelSelector = json::from_value(selector).map_err(|error| error.to_string())?;
    view.to_selector().map_err(|error| error.to_string())
}

/// The selectors, rules and exceptions of a policy or binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constraints {
    namespaces: LabelRule,
    objects: LabelRule,
    rules: Box<[Rule]>,
    exceptions: Box<[Rule]>,
    is_exact: bool,
    /// Hash of the document: equal documents have the same.
    fingerprint: u64,
}

/// The resource and kind under which a request matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match {
    /// Resource and kind of the request.
    Requested,
    /// Resource and kind of an equivalent version.
    Equivalent(Box<(GroupVersionResource, GroupVersionKind)>),
}

/// A reason why matching is undecidable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MatchError {
    /// The configuration is wrong, in Kubernetes' words.
    Refused(String),
    /// The labels of the namespace are not known: only offline.
    Unknown(String),
}

static NO_LABELS: Object = Object::new();

fn labels(object: &Value) -> Option<&Object> {
    let metadata = object.get("metadata")?;
    Some(metadata.get("labels").and_then(Value::as_object).unwrap_or(&NO_LABELS))
}

impl Constraints {
    /// Reads `matchConstraints` or `matchResources`.
    #[must_use]
    pub fn new(constraints: &Value) -> Self {
        let rules = |field: &str| constraints.list(field).iter().map(Rule::new).collect();
        Self {
            namespaces: label_rule(constraints.field("namespaceSelector")),
            objects: label_rule(constraints.field("objectSelector")),
            rules: rules("resourceRules"),
            exceptions: rules("excludeResourceRules"),
            is_exact: constraints.text("matchPolicy") != "Equivalent",
            fingerprint: {
                let mut hasher = Mixer::default();
                hasher.write(json::to_string(constraints).as_bytes());
                hasher.finish()
            },
        }
    }

    /// A number that equal constraints have in common.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The rules.
    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Whether equivalent versions match as well.
    pub(crate) fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// The match of a request, if there is one.
    ///
    /// # Errors
    /// A selector cannot be understood, or the namespace does not exist.
    pub fn matches(&self, request: &Request, cluster: &dyn Cluster) -> Result<Option<Match>, MatchError> {
        let namespaces = self.matches_namespace(request, cluster);
        if namespaces == Ok(false) {
            return Ok(None);
        }
        let objects = self.matches_object(request);
        if objects == Ok(false) {
            return Ok(None);
        }
        if !self.exceptions.is_empty() && self.find(&self.exceptions, request, cluster).is_some() {
            return Ok(None);
        }
        let found =
            if self.rules.is_empty() { Some(Match::Requested) } else { self.find(&self.rules, request, cluster) };
        // Selectors fail only for requests that the rules are about.
        match found {
            None => Ok(None),
            found => namespaces.and(objects).map(|_| found),
        }
    }

    fn find(&self, rules: &[Rule], request: &Request, cluster: &dyn Cluster) -> Option<Match> {
        let is_match = |rule: &Rule, resource| rule.matches(request, resource) && rule.matches_name(&request.name);
        if rules.iter().any(|rule| is_match(rule, &request.resource)) {
            return Some(Match::Requested);
        }
        if self.is_exact {
            return None;
        }
        let equivalents = cluster.equivalents(request);
        rules.iter().find_map(|rule| {
            let mut others = equivalents.iter().filter(|(resource, _)| *resource != request.resource);
            let found = others.find(|(resource, _)| is_match(rule, resource))?;
            Some(Match::Equivalent(Box::new(found.clone())))
        })
    }

    fn matches_namespace(&self, request: &Request, cluster: &dyn Cluster) -> Result<bool, MatchError> {
        let is_namespace = request.resource.resource == "namespaces";
        if request.namespace.is_empty() && !is_namespace {
            // Kubernetes: selectors of namespaces do not exempt what is outside of all of them.
            return Ok(true);
        }
        let selector = self.namespaces.as_ref().map_err(|why| MatchError::Refused(why.clone()))?;
        if selector.is_empty() {
            return Ok(true);
        }
        // The labels of a namespace that is being written are not stored yet.
        let is_written = matches!(request.operation, Operation::Create | Operation::Update);
        if is_namespace && request.subresource.is_empty() && is_written {
            let labels = request.object.as_deref().and_then(labels).unwrap_or(&NO_LABELS);
            return Ok(selector.matches(labels));
        }
        let name = &request.namespace;
        let namespace = cluster.namespace(name).map_err(|missing| match missing {
            MissingNamespace::NotFound => {
                MatchError::Refused(format!("namespaces {} not found", api::go_text::quote(name)))
            }
            MissingNamespace::Unknown => MatchError::Unknown(format!("the labels of namespace `{name}` are not known")),
        })?;
        Ok(selector.matches(labels(&namespace).unwrap_or(&NO_LABELS)))
    }

    fn matches_object(&self, request: &Request) -> Result<bool, MatchError> {
        let selector = self.objects.as_ref().map_err(|why| MatchError::Refused(why.clone()))?;
        if selector.is_empty() {
            return Ok(true);
        }
        let selects = |object: &Option<std::sync::Arc<Value>>| {
            object.as_deref().and_then(labels).is_some_and(|labels| selector.matches(labels))
        };
        Ok(selects(&request.object) || selects(&request.old))
    }
}
