//! Audit policy: the requests to log, and the amount of detail. Kubernetes' `Policy` of `audit.k8s.io/v1`.
//!
//! The first rule that fits a request decides. Follows Kubernetes' `apiserver/pkg/audit/policy`; a file that cannot be read
//! as a whole is refused.

use api::json::{Object, Value};
use api::yaml;

use crate::identity::User;
use crate::wire::request::Target;

/// Amount of detail in an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// No event.
    None,
    /// Metadata only: user, action, time and result.
    Metadata,
    /// Metadata and the request's object.
    Request,
    /// Metadata, the request's and the response's object.
    RequestResponse,
}

impl Level {
    /// The name in policies and events.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Level::None, Level::Metadata, Level::Request, Level::RequestResponse].into_iter().find(|it| it.name() == text)
    }
}

/// Stage at which an event is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Kubernetes'")]
pub enum Stage {
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
    Panic,
}

impl Stage {
    /// The name in policies and events.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Stage::RequestReceived => "RequestReceived",
            Stage::ResponseStarted => "ResponseStarted",
            Stage::ResponseComplete => "ResponseComplete",
            Stage::Panic => "Panic",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Stage::RequestReceived, Stage::ResponseStarted, Stage::ResponseComplete, Stage::Panic]
            .into_iter()
            .find(|it| it.name() == text)
    }
}

/// Decision of a policy about one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Amount of detail.
    pub level: Level,
    /// Stages without an event.
    pub omit_stages: Vec<Stage>,
    /// Whether `managedFields` are left out of objects.
    pub omit_managed_fields: bool,
}

/// Rules in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
    omit_stages: Vec<Stage>,
    omit_managed_fields: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    level: Level,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<Resources>,
    namespaces: Vec<String>,
    paths: Vec<String>,
    omit_stages: Vec<Stage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Resources {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
}

/// A reason to reject a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PolicyError(String);

type PolicyResult<T> = Result<T, PolicyError>;

impl Policy {
    /// Reads a policy, as YAML or JSON.
    ///
    /// # Errors
    /// [`PolicyError`] for anything that is not part of a policy.
    pub fn parse(text: &str) -> PolicyResult<Self> {
        let (documents, error) = yaml::parse_manifests(text);
        if let Some(error) = error {
            return Err(PolicyError(error.to_string()));
        }
        let [document] = documents.as_slice() else {
            return Err(PolicyError(format!("{} documents where one policy is expected", documents.len())));
        };
        let mut fields = Fields::of(&document.value, "policy")?;
        let (api_version, kind) = (fields.text("apiVersion")?, fields.text("kind")?);
        if (api_version.as_str(), kind.as_str()) != ("audit.k8s.io/v1", "Policy") {
            return Err(PolicyError(format!("`{api_version}` `{kind}` is not an audit.k8s.io/v1 Policy")));
        }
        fields.skip("metadata");
        let policy = Self {
            rules: fields.each("rules", Rule::parse)?,
            omit_stages: fields.stages()?,
            omit_managed_fields: fields.flag("omitManagedFields")?.unwrap_or_default(),
        };
        fields.end()?;
        if policy.rules.is_empty() {
            return Err(PolicyError("loaded illegal policy with 0 rules".to_owned()));
        }
        Ok(policy)
    }

    /// Returns the decision about a request. `target` is `None` for non-resource paths.
    #[must_use]
    pub fn decide(&self, user: &User, verb: &str, path: &str, target: Option<&Target>) -> Decision {
        match self.rules.iter().find(|rule| rule.fits(user, verb, path, target)) {
            Some(rule) => Decision {
                level: rule.level,
                omit_stages: self.omit_stages.iter().chain(&rule.omit_stages).copied().collect(),
                omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
            },
            None => Decision { level: Level::None, omit_stages: Vec::new(), omit_managed_fields: false },
        }
    }
}

impl Rule {
    fn parse(value: &Value, at: &str) -> PolicyResult<Self> {
        let mut fields = Fields::of(value, at)?;
        let level = fields.text("level")?;
        let rule = Self {
            level: Level::parse(&level).ok_or_else(|| PolicyError(format!("{at}.level: `{level}` is not a level")))?,
            users: fields.texts("users")?,
            user_groups: fields.texts("userGroups")?,
            verbs: fields.texts("verbs")?,
            resources: fields.each("resources", Resources::parse)?,
            namespaces: fields.texts("namespaces")?,
            paths: fields.texts("nonResourceURLs")?,
            omit_stages: fields.stages()?,
            omit_managed_fields: fields.flag("omitManagedFields")?,
        };
        fields.end()?;
        let is_about_resources = !rule.resources.is_empty() || !rule.namespaces.is_empty();
        if !rule.paths.is_empty() && is_about_resources {
            return Err(PolicyError(format!(
                "{at}.nonResourceURLs: rules cannot apply to both regular resources and non-resource URLs"
            )));
        }
        for path in rule.paths.iter().filter(|path| *path != "*") {
            let inner = path.strip_suffix('*').unwrap_or(path);
            if !path.starts_with('/') || inner.contains('*') {
                return Err(PolicyError(format!(
                    "{at}.nonResourceURLs: `{path}` must begin with / and have * only at its end"
                )));
            }
        }
        Ok(rule)
    }

