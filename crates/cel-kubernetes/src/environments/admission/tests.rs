//! Tests of the environments of admission policies.

use std::sync::Mutex;

use super::*;
use crate::environments::Dialect;
use crate::libraries::authorization::{
    Authorizer, Decision, Question, ResourceCheck, User, authorizer_value, request_resource_value,
};

fn compiler() -> Compiler {
    Compiler::new(&Dialect::KUBERNETES.language().unwrap())
}

fn document(text: &str) -> json::Value {
    json::parse(text.as_bytes()).unwrap()
}

const SCOPE: Scope = Scope { params: true, authorizer: true, patch_types: true };

#[track_caller]
fn rejects(expression: &str, yields: ResultKind, scope: Scope, wanted: &str) {
    let error = compiler().compile(expression, yields, scope).unwrap_err().to_string();
    assert!(error.starts_with(wanted), "{expression}: {error}");
}

#[test]
fn results_must_have_the_wanted_type() {
    rejects("1", ResultKind::Bool, SCOPE, "must evaluate to bool but got int");
    rejects("[true]", ResultKind::Bool, SCOPE, "must evaluate to bool but got list(bool)");
    rejects("object.x", ResultKind::String, SCOPE, "must evaluate to string but got dyn");
    rejects("1", ResultKind::StringOrNull, SCOPE, "must evaluate to one of [string null_type] but got int");
    rejects("[Object{}]", ResultKind::Object, SCOPE, "must evaluate to Object but got list(Object)");
    rejects("[]", ResultKind::JsonPatch, SCOPE, "must evaluate to list(JSONPatch) but got list(dyn)");
    rejects("Object.spec{}", ResultKind::Object, SCOPE, "must evaluate to Object but got Object.spec");
}

#[test]
fn scopes_limit_the_variables() {
    let none = Scope::default();
    rejects(
        "params.x",
        ResultKind::Bool,
        none,
        "compilation failed: ERROR: <input>:1:1: undeclared reference to 'params'",
    );
    rejects("variables.x", ResultKind::Bool, SCOPE, "compilation failed: ERROR: <input>:1:1: undeclared reference");
    rejects(
        "Object{}",
        ResultKind::Anything,
        none,
        "compilation failed: ERROR: <input>:1:7: undeclared reference to 'Object'",
    );
    rejects("authorizer.path('/')", ResultKind::Anything, none, "compilation failed: ERROR: <input>:1:1: undeclared");
    rejects(
        "[JSONPatch{op: 'add', path: 1}]",
        ResultKind::JsonPatch,
        SCOPE,
        "compilation failed: ERROR: <input>:1:27: expected type of field 'path' is 'string' but provided type is 'int'",
    );
}

