//! Matching of requests and FlowSchemas, by user and target.
//!
//! Follows Kubernetes' `rule.go`. Of the schemas that match, the one with the lowest precedence counts, then the name.

use api::json::Value;

use crate::identity::User;
use crate::wire::request::{Target, Verb};

/// A request as schemas see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) user: &'a User,
    /// The verb of a resource, or the method in small letters.
    pub(crate) verb: &'a str,
    pub(crate) target: Option<&'a Target>,
    pub(crate) path: &'a str,
}

/// Property that separates the flows of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Distinguisher {
    User,
    Namespace,
}

/// Matching rules of a FlowSchema.
#[derive(Debug)]
pub(super) struct Matcher {
    pub(super) precedence: i64,
    distinguisher: Option<Distinguisher>,
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Debug)]
enum Subject {
    User(Box<str>),
    Group(Box<str>),
    /// Prefix of the names of service accounts, or the name of one.
    Accounts(String),
    Account(String),
}

#[derive(Debug)]
struct ResourceRule {
    verbs: Names,
    groups: Names,
    resources: Names,
    cluster_scope: bool,
    namespaces: Names,
}

#[derive(Debug)]
struct PathRule {
    verbs: Names,
    /// None stands for all paths.
    paths: Option<Vec<String>>,
}

/// Names, or all of them.
#[derive(Debug)]
enum Names {
    All,
    Some(Vec<Box<str>>),
}

impl Names {
    fn of(rule: &Value, field: &str) -> Self {
        let names: Vec<&str> = rule.list(field).iter().filter_map(Value::as_str).collect();
        if names.contains(&"*") { Names::All } else { Names::Some(names.into_iter().map(Into::into).collect()) }
    }

    fn have(&self, name: &str) -> bool {
        match self {
            Names::All => true,
            Names::Some(names) => names.iter().any(|it| **it == *name),
        }
    }

    fn have_resource(&self, target: &Target) -> bool {
        match (self, target.first_subresource()) {
            (Names::Some(names), subresource) if !subresource.is_empty() => names.iter().any(|it| {
                it.strip_prefix(target.resource.as_str()).and_then(|it| it.strip_prefix('/')) == Some(subresource)
            }),
            _ => self.have(&target.resource),
        }
    }
}

impl Matcher {
    /// Reads a FlowSchema. What cannot be read matches nothing.
    pub(super) fn of(schema: &Value) -> Self {
        let empty = Value::Null;
        let spec = schema.get("spec").unwrap_or(&empty);
        let distinguisher = match spec.str_at(&["distinguisherMethod", "type"]) {
            Some("ByUser") => Some(Distinguisher::User),
            Some("ByNamespace") => Some(Distinguisher::Namespace),
            _ => None,
        };
        Self {
            precedence: spec.i64_at(&["matchingPrecedence"]).unwrap_or(i64::MAX),
            distinguisher,
            rules: spec.list("rules").iter().map(Rule::of).collect(),
        }
    }

    pub(super) fn matches(&self, request: &Request<'_>) -> bool {
        self.rules.iter().any(|rule| rule.matches(request))
    }

    /// Returns the flow distinguisher of a request.
    pub(super) fn flow<'r>(&self, request: &Request<'r>) -> &'r str {
        match (self.distinguisher, request.target) {
            (Some(Distinguisher::User), _) => &request.user.name,
            (Some(Distinguisher::Namespace), Some(target)) => &target.namespace,
            _ => "",
        }
    }
}

impl Rule {
    fn of(rule: &Value) -> Self {
        Self {
            subjects: rule.list("subjects").iter().filter_map(Subject::of).collect(),
            resources: rule.list("resourceRules").iter().map(ResourceRule::of).collect(),
            paths: rule.list("nonResourceRules").iter().map(PathRule::of).collect(),
        }
    }

    fn matches(&self, request: &Request<'_>) -> bool {
        self.subjects.iter().any(|subject| subject.is(request.user))
            && match request.target {
                Some(target) => self.resources.iter().any(|rule| rule.matches(request.verb, target)),
                None => self.paths.iter().any(|rule| rule.matches(request.verb, request.path)),
            }
    }
}

impl Subject {
    fn of(subject: &Value) -> Option<Self> {
        match subject.str_at(&["kind"])? {
            "User" => Some(Subject::User(subject.str_at(&["user", "name"])?.into())),
            "Group" => Some(Subject::Group(subject.str_at(&["group", "name"])?.into())),
            "ServiceAccount" => {
                let namespace = subject.str_at(&["serviceAccount", "namespace"])?;
                let all = format!("system:serviceaccount:{namespace}:");
                Some(match subject.str_at(&["serviceAccount", "name"])? {
                    "*" => Subject::Accounts(all),
                    name => Subject::Account(format!("{all}{name}")),
                })
            }
            _ => None,
        }
    }

    fn is(&self, user: &User) -> bool {
        match self {
            Subject::User(name) => **name == *"*" || **name == *user.name,
            Subject::Group(name) => **name == *"*" || user.is_in(name),
            Subject::Accounts(start) => user.name.starts_with(start.as_str()),
            Subject::Account(name) => user.name == *name,
        }
    }
}

impl ResourceRule {
    fn of(rule: &Value) -> Self {
        Self {
            verbs: Names::of(rule, "verbs"),
            groups: Names::of(rule, "apiGroups"),
            resources: Names::of(rule, "resources"),
            cluster_scope: rule.get("clusterScope").and_then(Value::as_bool).unwrap_or_default(),
            namespaces: Names::of(rule, "namespaces"),
        }
    }