    fn fits(&self, user: &User, verb: &str, path: &str, target: Option<&Target>) -> bool {
        let among = |list: &[String], text: &str| list.iter().any(|it| it == text);
        if !self.users.is_empty() && !among(&self.users, &user.name)
            || !self.user_groups.is_empty() && !user.groups.iter().any(|group| among(&self.user_groups, group))
            || !self.verbs.is_empty() && !among(&self.verbs, verb)
        {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return target.is_some_and(|target| {
                (self.namespaces.is_empty() || among(&self.namespaces, &target.namespace))
                    && (self.resources.is_empty() || self.resources.iter().any(|it| it.fit(target)))
            });
        }
        if !self.paths.is_empty() {
            return target.is_none() && self.paths.iter().any(|it| path_fits(it, path));
        }
        true
    }
}

fn path_fits(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => path.starts_with(start),
        None => pattern == path,
    }
}

impl Resources {
    fn parse(value: &Value, at: &str) -> PolicyResult<Self> {
        let mut fields = Fields::of(value, at)?;
        let parsed = Self {
            group: fields.text("group")?,
            resources: fields.texts("resources")?,
            names: fields.texts("resourceNames")?,
        };
        fields.end()?;
        if !parsed.names.is_empty() && parsed.resources.is_empty() {
            return Err(PolicyError(format!("{at}.resourceNames: using resourceNames requires at least one resource")));
        }
        Ok(parsed)
    }

    fn fit(&self, target: &Target) -> bool {
        if self.group != target.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.names.is_empty() && !self.names.contains(&target.name) {
            return false;
        }
        let (resource, subresource) = (target.resource.as_str(), target.subresource.as_str());
        self.resources.iter().any(|pattern| match pattern.split_once('/') {
            None if subresource.is_empty() => pattern == "*" || pattern == resource,
            None => pattern == "*",
            Some(("*", wanted)) => !subresource.is_empty() && wanted == subresource,
            Some((of, "*")) => of == resource,
            Some((of, wanted)) => of == resource && wanted == subresource,
        })
    }
}

/// The fields of an object, of which none may be left over.
struct Fields<'a> {
    at: &'a str,
    rest: Vec<(&'a str, &'a Value)>,
}

impl<'a> Fields<'a> {
    fn of(value: &'a Value, at: &'a str) -> PolicyResult<Self> {
        let fields: &Object = value.as_object().ok_or_else(|| PolicyError(format!("{at} is not an object")))?;
        Ok(Self { at, rest: fields.iter().filter(|(_, value)| !value.is_null()).collect() })
    }