/// The value or error of an expression, as text.
#[track_caller]
fn eval(variables: &[(&str, &str)], expression: &str) -> String {
    let compiler = compiler();
    let mut policy = compiler.policy(true);
    let variables: Vec<Variable> = variables
        .iter()
        .map(|(name, expression)| Variable { name: (*name).into(), program: policy.add_variable(name, expression) })
        .collect();
    let program = policy.compile(expression, ResultKind::Anything, true, true).unwrap();
    let object = document(r#"{"metadata":{"name":"x"},"data":{"a":"1"}}"#);
    let request = document(r#"{"operation":"CREATE","userInfo":{"username":"u"}}"#);
    let documents = Documents { object: Some(&object), request: Some(&request), ..Documents::default() };
    let input = Input::new(documents, &variables);
    let mut budget = POLICY_COST_MAX;
    match input.eval(&program, &mut budget) {
        Ok(value) => value.to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn variables_are_evaluated_when_read() {
    let chain = [("a", "object.data.a"), ("b", "variables.a + variables.a")];
    assert_eq!(eval(&chain, "variables.b"), "11");
    let failing = [("v", "object.data.zz")];
    assert_eq!(eval(&failing, "true"), "true");
    assert_eq!(eval(&failing, "variables.v == 1"), "composited variable \"v\" fails to evaluate: no such key: zz");
    assert_eq!(eval(&failing, "variables.v == 1 || true"), "true");
    let broken = [("v", "object.")];
    assert!(eval(&broken, "variables.v").starts_with("composited variable \"v\" fails to compile: compilation failed"));
    let twice = [("a", "1"), ("a", "variables.a")];
    assert!(eval(&twice, "variables.a").ends_with("composited variable \"a\" refers to itself"));
}

#[test]
fn variables_that_double_end() {
    let chain: Vec<(String, String)> = (0..40)
        .map(|index| match index {
            0 => ("v0".to_owned(), "[1, 1]".to_owned()),
            _ => (format!("v{index}"), format!("[variables.v{before}, variables.v{before}]", before = index - 1)),
        })
        .collect();
    let chain: Vec<(&str, &str)> = chain.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    assert_eq!(eval(&chain, "variables.v9 == variables.v9"), "true");
    let refused = eval(&chain, "variables.v39 == variables.v39");
    assert!(refused.ends_with("fails to evaluate: operation cancelled: value too large"), "{refused}");
}

#[test]
fn absent_documents_are_null() {
    assert_eq!(eval(&[], "oldObject == null && params == null && namespaceObject == null"), "true");
    assert_eq!(eval(&[], "params.data"), "no such key: data");
    assert_eq!(eval(&[], "request.operation + request.userInfo.username"), "CREATEu");
    assert_eq!(eval(&[], "has(request.subResource)"), "false");
}

#[test]
fn budgets_end_a_set_of_expressions() {
    let compiler = compiler();
    let program = compiler
        .compile("lists.range(3000).all(x, lists.range(3000).all(y, x + y >= 0))", ResultKind::Bool, SCOPE)
        .unwrap();
    let input = Input::new(Documents::default(), &[]);
    let mut budget = 1_500_000;
    let error = input.eval(&program, &mut budget).unwrap_err();
    assert_eq!(error.to_string(), "operation cancelled: actual cost limit exceeded");
    assert!(budget < 500_001, "{budget}");
    assert_eq!(input.eval(&program, &mut budget).unwrap_err(), EvaluationError::OutOfBudget);
}

#[track_caller]
fn patched(expression: &str, yields: ResultKind) -> String {
    let compiler = compiler();
    let program = compiler.compile(expression, yields, SCOPE).unwrap();
    let object = document(r#"{"metadata":{"labels":{"a":"b"}},"data":{"a":"1"}}"#);
    let input = Input::new(Documents { object: Some(&object), ..Documents::default() }, &[]);
    let value = input.eval(&program, &mut POLICY_COST_MAX.clone()).unwrap();
    let result = match yields {
        ResultKind::Object => applied_object(&value).map(|object| json::to_string(&object)),
        _ => patch_operations(&value).map(|operations| json::to_string(&json::Value::Array(operations))),
    };
    result.unwrap_or_else(|why| why)
}

#[test]
fn objects_and_patches_become_documents() {
    let object = "Object{metadata: Object.metadata{labels: object.metadata.labels}, spec: Object.spec{n: 1, ?m: optional.none()}}";
    assert_eq!(patched(object, ResultKind::Object), r#"{"metadata":{"labels":{"a":"b"}},"spec":{"n":1}}"#);
    assert_eq!(
        patched("Object{metadata: Object.spec{}}", ResultKind::Object),
        "type mismatch: unexpected type name \"Object.spec\", expected \"Object.metadata\", \
         which matches field name path from root Object type"
    );
    assert_eq!(patched("Object{list: [Object.list{a: 'x'}]}", ResultKind::Object), r#"{"list":[{"a":"x"}]}"#);
    let patch = "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b~c'), value: 2.0}] + \
                 object.data.map(k, JSONPatch{op: 'copy', from: '/a', path: '/' + k})";
    assert_eq!(
        patched(patch, ResultKind::JsonPatch),
        r#"[{"op":"add","path":"/metadata/labels/a~1b~0c","value":2},{"op":"copy","path":"/a","from":"/a"}]"#
    );
}

/// Records the checks and allows those of one user.
#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl Authorizer for Recorder {
    fn authorize(&self, user: &User, question: Question<'_>) -> Decision {
        let shown = match question {
            Question::Path { path, verb } => format!("{} {verb} {path}", user.name),
            Question::Resource { check, verb } => {
                format!(
                    "{} {verb} {}/{}/{}/{}/{}",
                    user.name, check.group, check.resource, check.subresource, check.namespace, check.name
                )
            }
        };
        self.0.lock().unwrap().push(shown);
        Decision { allowed: user.name == "u", reason: "why".to_owned(), error: None }
    }
}

#[track_caller]
fn authorize(expression: &str, expected: &str, asked: &str) {
    let recorder = Arc::new(Recorder::default());
    let user = Arc::new(User { name: "u".to_owned(), ..User::default() });
    let check = ResourceCheck { resource: "pods".to_owned(), namespace: "n".to_owned(), ..ResourceCheck::default() };
    let authorizer =
        (authorizer_value(recorder.clone(), user.clone()), request_resource_value(recorder.clone(), user, check));
    let program = compiler().compile(expression, ResultKind::Anything, SCOPE).unwrap();
    let input = Input::new(Documents { authorizer: Some(authorizer), ..Documents::default() }, &[]);
    let found = match input.eval(&program, &mut POLICY_COST_MAX.clone()) {
        Ok(value) => value.to_string(),
        Err(error) => error.to_string(),
    };
    assert_eq!((found.as_str(), recorder.0.lock().unwrap().join("; ").as_str()), (expected, asked), "{expression}");
}

#[test]
fn authorization_is_asked_step_by_step() {
    authorize(
        "authorizer.group('g').resource('r').subresource('s').namespace('n').name('m').check('get').allowed()",
        "true",
        "u get g/r/s/n/m",
    );
    authorize("authorizer.requestResource.check('delete').reason()", "why", "u delete /pods//n/");
    authorize("authorizer.path('/healthz').check('get').errored()", "false", "u get /healthz");
    authorize("authorizer.path(' ').check('get').allowed()", "path must not be empty", "");
    authorize("authorizer.group('').resource('').check('get').allowed()", "resource must not be empty", "");
    authorize(
        "authorizer.serviceAccount('n', 'a').group('').resource('x').check('list').allowed()",
        "false",
        "system:serviceaccount:n:a list /x///",
    );
    authorize(
        "authorizer.serviceAccount('n', 'A_').path('/').check('get').allowed()",
        "Invalid service account name",
        "",
    );
}
