//! Parsing of requests: path and query become a verb on a resource.
//!
//! Paths follow Kubernetes: `/api/v1/namespaces/{ns}/pods/{name}/{subresource}`, `/apis/{group}/{version}/…`,
//! and the old `/watch/` forms. The existence of the resource is checked later, after authorization.

use http::Method;
use percent_encoding::percent_decode_str;

use crate::wire::status::{Failure, Result};
use cache::field_selectors;

/// The parameters of a query.
#[derive(Debug, Clone, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query string.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(k, v)| (decode(k), decode(v))).collect(),
        )
    }

    /// The first value of a parameter, empty if it is missing.
    #[must_use]
    pub fn get(&self, key: &str) -> &str {
        self.0.iter().find(|(it, _)| it == key).map_or("", |(_, value)| value)
    }

    /// All values of a parameter.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(it, _)| it == key).map(|(_, value)| value.as_str())
    }

    /// All parameters with their values.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Whether a parameter is there.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(it, _)| it == key)
    }

    /// A boolean parameter: an unreadable value counts as true, as in Kubernetes' own conversion.
    #[must_use]
    pub fn flag(&self, key: &str) -> bool {
        self.has(key) && !matches!(self.get(key).to_lowercase().as_str(), "false" | "0")
    }

    /// A number, if it is given.
    ///
    /// # Errors
    /// 400 if it is none.
    pub fn number(&self, key: &str) -> Result<Option<i64>> {
        let text = self.get(key);
        if text.is_empty() {
            return Ok(None);
        }
        let wrong = |_| Failure::bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax"));
        text.parse().map(Some).map_err(wrong)
    }
}

/// Verb of a request, as in authorization and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Kubernetes'")]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    /// The name in rules.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }
}

/// A request for a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The verb; `None` if the method is not supported here.
    pub verb: Option<Verb>,
    /// The group, empty for core.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural name.
    pub resource: String,
    /// The namespace, empty at the cluster scope.
    pub namespace: String,
    /// The object, empty for the whole collection.
    pub name: String,
    /// The part of the object, empty for all of it.
    pub subresource: String,
    /// Fields, and the values to which a request for a collection is limited by its selector.
    pub fields: Vec<(String, String)>,
}

impl Target {
    /// The target of an authorization check that is not about the current request.
    #[must_use]
    pub fn of_check(group: &str, resource: &str, namespace: &str, name: &str) -> Self {
        Self {
            verb: None,
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: String::new(),
            fields: Vec::new(),
        }
    }

    /// The object for authorization: a list or watch of one name is about the object of that name.
    #[must_use]
    pub fn asked_name(&self) -> &str {
        if !self.name.is_empty() || !matches!(self.verb, Some(Verb::List | Verb::Watch)) {
            return &self.name;
        }
        let selected = self.fields.iter().find(|(field, _)| field == "metadata.name").map(|(_, value)| value.as_str());
        selected.filter(|name| api::names::path_segment(name).is_empty()).unwrap_or_default()
    }

    /// Whether a request for a collection is limited to one value of a field.
    #[must_use]
    pub fn is_limited_to(&self, field: &str, value: &str) -> bool {
        self.fields.iter().any(|(it, found)| it == field && found == value)
    }

    /// The part of the object as rules name it: of a request without what follows it in the path.
    #[must_use]
    pub fn first_subresource(&self) -> &str {
        match self.verb {
            Some(_) => self.subresource.split('/').next().unwrap_or_default(),
            None => &self.subresource,
        }
    }
}

/// Target of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// To a resource.
    Resource(Box<Target>),
    /// To something else.
    Other,
}