    fn take(&mut self, name: &str) -> Option<&'a Value> {
        let position = self.rest.iter().position(|(it, _)| *it == name)?;
        Some(self.rest.swap_remove(position).1)
    }

    fn skip(&mut self, name: &str) {
        self.take(name);
    }

    fn wrong(&self, name: &str, what: &str) -> PolicyError {
        PolicyError(format!("{}.{name} is not {what}", self.at))
    }

    fn text(&mut self, name: &str) -> PolicyResult<String> {
        match self.take(name) {
            Some(value) => Ok(value.as_str().ok_or_else(|| self.wrong(name, "a text"))?.to_owned()),
            None => Ok(String::new()),
        }
    }

    fn flag(&mut self, name: &str) -> PolicyResult<Option<bool>> {
        self.take(name).map(|value| value.as_bool().ok_or_else(|| self.wrong(name, "true or false"))).transpose()
    }

    fn each<T>(&mut self, name: &str, parse: impl Fn(&Value, &str) -> PolicyResult<T>) -> PolicyResult<Vec<T>> {
        let Some(value) = self.take(name) else { return Ok(Vec::new()) };
        let items = value.as_array().ok_or_else(|| self.wrong(name, "a list"))?;
        let at = |index: usize| format!("{}.{name}[{index}]", self.at);
        items.iter().enumerate().map(|(index, item)| parse(item, &at(index))).collect()
    }

    fn texts(&mut self, name: &str) -> PolicyResult<Vec<String>> {
        self.each(name, |item, at| {
            let text = item.as_str().ok_or_else(|| PolicyError(format!("{at} is not a text")))?;
            Ok(text.to_owned())
        })
    }

    fn stages(&mut self) -> PolicyResult<Vec<Stage>> {
        self.each("omitStages", |item, at| {
            let stage = item.as_str().and_then(Stage::parse);
            stage.ok_or_else(|| PolicyError(format!("{at} is not a stage")))
        })
    }

    fn end(self) -> PolicyResult<()> {
        match self.rest.first() {
            Some((name, _)) => Err(PolicyError(format!("{}.{name} is not part of a policy", self.at))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::request::{Query, Route, route};

    const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [\"system:kube-proxy\"]
  verbs: [watch]
  resources: [{group: \"\", resources: [endpoints, services]}]
- level: None
  userGroups: [\"system:authenticated\"]
  nonResourceURLs: [\"/api*\", /version]
- level: Request
  resources: [{group: \"\", resources: [configmaps], resourceNames: [a]}]
  namespaces: [kube-system]
- level: Metadata
  resources: [{group: \"\", resources: [\"secrets\", \"*/status\", \"pods/*\"]}]
- level: RequestResponse
  resources: [{group: \"\"}]
  omitManagedFields: true
  omitStages: [ResponseStarted]
- level: Metadata
";

    #[track_caller]
    fn check(user: &User, method: &str, path: &str, level: Level) {
        let policy = Policy::parse(POLICY).unwrap();
        let method = http::Method::from_bytes(method.as_bytes()).unwrap();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let target = match route(&method, path, &Query::parse(query)) {
            Route::Resource(target) => Some(target),
            Route::Other => None,
        };
        let verb = crate::server::verb_name(&method, target.as_deref());
        assert_eq!(policy.decide(user, &verb, path, target.as_deref()).level, level, "{path}");
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let proxy = User::authenticated("system:kube-proxy", &[]);
        let alice = User::authenticated("alice", &[]);
        check(&proxy, "GET", "/api/v1/services?watch=true", Level::None);
        check(&proxy, "GET", "/api/v1/services", Level::RequestResponse);
        check(&alice, "GET", "/api/v1/services?watch=true", Level::RequestResponse);
        check(&alice, "GET", "/api", Level::None);
        check(&alice, "GET", "/version", Level::None);
        check(&alice, "GET", "/version/x", Level::Metadata);
        check(&User::anonymous(), "GET", "/version", Level::Metadata);
        check(&alice, "PUT", "/api/v1/namespaces/kube-system/configmaps/a", Level::Request);
        check(&alice, "PUT", "/api/v1/namespaces/kube-system/configmaps/b", Level::RequestResponse);
        check(&alice, "PUT", "/api/v1/namespaces/default/configmaps/a", Level::RequestResponse);
        check(&alice, "GET", "/api/v1/namespaces/default/secrets/a", Level::Metadata);
        check(&alice, "PUT", "/api/v1/nodes/a/status", Level::Metadata);
        check(&alice, "POST", "/api/v1/namespaces/default/pods/a/binding", Level::Metadata);
        check(&alice, "GET", "/api/v1/namespaces/default/pods/a", Level::Metadata);
        check(&alice, "GET", "/apis/apps/v1/deployments", Level::Metadata);
    }

    #[test]
    fn a_rule_adds_to_the_stages_and_overrides_the_rest() {
        let policy = Policy::parse(POLICY).unwrap();
        let Route::Resource(target) = route(&http::Method::GET, "/api/v1/nodes/a", &Query::default()) else { panic!() };
        let decision = policy.decide(&User::anonymous(), "get", "/api/v1/nodes/a", Some(&target));
        assert_eq!(decision.omit_stages, [Stage::RequestReceived, Stage::ResponseStarted]);
        assert!(decision.omit_managed_fields);
        let only = Policy::parse("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: None, verbs: [x]}]}");
        assert_eq!(only.unwrap().decide(&User::anonymous(), "get", "/", None).level, Level::None);
    }

    #[test]
    fn invalid_policy_is_rejected() {
        let refused = |text: &str| Policy::parse(text).unwrap_err().to_string();
        let policy = |rest: &str| format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rest}");
        assert_eq!(refused("a: b"), "`` `` is not an audit.k8s.io/v1 Policy");
        assert_eq!(refused(""), "0 documents where one policy is expected");
        assert_eq!(refused(&policy("rules: []")), "loaded illegal policy with 0 rules");
        assert_eq!(
            refused(&policy("rules: [{level: Everything}]")),
            "policy.rules[0].level: `Everything` is not a level"
        );
        assert_eq!(
            refused(&policy("rules: [{level: None, user: [a]}]")),
            "policy.rules[0].user is not part of a policy"
        );
        assert_eq!(
            refused(&policy("rules: [{level: None, resources: [{resourceNames: [a]}]}]")),
            "policy.rules[0].resources[0].resourceNames: using resourceNames requires at least one resource"
        );
        assert_eq!(
            refused(&policy("rules: [{level: None, omitStages: [Later]}]")),
            "policy.rules[0].omitStages[0] is not a stage"
        );
        assert_eq!(
            refused(&policy("rules: [{level: None, namespaces: [a], nonResourceURLs: [/a]}]")),
            "policy.rules[0].nonResourceURLs: rules cannot apply to both regular resources and non-resource URLs"
        );
        assert_eq!(
            refused(&policy("rules: [{level: None, nonResourceURLs: [\"/a*b\"]}]")),
            "policy.rules[0].nonResourceURLs: `/a*b` must begin with / and have * only at its end"
        );
    }
}
