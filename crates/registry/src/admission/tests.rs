//! Tests of matching and evaluation, with a cluster that lends fixed objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use api::json::{self, Value};
use api::labels::Selector;
use cel_kubernetes::environments::Dialect;
use cel_kubernetes::environments::admission::Compiler;
use cel_kubernetes::libraries::authorization::{Authorizer, Decision, Question, User};

use super::cluster::{MissingNamespace, ParamScope};
use super::evaluation::OUT_OF_TIME;
use super::mutating::Reinvocation;
use super::rules::{Constraints, Match};
use super::validating::Deadline;
use super::webhook::Filter;
use super::*;

fn document(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

struct Nobody;

impl Authorizer for Nobody {
    fn authorize(&self, user: &User, _: Question<'_>) -> Decision {
        Decision { allowed: user.name == "admin", ..Decision::default() }
    }
}

/// A cluster with one namespace, config maps as parameters, and merges that only set top-level fields.
#[derive(Default)]
struct Fake {
    params: Vec<Value>,
    /// Number of lookups by selector.
    selections: AtomicUsize,
}

impl Cluster for Fake {
    fn namespace(&self, name: &str) -> Result<Arc<Value>, MissingNamespace> {
        match name {
            "n" => Ok(Arc::new(document(r#"{"metadata":{"name":"n","labels":{"env":"dev"}}}"#))),
            "unknown" => Err(MissingNamespace::Unknown),
            _ => Err(MissingNamespace::NotFound),
        }
    }

    fn equivalents(&self, request: &Request) -> Arc<[(GroupVersionResource, GroupVersionKind)]> {
        let other = |version: &str| {
            let (mut resource, mut kind) = (request.resource.clone(), request.kind.clone());
            version.clone_into(&mut resource.version);
            version.clone_into(&mut kind.version);
            (resource, kind)
        };
        [other("v1"), other("v2")].into()
    }

    fn convert(&self, _: &Request, document: &Value, kind: &GroupVersionKind) -> Result<Value, String> {
        let mut converted = document.clone();
        converted.as_object_mut().unwrap().insert("apiVersion", kind.api_version());
        Ok(converted)
    }

    fn is_built_in(&self, _: &GroupVersionKind) -> bool {
        true
    }

    fn param_scope(&self, kind: &GroupVersionKind) -> Result<Option<ParamScope>, ParamError> {
        Ok((kind.kind == "ConfigMap").then_some(ParamScope { namespaced: true }))
    }

    fn param(&self, _: &GroupVersionKind, _: &str, name: &str) -> Result<Option<Arc<Value>>, ParamError> {
        let found = self.params.iter().find(|param| param.str_at(&["metadata", "name"]) == Some(name));
        Ok(found.cloned().map(Arc::new))
    }

    fn params(&self, _: &GroupVersionKind, _: &str, selector: &Selector) -> Result<Vec<Arc<Value>>, ParamError> {
        self.selections.fetch_add(1, Ordering::Relaxed);
        let labels = |param: &Value| param.object_at(&["metadata", "labels"]).cloned();
        let found = self.params.iter().filter(|param| selector.matches(&labels(param).unwrap_or_default()));
        Ok(found.cloned().map(Arc::new).collect())
    }

    fn authorizer(&self) -> Arc<dyn Authorizer> {
        Arc::new(Nobody)
    }

    fn apply(&self, _: &Request, _: &GroupVersionKind, object: &Value, patch: Value) -> Result<Value, PatchError> {
        let mut merged = object.clone();
        for (key, value) in patch.as_object().unwrap().iter() {
            merged.as_object_mut().unwrap().insert(key, value.clone());
        }
        Ok(merged)
    }

    fn patch(
        &self,
        _: &Request,
        _: &GroupVersionKind,
        _: &Value,
        operations: Vec<Value>,
    ) -> Result<Option<Value>, PatchError> {
        match operations.first().and_then(|it| it.str_at(&["op"])) {
            Some("test") => Ok(None),
            _ => Err(PatchError::Final(500, "broken".to_owned())),
        }
    }
}

fn request(namespace: &str) -> Request {
    Request {
        operation: Operation::Create,
        kind: GroupVersionKind::new("v1", "ConfigMap"),
        resource: GroupVersionResource {
            group: String::new(),
            version: "v1".to_owned(),
            resource: "configmaps".to_owned(),
        },
        subresource: String::new(),
        name: "x".to_owned(),
        namespace: namespace.to_owned(),
        user: Arc::new(User { name: "u".to_owned(), ..User::default() }),
        dry_run: false,
        options: Value::Null,
        object: Some(Arc::new(document(
            r#"{"apiVersion":"v1","metadata":{"name":"x","labels":{"a":"b"}},"data":{"a":"1"}}"#,
        ))),
        old: None,
    }
}

const RULES: &str = r#""matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"],"operations":["CREATE"]}]}"#;

fn compiler() -> Compiler {
    Compiler::new(&Dialect::KUBERNETES.language().unwrap())
}

const DEADLINE: Deadline<'static> = Deadline { now: &|| Duration::ZERO, end: Duration::MAX };

#[track_caller]
fn validate(spec: &str, binding: &str, cluster: &Fake) -> validating::Outcome {
    let policy = document(&format!(r#"{{"metadata":{{"name":"p"}},"spec":{{{spec},{RULES}}}}}"#));
    let binding = document(&format!(r#"{{"metadata":{{"name":"b"}},"spec":{{"policyName":"p",{binding}}}}}"#));
    let policies = vec![Arc::new(Policy::validating(&policy, &compiler()))];
    let catalog = Catalog::new(policies, vec![Arc::new(Binding::new(&binding))]);
    validating::evaluate_all(&catalog, &request("n"), cluster, DEADLINE)
}

#[track_caller]
fn denies(spec: &str, binding: &str, expected: &[&str]) {
    let outcome = validate(spec, binding, &Fake::default());
    let found: Vec<&str> = outcome.denials.iter().map(|denial| denial.message.as_str()).collect();
    assert_eq!(found, expected, "{spec}");
}

const DENY: &str = r#""validationActions":["Deny"]"#;

#[test]
fn failed_validations_deny_with_their_messages() {
    denies(r#""validations":[{"expression":"true"}]"#, DENY, &[]);
    denies(r#""validations":[{"expression":" false "}]"#, DENY, &["failed expression: false"]);
    denies(r#""validations":[{"expression":"false","message":"m"}]"#, DENY, &["m"]);
    let evaluated =
        r#""validations":[{"expression":"false","message":"m","messageExpression":"'got ' + object.data.a"}]"#;
    denies(evaluated, DENY, &["got 1"]);
    for unusable in ["' '", "'a\\\\nb'", "string(object.data.zz)", "lists.range(3000).map(x, string(x)).join(' ')"] {
        let spec =
            format!(r#""validations":[{{"expression":"false","message":"m","messageExpression":"{unusable}"}}]"#);
        denies(&spec, DENY, &["m"]);
    }
    denies(
        r#""validations":[{"expression":"namespaceObject.metadata.labels.env == 'prod'"}]"#,
        DENY,
        &["failed expression: namespaceObject.metadata.labels.env == 'prod'"],
    );
    denies(
        r#""validations":[{"expression":"authorizer.requestResource.check('get').allowed()","message":"no"}]"#,
        DENY,
        &["no"],
    );
}

#[test]
fn failures_follow_the_failure_policy() {
    let text = "expression 'object.data.zz == 1' resulted in error: no such key: zz";
    denies(r#""validations":[{"expression":"object.data.zz == 1"}]"#, DENY, &[text]);
    denies(r#""failurePolicy":"Ignore","validations":[{"expression":"object.data.zz == 1"}]"#, DENY, &[]);
    let warned = validate(
        r#""validations":[{"expression":"object.data.zz == 1"}]"#,
        r#""validationActions":["Warn"]"#,
        &Fake::default(),
    );
    assert_eq!(
        warned.warnings,
        [format!("Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': {text}")]
    );
    assert!(warned.denials.is_empty());
}

#[test]
fn conditions_skip_a_policy() {
    let spec = |conditions: &str| {
        format!(r#""matchConditions":[{conditions}],"validations":[{{"expression":"false","message":"m"}}]"#)
    };
    denies(&spec(r#"{"name":"c","expression":"false"}"#), DENY, &[]);
    denies(&spec(r#"{"name":"c","expression":"object.data.zz == ''"},{"name":"d","expression":"false"}"#), DENY, &[]);
    denies(
        &spec(r#"{"name":"c","expression":"object.data.zz == ''"},{"name":"d","expression":"object.data.yy == ''"}"#),
        DENY,
        &[
            "[expression 'object.data.zz == ''' resulted in error: no such key: zz, expression 'object.data.yy == ''' resulted in error: no such key: yy]",
        ],
    );
}

#[test]
fn budgets_end_a_policy() {
    let expensive = r#"{"expression":"lists.range(900).all(x, lists.range(900).all(y, x + y >= 0))"}"#;
    let spec = format!(r#""validations":[{}]"#, [expensive; 12].join(","));
    denies(
        &spec,
        DENY,
        &["validation failed due to running out of cost budget, no further validation rules will be run"],
    );
    let later = Deadline { now: &|| Duration::from_secs(2), end: Duration::from_secs(1) };
    let policy = document(&format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"validations":[{expensive}],{RULES}}}}}"#));
    let binding = document(r#"{"metadata":{"name":"b"},"spec":{"policyName":"p","validationActions":["Deny"]}}"#);
    let catalog =
        Catalog::new(vec![Arc::new(Policy::validating(&policy, &compiler()))], vec![Arc::new(Binding::new(&binding))]);
    let outcome = validating::evaluate_all(&catalog, &request("n"), &Fake::default(), later);
    assert!(outcome.denials[0].message.ends_with("operation interrupted"), "{:?}", outcome.denials);
}

/// A clock on which every reading takes a millisecond.
#[derive(Default)]
struct Ticks(AtomicU64);

impl Ticks {
    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Evaluates with a deadline after 100 readings.
    fn within_hundred<T>(&self, work: impl FnOnce(Deadline<'_>) -> T) -> T {
        let now = || Duration::from_millis(self.0.fetch_add(1, Ordering::Relaxed));
        work(Deadline { now: &now, end: Duration::from_millis(100) })
    }
}

fn bindings(count: usize, policy: impl Fn(usize) -> String, more: &str) -> Vec<Arc<Binding>> {
    let binding = |index: usize| {
        let policy = policy(index);
        document(&format!(r#"{{"metadata":{{"name":"b{index:04}"}},"spec":{{"policyName":"{policy}",{more}}}}}"#))
    };
    (0..count).map(|index| Arc::new(Binding::new(&binding(index)))).collect()
}

/// Policies with these fields, named `p0000` and so on.
fn documents(count: usize, spec: &str) -> Vec<Value> {
    let text = |index| format!(r#"{{"metadata":{{"name":"p{index:04}"}},"spec":{{{spec},{RULES}}}}}"#);
    (0..count).map(|index| document(&text(index))).collect()
}

#[test]
fn many_policies_without_loops_share_the_deadline() {
    let compiler = compiler();
    let names = |index| format!("p{index:04}");
    for (failure_policy, denials) in [("Fail", 1), ("Ignore", 0)] {
        let spec = format!(r#""failurePolicy":"{failure_policy}","validations":[{{"expression":"true"}}]"#);
        let policies = documents(1000, &spec).iter().map(|it| Arc::new(Policy::validating(it, &compiler))).collect();
        let catalog = Catalog::new(policies, bindings(1000, names, DENY));
        let ticks = Ticks::default();
        let outcome = ticks
            .within_hundred(|deadline| validating::evaluate_all(&catalog, &request("n"), &Fake::default(), deadline));
        let messages: Vec<&str> = outcome.denials.iter().map(|denial| denial.message.as_str()).collect();
        assert_eq!(messages, vec![OUT_OF_TIME; denials]);
        assert!(ticks.count() < 110, "{failure_policy}: {} readings", ticks.count());
    }
    let mutation = APPLY.replace("EXPRESSION", "Object{n: 1}");
    let spec = format!(r#""reinvocationPolicy":"Never","mutations":[{mutation}]"#);
    let policies = documents(100, &spec).iter().map(|it| Arc::new(Policy::mutating(it, &compiler))).collect();
    let catalog = Catalog::new(policies, bindings(100, names, DENY));
    let outcome = Ticks::default().within_hundred(|deadline| {
        mutating::evaluate_all(&catalog, &request("n"), &Fake::default(), deadline, &mut Reinvocation::default())
    });
    let messages: Vec<&str> = outcome.denials.iter().map(|denial| denial.message.as_str()).collect();
    assert_eq!((messages, outcome.checks.len() < 100), (vec![OUT_OF_TIME], true));
}

#[test]
fn bindings_and_parameters_share_the_deadline() {
    let spec =
        r#""paramKind":{"apiVersion":"v1","kind":"ConfigMap"},"validations":[{"expression":"params.data.a != ''"}]"#;
    let policies: Vec<_> = documents(1, spec).iter().map(|it| Arc::new(Policy::validating(it, &compiler()))).collect();
    let param = document(r#"{"metadata":{"name":"p","labels":{"p":"y"}},"data":{"a":"1"}}"#);
    let reference =
        format!(r#"{DENY},"paramRef":{{"selector":{{"matchLabels":{{"p":"y"}}}},"parameterNotFoundAction":"Deny"}}"#);
    // Many bindings with one parameter each, and one binding with many.
    for (count, params) in [(500, 1), (1, 500)] {
        let catalog = Catalog::new(policies.clone(), bindings(count, |_| "p0000".to_owned(), &reference));
        let cluster = Fake { params: vec![param.clone(); params], ..Fake::default() };
        let evaluate = |deadline: Deadline<'_>| validating::evaluate_all(&catalog, &request("n"), &cluster, deadline);
        assert_eq!(evaluate(DEADLINE).denials, []);
        // One lookup for all bindings.
        assert_eq!(cluster.selections.load(Ordering::Relaxed), 1);
        let ticks = Ticks::default();
        let outcome = ticks.within_hundred(evaluate);
        let messages: Vec<&str> = outcome.denials.iter().map(|denial| denial.message.as_str()).collect();
        assert_eq!(messages, [OUT_OF_TIME]);
        assert!(ticks.count() < 110, "{} readings", ticks.count());
    }
}

#[test]
fn conditions_of_webhooks_end_with_the_deadline() {
    let over = Deadline { now: &|| Duration::from_secs(2), end: Duration::from_secs(1) };
    for (failure_policy, expected) in [("Fail", Err(OUT_OF_TIME.to_owned())), ("Ignore", Ok(false))] {
        let webhook = format!(
            r#"{{"name":"h","failurePolicy":"{failure_policy}","matchConditions":[{{"name":"c","expression":"true"}}]}}"#
        );
        let filter = Filter::new(&document(&webhook), &compiler());
        let meets = |deadline: Deadline<'_>| {
            filter.meets_conditions(&request("n"), &Fake::default(), &Match::Requested, deadline).0
        };
        assert_eq!(meets(DEADLINE), Ok(true));
        assert_eq!(meets(over), expected);
    }
}

#[test]
fn parameters_are_found_by_name_and_selector() {
    let spec = r#""paramKind":{"apiVersion":"v1","kind":"ConfigMap"},"validations":[{"expression":"params != null && object.data.a == params.data.a","messageExpression":"'want ' + params.data.a"}]"#;
    let param = |name: &str, a: &str| {
        document(&format!(r#"{{"metadata":{{"name":"{name}","labels":{{"p":"y"}}}},"data":{{"a":"{a}"}}}}"#))
    };
    let params = vec![param("p1", "1"), param("p2", "2"), param("p3", "3")];
    let cluster = Fake { params, ..Fake::default() };
    let check = |reference: &str, expected: &[&str]| {
        let outcome = validate(spec, &format!(r#"{DENY},"paramRef":{reference}"#), &cluster);
        let found: Vec<&str> = outcome.denials.iter().map(|denial| denial.message.as_str()).collect();
        assert_eq!(found, expected, "{reference}");
    };
    check(r#"{"name":"p1","parameterNotFoundAction":"Deny"}"#, &[]);
    check(r#"{"name":"p2","parameterNotFoundAction":"Deny"}"#, &["want 2"]);
    check(r#"{"selector":{"matchLabels":{"p":"y"}},"parameterNotFoundAction":"Deny"}"#, &["want 2", "want 3"]);
    check(r#"{"name":"ghost","parameterNotFoundAction":"Allow"}"#, &[]);
    let missing = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    check(r#"{"name":"ghost","parameterNotFoundAction":"Deny"}"#, &[missing]);
    let unknown = spec.replace("ConfigMap", "Nope");
    denies(
        &unknown,
        DENY,
        &["failed to configure policy: failed to find resource referenced by paramKind: '/v1, Kind=Nope'"],
    );
}

#[test]
fn audit_annotations_and_failures_are_collected() {
    let spec = r#""validations":[{"expression":"false","message":"m"}],"auditAnnotations":[{"key":"k","valueExpression":"'v ' + object.metadata.name"},{"key":"n","valueExpression":"null"}]"#;
    let outcome = validate(spec, r#""validationActions":["Audit"]"#, &Fake::default());
    assert_eq!(outcome.annotations, [("p/k".to_owned(), "v x".to_owned())]);
    let failure = json::to_string(&Value::Array(outcome.failures));
    assert_eq!(
        failure,
        r#"[{"message":"m","policy":"p","binding":"b","expressionIndex":0,"validationActions":["Audit"]}]"#
    );
    assert!(outcome.denials.is_empty());
}

#[track_caller]
fn matches(constraints: &str, change: impl FnOnce(&mut Request), expected: bool) {
    let constraints = Constraints::new(&document(constraints));
    let mut request = request("n");
    change(&mut request);
    assert_eq!(constraints.matches(&request, &Fake::default()).unwrap().is_some(), expected);
}

#[test]
fn constraints_select_requests() {
    let rule = |more: &str| {
        format!(
            r#"{{"resourceRules":[{{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"],"operations":["CREATE"]{more}}}]}}"#
        )
    };
    matches(&rule(""), |_| {}, true);
    matches(&rule(""), |it| it.operation = Operation::Update, false);
    matches(&rule(""), |it| it.subresource = "status".to_owned(), false);
    matches(&rule(r#","resourceNames":["y"]"#), |_| {}, false);
    matches(&rule(r#","scope":"Cluster""#), |_| {}, false);
    matches(&rule(r#","scope":"Namespaced""#), |_| {}, true);
    matches(
        r#"{"namespaceSelector":{"matchLabels":{"env":"dev"}},"objectSelector":{"matchLabels":{"a":"b"}}}"#,
        |_| {},
        true,
    );
    matches(r#"{"namespaceSelector":{"matchLabels":{"env":"prod"}}}"#, |_| {}, false);
    // Selectors of namespaces do not exempt what is outside of all of them.
    matches(r#"{"namespaceSelector":{"matchLabels":{"env":"prod"}}}"#, |it| it.namespace.clear(), true);
    matches(r#"{"objectSelector":{"matchLabels":{"a":"c"}}}"#, |_| {}, false);
    // A label that is taken off does not help.
    let old = Arc::new(document(r#"{"metadata":{"labels":{"a":"c"}}}"#));
    matches(r#"{"objectSelector":{"matchLabels":{"a":"c"}}}"#, |it| it.old = Some(old), true);
    matches(
        r#"{"excludeResourceRules":[{"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"operations":["*"]}]}"#,
        |_| {},
        false,
    );
    let v2 = rule("").replace("\"v1\"", "\"v2\"");
    matches(&v2, |_| {}, false);
    matches(&v2.replacen('{', r#"{"matchPolicy":"Equivalent","#, 1), |_| {}, true);
}

#[track_caller]
fn mutate(spec: &str, reinvocation: &mut Reinvocation, object: Option<Value>) -> mutating::Outcome {
    let policy = document(&format!(r#"{{"metadata":{{"name":"p"}},"spec":{{{spec},{RULES}}}}}"#));
    let binding = document(r#"{"metadata":{"name":"b"},"spec":{"policyName":"p"}}"#);
    let catalog =
        Catalog::new(vec![Arc::new(Policy::mutating(&policy, &compiler()))], vec![Arc::new(Binding::new(&binding))]);
    let mut request = request("n");
    if let Some(object) = object {
        request.object = Some(Arc::new(object));
    }
    mutating::evaluate_all(&catalog, &request, &Fake::default(), DEADLINE, reinvocation)
}

const APPLY: &str = r#"{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"EXPRESSION"}}"#;

#[test]
fn mutations_see_each_other_and_failures_keep_the_rest() {
    let spec = |policy: &str, expressions: &[&str]| {
        let all: Vec<String> = expressions.iter().map(|it| APPLY.replace("EXPRESSION", it)).collect();
        format!(r#""failurePolicy":"{policy}","reinvocationPolicy":"Never","mutations":[{}]"#, all.join(","))
    };
    let n = |outcome: &mutating::Outcome| outcome.object.as_ref().and_then(|it| it.get("n").cloned());
    let both = mutate(&spec("Fail", &["Object{n: 1}", "Object{n: object.n + 1}"]), &mut Reinvocation::default(), None);
    assert_eq!(n(&both), Some(Value::Int(2)));
    let kept = mutate(&spec("Ignore", &["Object{n: 1}", "Object{n: object.zz}"]), &mut Reinvocation::default(), None);
    assert_eq!((n(&kept), kept.denials.len()), (Some(Value::Int(1)), 0));
    let refused = mutate(&spec("Fail", &["Object{n: object.zz}"]), &mut Reinvocation::default(), None);
    assert_eq!(
        refused.denials[0].text(),
        "policy 'p' with binding 'b' denied request: expression 'Object{n: object.zz}' resulted in error: no such key: zz"
    );
    let patch = |operation: &str| {
        format!(
            r#""reinvocationPolicy":"Never","failurePolicy":"Ignore","mutations":[{{"patchType":"JSONPatch","jsonPatch":{{"expression":"[JSONPatch{{op: '{operation}', path: '/a'}}]"}}}}]"#
        )
    };
    assert_eq!(mutate(&patch("test"), &mut Reinvocation::default(), None).error, None);
    assert_eq!(mutate(&patch("add"), &mut Reinvocation::default(), None).error, Some((500, "broken".to_owned())));
}

#[test]
fn policies_are_reinvoked_if_needed() {
    let mutation = APPLY.replace("EXPRESSION", "Object{n: has(object.n) ? object.n + 1 : 1}");
    for (policy, expected) in [("Never", None), ("IfNeeded", Some(Value::Int(2)))] {
        let spec = format!(r#""reinvocationPolicy":"{policy}","mutations":[{mutation}]"#);
        let mut reinvocation = Reinvocation::default();
        let first = mutate(&spec, &mut reinvocation, None);
        assert!(reinvocation.is_needed);
        reinvocation.is_second = true;
        let second = mutate(&spec, &mut reinvocation, first.object);
        assert_eq!(second.object.and_then(|it| it.get("n").cloned()), expected, "{policy}");
    }
}

#[test]
fn catalog_finds_policies_by_resource() {
    let policy = |name: &str, resource: &str| {
        let text = format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"validations":[{{"expression":"true"}}],{}}}}}"#,
            RULES.replace("configmaps", resource)
        );
        Arc::new(Policy::validating(&document(&text), &compiler()))
    };
    let binding = |policy: &str| {
        Arc::new(Binding::new(&document(&format!(
            r#"{{"metadata":{{"name":"b-{policy}"}},"spec":{{"policyName":"{policy}"}}}}"#
        ))))
    };
    let policies = vec![
        policy("c", "configmaps"),
        policy("a", "*"),
        policy("b", "pods"),
        policy("d", "configmaps/status"),
        policy("unbound", "*"),
    ];
    let catalog = Catalog::new(policies, ["a", "b", "c", "d"].map(binding).into());
    let names: Vec<&str> = catalog.candidates(&request("n")).map(|hook| &*hook.policy.name).collect();
    assert_eq!((names, catalog.len()), (vec!["a", "c", "d"], 4));
    assert!(!catalog.may_match("apps", "deployments", Operation::Delete));
    assert!(catalog.may_match("apps", "deployments", Operation::Create));
    // Rules are found by their own operation: a policy about deletions of pods has no place among those about new ones.
    let mixed = r#"{"metadata":{"name":"m"},"spec":{"matchConstraints":{"resourceRules":[
        {"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"],"operations":["DELETE"]},
        {"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"],"operations":["CREATE","UPDATE"]}]}}}"#;
    let mixed = Arc::new(Policy::validating(&document(mixed), &compiler()));
    let catalog = Catalog::new(vec![policy("c", "configmaps"), mixed], vec![binding("c"), binding("m")]);
    for (resource, operation, expected) in [
        ("pods", Operation::Delete, &["m"][..]),
        ("pods", Operation::Create, &[]),
        ("configmaps", Operation::Create, &["c", "m"]),
        ("configmaps", Operation::Update, &["m"]),
        ("configmaps", Operation::Delete, &[]),
        ("configmaps", Operation::Connect, &[]),
    ] {
        let mut asked = request("n");
        resource.clone_into(&mut asked.resource.resource);
        asked.operation = operation;
        let names: Vec<&str> = catalog.candidates(&asked).map(|hook| &*hook.policy.name).collect();
        assert_eq!(names, expected, "{operation:?} {resource}");
        assert_eq!(catalog.may_match("", resource, operation), !expected.is_empty());
    }
}
