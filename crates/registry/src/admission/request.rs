//! A request as policies and webhooks see it.

use std::fmt;
use std::sync::Arc;

use api::json::{Object, Value};
use cel_kubernetes::libraries::authorization::User;

/// An operation, as Kubernetes groups the verbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// The object is new.
    Create,
    /// The object changes.
    Update,
    /// The object is deleted.
    Delete,
    /// A connection is opened.
    Connect,
}

impl Operation {
    /// All operations.
    pub(crate) const ALL: [Self; 4] = [Self::Create, Self::Update, Self::Delete, Self::Connect];

    /// The name in rules.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }

    /// The bit of the operation in a set.
    pub(crate) const fn bit(self) -> u8 {
        match self {
            Operation::Create => 1,
            Operation::Update => 2,
            Operation::Delete => 4,
            Operation::Connect => 8,
        }
    }
}

/// Group, version and kind of objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct GroupVersionKind {
    /// The group, empty for core.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
}

impl GroupVersionKind {
    /// Reads `apiVersion` and `kind`.
    #[must_use]
    pub fn new(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
    }

    /// `apps/v1`, or `v1` in core.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    fn document(&self) -> Value {
        let fields = [("group", &self.group), ("version", &self.version), ("kind", &self.kind)];
        Value::Object(fields.into_iter().map(|(name, text)| (name, text.as_str())).collect())
    }
}

/// As Go prints it: `apps/v1, Kind=Deployment`.
impl fmt::Display for GroupVersionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// Group, version and resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct GroupVersionResource {
    /// The group, empty for core.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural name.
    pub resource: String,
}

impl GroupVersionResource {
    /// Whether the objects are namespaces.
    pub(crate) fn is_namespaces(&self) -> bool {
        self.group.is_empty() && self.version == "v1" && self.resource == "namespaces"
    }

    fn document(&self) -> Value {
        let fields = [("group", &self.group), ("version", &self.version), ("resource", &self.resource)];
        Value::Object(fields.into_iter().map(|(name, text)| (name, text.as_str())).collect())
    }
}

/// A request that policies and webhooks evaluate. Its documents are in the version of the request.
#[derive(Debug, Clone)]
pub struct Request {
    /// The operation.
    pub operation: Operation,
    /// The kind of the object.
    pub kind: GroupVersionKind,
    /// The resource.
    pub resource: GroupVersionResource,
    /// The subresource, empty for the resource itself.
    pub subresource: String,
    /// The name, empty where it will be generated.
    pub name: String,
    /// The namespace; for namespaces their own name.
    pub namespace: String,
    /// The user.
    pub user: Arc<User>,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    /// The options, such as `CreateOptions`; null for connections.
    pub options: Value,
    /// The object; none for deletions.
    pub object: Option<Arc<Value>>,
    /// The stored object; none for new objects and connections.
    pub old: Option<Arc<Value>>,
}

/// Resources that are exempt from policies: the policies themselves, so that one can always be removed, and reviews.
const EXEMPT: [(&str, &str); 10] = [
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// Whether policies do not apply to a resource, given by group and plural name.
#[must_use]
pub fn is_exempt(resource: (&str, &str)) -> bool {
    EXEMPT.contains(&resource)
}

impl Request {
    /// Whether the object is a namespace, whose namespace is itself.
    pub(crate) fn is_of_namespace(&self) -> bool {
        self.kind.group.is_empty() && self.kind.version == "v1" && self.kind.kind == "Namespace"
    }

    /// The namespace whose object expressions see; none outside of namespaces, and for namespaces themselves.
    pub(crate) fn namespace_seen(&self) -> Option<&str> {
        Some(self.namespace.as_str()).filter(|name| !name.is_empty() && !self.is_of_namespace())
    }

    /// The variable `request` of expressions, for the resource and kind under which the rules matched.
    #[must_use]
    pub fn document(&self, resource: &GroupVersionResource, kind: &GroupVersionKind) -> Value {
        let mut request = Object::new();
        request.insert("uid", "");
        request.insert("kind", kind.document());
        request.insert("resource", resource.document());
        let mut text = |name: &str, text: &str| {
            if !text.is_empty() {
                request.insert(name, text);
            }
        };
        text("subResource", &self.subresource);
        text("requestSubResource", &self.subresource);
        text("name", &self.name);
        text("namespace", &self.namespace);
        request.insert("requestKind", self.kind.document());
        request.insert("requestResource", self.resource.document());
        request.insert("operation", self.operation.name());
        request.insert("userInfo", user_info(&self.user));
        request.insert("object", Value::Null);
        request.insert("oldObject", Value::Null);
        request.insert("dryRun", self.dry_run);
        request.insert("options", self.options.clone());
        Value::Object(request)
    }
}

fn user_info(user: &User) -> Value {
    let texts = |texts: &[String]| Value::Array(texts.iter().map(|text| Value::String(text.as_str().into())).collect());
    let mut info = Object::new();
    if !user.name.is_empty() {
        info.insert("username", user.name.as_str());
    }
    if !user.uid.is_empty() {
        info.insert("uid", user.uid.as_str());
    }
    if !user.groups.is_empty() {
        info.insert("groups", texts(&user.groups));
    }
    if !user.extra.is_empty() {
        let extra: Object = user.extra.iter().map(|(key, values)| (key.as_str(), texts(values))).collect();
        info.insert("extra", extra);
    }
    Value::Object(info)
}

/// The metadata of a namespace that expressions see.
const NAMESPACE_METADATA: [&str; 12] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "finalizers",
];

/// The variable `namespaceObject`: status, spec and some of the metadata.
pub(crate) fn namespace_document(namespace: &Value) -> Value {
    let mut seen = Object::new();
    let mut metadata = Object::new();
    for field in NAMESPACE_METADATA {
        if let Some(value) = namespace.at(&["metadata", field]) {
            metadata.insert(field, value.clone());
        }
    }
    seen.insert("metadata", metadata);
    for part in ["spec", "status"] {
        seen.insert(part, namespace.get(part).cloned().unwrap_or_else(Value::object));
    }
    Value::Object(seen)
}