    fn matches(&self, verb: &str, target: &Target) -> bool {
        self.verbs.have(verb)
            && self.groups.have(&target.group)
            && self.resources.have_resource(target)
            && if target.namespace.is_empty() { self.cluster_scope } else { self.namespaces.have(&target.namespace) }
    }
}

impl PathRule {
    fn of(rule: &Value) -> Self {
        let paths: Vec<&str> = rule.list("nonResourceURLs").iter().filter_map(Value::as_str).collect();
        let paths = (!paths.contains(&"*")).then(|| paths.into_iter().map(ToOwned::to_owned).collect());
        Self { verbs: Names::of(rule, "verbs"), paths }
    }

    fn matches(&self, verb: &str, path: &str) -> bool {
        let Some(paths) = &self.paths else { return self.verbs.have(verb) };
        // Kubernetes: a path stands for all that is below it, too.
        let is_below = |rule: &str| path.strip_prefix(rule).is_some_and(|rest| rest.starts_with('/'));
        let covers = |rule: &String| *rule == path || is_below(rule.trim_end_matches('*').trim_end_matches('/'));
        self.verbs.have(verb) && paths.iter().any(covers)
    }
}

/// The verb of a request, as schemas name it.
pub(crate) fn verb_of(verb: Option<Verb>, method: &http::Method) -> std::borrow::Cow<'static, str> {
    match verb {
        Some(verb) => verb.name().into(),
        None => method.as_str().to_lowercase().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::request::{Query, Route, route};

    #[track_caller]
    fn check(rule: &Value, user: &User, method: &str, path: &str, matches: bool) {
        let schema = api::json!({"spec": {"matchingPrecedence": 5, "rules": [(rule.clone())]}});
        let (method, uri) = (method.parse().unwrap(), path);
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let target = match route(&method, path, &Query::parse(query)) {
            Route::Resource(target) => Some(target),
            Route::Other => None,
        };
        let verb = verb_of(target.as_ref().and_then(|it| it.verb), &method);
        let request = Request { user, verb: &verb, target: target.as_deref(), path };
        assert_eq!(Matcher::of(&schema).matches(&request), matches, "{method} {uri}");
    }

    fn rule(resources: &[&str], namespaces: &[&str], cluster_scope: bool) -> Value {
        let texts = |texts: &[&str]| Value::Array(texts.iter().map(|it| Value::from(*it)).collect());
        api::json!({
            "subjects": [{"kind": "Group", "group": {"name": "system:nodes"}}],
            "resourceRules": [{
                "verbs": ["get", "update"], "apiGroups": ["", "apps"], "resources": (texts(resources)),
                "clusterScope": cluster_scope, "namespaces": (texts(namespaces))
            }]
        })
    }

    #[test]
    fn resources_match_by_verb_group_name_and_namespace() {
        let node = User::authenticated("system:node:a", &["system:nodes"]);
        let nodes = rule(&["nodes", "nodes/status"], &[], true);
        check(&nodes, &node, "GET", "/api/v1/nodes/a", true);
        check(&nodes, &node, "PUT", "/api/v1/nodes/a/status", true);
        check(&nodes, &node, "GET", "/api/v1/nodes", false);
        check(&nodes, &node, "PUT", "/api/v1/nodes/a/proxy", false);
        check(&nodes, &User::authenticated("b", &[]), "GET", "/api/v1/nodes/a", false);
        let pods = rule(&["*"], &["ns"], false);
        check(&pods, &node, "GET", "/api/v1/namespaces/ns/pods/a", true);
        check(&pods, &node, "GET", "/api/v1/namespaces/ns/pods/a/log", true);
        check(&pods, &node, "GET", "/apis/apps/v1/namespaces/ns/deployments/a", true);
        check(&pods, &node, "GET", "/apis/batch/v1/namespaces/ns/jobs/a", false);
        check(&pods, &node, "GET", "/api/v1/namespaces/other/pods/a", false);
        check(&pods, &node, "GET", "/api/v1/nodes/a", false);
        check(&pods, &node, "GET", "/healthz", false);
    }

    #[test]
    fn paths_match_their_subpaths() {
        let rule = |path: &str| {
            api::json!({
                "subjects": [{"kind": "User", "user": {"name": "*"}}],
                "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": [path]}]
            })
        };
        let user = User::anonymous();
        check(&rule("/livez"), &user, "GET", "/livez", true);
        check(&rule("/livez"), &user, "GET", "/livez/ping", true);
        check(&rule("/livez"), &user, "GET", "/livezz", false);
        check(&rule("/livez"), &user, "POST", "/livez", false);
        check(&rule("/debug/*"), &user, "GET", "/debug/a", true);
        check(&rule("*"), &user, "GET", "/version", true);
        check(&rule("*"), &user, "GET", "/api/v1/pods", false);
    }

    #[test]
    fn accounts_match_by_namespace_and_name() {
        let rule = |name: &str| {
            api::json!({
                "subjects": [{"kind": "ServiceAccount", "serviceAccount": {"namespace": "ns", "name": name}}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
            })
        };
        let account = |name: &str| User::authenticated(format!("system:serviceaccount:{name}"), &[]);
        check(&rule("*"), &account("ns:a"), "GET", "/version", true);
        check(&rule("*"), &account("nss:a"), "GET", "/version", false);
        check(&rule("a"), &account("ns:a"), "GET", "/version", true);
        check(&rule("a"), &account("ns:b"), "GET", "/version", false);
    }
}