/// Reads method and path.
#[must_use]
pub fn route(method: &Method, path: &str, query: &Query) -> Route {
    // Kubernetes: an escaped slash divides, too.
    let path = path.strip_suffix('/').unwrap_or(path);
    let path = if path.contains('%') { percent_decode_str(path).decode_utf8_lossy() } else { path.into() };
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let (group, version, mut rest) = match parts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return Route::Other,
    };
    let mut old_watch = false;
    if let ["watch", more @ ..] = rest
        && !more.is_empty()
    {
        (old_watch, rest) = (true, more);
    }
    let (namespace, resource, name, subresource) = match rest {
        ["namespaces"] => ("", "namespaces", "", String::new()),
        ["namespaces", name] => (*name, "namespaces", *name, String::new()),
        ["namespaces", name, sub @ ("status" | "finalize")] => (*name, "namespaces", *name, (*sub).to_owned()),
        ["namespaces", namespace, resource] => (*namespace, *resource, "", String::new()),
        ["namespaces", namespace, resource, name, sub @ ..] => (*namespace, *resource, *name, sub.join("/")),
        [resource] => ("", *resource, "", String::new()),
        [resource, name, sub @ ..] => ("", *resource, *name, sub.join("/")),
        [] => return Route::Other,
    };
    let collection = name.is_empty();
    let verb = match *method {
        Method::GET if old_watch => Some(Verb::Watch),
        Method::GET if collection && query.flag("watch") => Some(Verb::Watch),
        Method::GET if collection => Some(Verb::List),
        Method::GET => Some(Verb::Get),
        Method::POST => Some(Verb::Create),
        Method::PUT => Some(Verb::Update),
        Method::PATCH => Some(Verb::Patch),
        Method::DELETE if collection => Some(Verb::DeleteCollection),
        Method::DELETE => Some(Verb::Delete),
        _ => None,
    };
    // Kubernetes: the old paths of watches are not limited by selectors.
    let is_collection = matches!(verb, Some(Verb::List | Verb::Watch | Verb::DeleteCollection)) && !old_watch;
    let fields = if is_collection { field_selectors::equalities(query.get("fieldSelector")) } else { Vec::new() };
    Route::Resource(Box::new(Target {
        verb,
        group: group.to_owned(),
        version: version.to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource,
        fields,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: Method, path: &str, expected: &str) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let text = match route(&method, path, &Query::parse(query)) {
            Route::Other => "other".to_owned(),
            Route::Resource(it) => format!(
                "{} {}|{}|{}|{}|{}|{}",
                it.verb.map_or("-", Verb::name),
                it.group,
                it.version,
                it.resource,
                it.namespace,
                it.name,
                it.subresource
            ),
        };
        assert_eq!(text, expected);
    }

    #[test]
    fn paths_become_verbs_on_resources() {
        check(Method::GET, "/api/v1/pods", "list |v1|pods|||");
        check(Method::GET, "/api/v1/namespaces/a/pods?watch=1", "watch |v1|pods|a||");
        check(Method::GET, "/api/v1/namespaces/a/pods/b?watch=1", "get |v1|pods|a|b|");
        check(Method::GET, "/api/v1/namespaces/a", "get |v1|namespaces|a|a|");
        check(Method::PUT, "/api/v1/namespaces/a/finalize", "update |v1|namespaces|a|a|finalize");
        check(Method::GET, "/api/v1/namespaces/status", "get |v1|namespaces|status|status|");
        check(Method::GET, "/api/v1/watch/namespaces/a/pods", "watch |v1|pods|a||");
        check(Method::DELETE, "/apis/apps/v1/namespaces/a/deployments/", "deletecollection apps|v1|deployments|a||");
        check(Method::GET, "/apis/apps/v1/namespaces/a/deployments/d/scale", "get apps|v1|deployments|a|d|scale");
        check(Method::OPTIONS, "/api/v1/nodes", "- |v1|nodes|||");
        check(Method::GET, "/apis/apps/v1", "other");
        check(Method::GET, "/healthz", "other");
    }

    #[track_caller]
    fn check_name(path: &str, expected: &str) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let Route::Resource(target) = route(&Method::GET, path, &Query::parse(query)) else { panic!("no resource") };
        assert_eq!(target.asked_name(), expected);
    }

    #[test]
    fn a_list_of_one_name_is_about_that_object() {
        check_name("/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Db", "b");
        check_name("/api/v1/pods?watch=1&fieldSelector=spec.nodeName=n,metadata.name==b", "b");
        check_name("/api/v1/pods?fieldSelector=metadata.name!=b", "");
        check_name("/api/v1/pods?fieldSelector=metadata.name=a/b", "");
        check_name("/api/v1/pods?fieldSelector=metadata.name=b,nonsense", "");
        check_name("/api/v1/watch/pods?fieldSelector=metadata.name=b", "");
        check_name("/api/v1/namespaces/a/pods/c?fieldSelector=metadata.name=b", "c");
    }

    #[test]
    fn flags_take_anything_but_false_as_true() {
        let query = Query::parse("watch=yes&a=0&b=false&c=&d=x%20y+z");
        assert!(query.flag("watch") && query.flag("c") && !query.flag("a") && !query.flag("b") && !query.flag("none"));
        assert_eq!(query.get("d"), "x y z");
    }
}
