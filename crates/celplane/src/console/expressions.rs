//! Expressions of the playground: one expression at one place, its value and what every part of it comes to.
//!
//! Everything is bounded by the place's own limits: the length of the text, the cost of one evaluation.

mod completion;
mod highlight;
mod parts;

use ::console::Failure;
use api::json::{self, Value};
use api::yaml;
use cel::cost::Cost;
use cel::program::Limits;
use cel::source::Source;
use cel_kubernetes::compile::{CompileError, CompiledExpression, Environment, ResultRule, not_a_bool};
use cel_kubernetes::environments::Dialect;
use cel_kubernetes::environments::admission::{self, Documents, EXPRESSION_COST_MAX, ResultKind, Scope};
use cel_kubernetes::places::{self, InputError, Place};
use cel_kubernetes::schema::TypedSchema;

pub(super) use self::completion::complete;
pub(super) use self::highlight::match_nodes;
use crate::commands::cel::schema;
use crate::output::unsigned;

/// The name of the place that sees an admission request.
const ADMISSION: &str = "admission";
/// Expressions of any place are at most this long here.
const TEXT_BYTES_MAX: usize = 10 * 1024;

/// A place of the playground.
enum Setting {
    /// A place with a typed environment.
    Place(Place, Option<TypedSchema>, Box<Environment>),
    /// A validation of an admission policy.
    Admission,
}

/// Reads the place, and the schema that types its objects.
fn setting(question: &Value) -> Result<Setting, Failure> {
    let name = question.text("place");
    if name == ADMISSION {
        return Ok(Setting::Admission);
    }
    let place = Place::find(name).filter(|place| *place != Place::Base);
    let place = place.ok_or_else(|| Failure::invalid(format!("`{name}` is not a place that accepts an expression")))?;
    let schema = if place.needs_schema() { Some(typed_schema(question)?) } else { None };
    let environment = place.environment(Dialect::CELPLANE, schema.as_ref()).map_err(|error| invalid(&error))?;
    Ok(Setting::Place(place, schema, Box::new(environment)))
}

fn typed_schema(question: &Value) -> Result<TypedSchema, Failure> {
    let text = question.text("schema");
    let document = document(text).map_err(|message| Failure::invalid(format!("schema: {message}")))?;
    let document = document
        .ok_or_else(|| Failure::invalid("schema: a CustomResourceDefinition or an OpenAPI schema is expected"))?;
    let found = schema::find(&document, None).map_err(|error| Failure::invalid(format!("schema: {error:#}")))?;
    places::read_schema(found).map_err(|error| invalid(&error))
}

fn invalid(error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::invalid(telemetry::logs::chain(error).to_string())
}

/// The first document of a YAML text; none if it is empty.
fn document(text: &str) -> Result<Option<Value>, String> {
    let (documents, error) = yaml::parse_manifests(text);
    if let Some(error) = error {
        let line = text.get(..error.offset).map_or(1, |before| before.matches('\n').count().saturating_add(1));
        return Err(format!("line {line}: {}", error.message));
    }
    Ok(documents.into_iter().next().map(|document| document.value))
}

/// Compiles an expression and, with an input, evaluates it. Errors of the expression are part of the answer.
pub(super) fn evaluate(question: &Value) -> Result<Value, Failure> {
    let text = question.text("expression");
    if text.len() > TEXT_BYTES_MAX {
        return Err(Failure::invalid(format!("an expression has at most {TEXT_BYTES_MAX} bytes")));
    }
    let input = document(question.text("input"));
    match setting(question)? {
        Setting::Admission => evaluate_admission(text, input),
        Setting::Place(place, schema, environment) => evaluate_place(text, place, schema, *environment, input),
    }
}

fn evaluate_place(
    text: &str,
    place: Place,
    schema: Option<TypedSchema>,
    environment: Environment,
    input: Result<Option<Value>, String>,
) -> Result<Value, Failure> {
    let limits = environment.limits;
    let rule = environment.result;
    let unlimited = environment.without_estimate_limit();
    let compiled = match unlimited.compile(text) {
        Ok(compiled) => compiled,
        Err(error) => return Ok(api::json!({"errors": (issues(&error))})),
    };
    let mut answer = json::Object::new();
    answer.insert("type", compiled.result_type().to_string());
    answer.insert("estimated", range(compiled.cost()));
    if let Some(limit) = limits.estimated_cost {
        answer.insert("limit", unsigned(limit));
        if compiled.cost().max > limit {
            let message = format!("the estimated cost of {} exceeds the limit of {limit}", compiled.cost().max);
            answer.insert("errors", Value::Array(vec![api::json!({"line": (-1), "column": (-1), "message": message})]));
        }
    }
    let read = input.and_then(|it| {
        it.map(|it| place.input(Some(it), schema, &|_, _| Err(InputError::new("no variables"))))
            .transpose()
            .map_err(|error| telemetry::logs::chain(&error).to_string())
    });
    let typed = compiled.typed();
    match read {
        Ok(Some(input)) => input.with(|input| {
            let (evaluation, trace) = compiled.trace(input);
            outcome(&mut answer, &evaluation, rule);
            answer.insert("parts", parts::of(typed.ast(), Some(typed), Some(&unlimited), &trace));
            answer.insert("omitted", unsigned(u64::try_from(trace.omitted()).unwrap_or(u64::MAX)));
        }),
        Ok(None) => {
            answer.insert("parts", parts::of(typed.ast(), Some(typed), Some(&unlimited), &Default::default()));
        }
        Err(message) => {
            answer.insert("inputError", message);
            answer.insert("parts", parts::of(typed.ast(), Some(typed), Some(&unlimited), &Default::default()));
        }
    }
    Ok(Value::Object(answer))
}

/// The value, or why there is none, and the cost.
fn outcome(answer: &mut json::Object, evaluation: &cel::program::Evaluation<'_>, rule: ResultRule) {
    answer.insert("cost", unsigned(evaluation.cost));
    match &evaluation.result {
        Ok(value) => match (rule == ResultRule::BoolOrUnknown).then(|| not_a_bool(value)).flatten() {
            Some(error) => answer.insert("error", error),
            None => answer.insert("value", parts::text_of(value, true)),
        },
        Err(error) => answer.insert("error", error.to_string()),
    };
}

fn evaluate_admission(text: &str, input: Result<Option<Value>, String>) -> Result<Value, Failure> {
    let language = Dialect::CELPLANE.language().map_err(|error| invalid(&error))?;
    let compiler = admission::Compiler::new(&language);
    let scope = Scope { params: true, authorizer: false, patch_types: false };
    let program = match compiler.compile(text, ResultKind::Bool, scope) {
        Ok(program) => program,
        Err(error) => return Ok(api::json!({"errors": (Value::Array(pictured(&error.to_string())))})),
    };
    // The same text and macros give the same tree, which has the places of its parts.
    let base = Place::Base.environment(Dialect::CELPLANE, None).map_err(|error| invalid(&error))?;
    let Ok(tree) = base.env.parse(&Source::new(text)) else {
        return Err(Failure::invalid("the expression does not parse"));
    };
    let mut answer = json::Object::new();
    answer.insert("type", "bool");
    answer.insert("limit", unsigned(EXPRESSION_COST_MAX));
    match input {
        Ok(Some(document)) => {
            let is_named = ["object", "oldObject", "request", "params", "namespaceObject"]
                .iter()
                .any(|it| document.get(it).is_some());
            let documents = Documents {
                object: if is_named { document.get("object") } else { Some(&document) },
                old_object: document.get("oldObject").filter(|_| is_named),
                params: document.get("params").filter(|_| is_named),
                request: document.get("request").filter(|_| is_named),
                namespace: document.get("namespaceObject").filter(|_| is_named),
                unknown_namespace: None,
                authorizer: None,
                interrupt: None,
            };
            let input = admission::Input::new(documents, &[]);
            let (evaluation, trace) = program.trace(&input, Limits::cost(EXPRESSION_COST_MAX));
            outcome(&mut answer, &evaluation, ResultRule::Bool);
            answer.insert("parts", parts::of(&tree, None, None, &trace));
        }
        Ok(None) => {
            answer.insert("parts", parts::of(&tree, None, None, &Default::default()));
        }
        Err(message) => {
            answer.insert("inputError", message);
            answer.insert("parts", parts::of(&tree, None, None, &Default::default()));
        }
    }
    Ok(Value::Object(answer))
}

/// The errors of a text with pictures: `ERROR: <input>:1:14: message`.
fn pictured(text: &str) -> Vec<Value> {
    let mut errors = Vec::new();
    for line in text.lines() {
        let Some((_, rest)) = line.split_once("ERROR: <input>:") else { continue };
        let mut pieces = rest.splitn(3, ':');
        let mut number = || pieces.next().and_then(|it| it.parse::<i64>().ok()).unwrap_or(-1);
        let (line, column) = (number(), number().saturating_sub(1));
        let message = pieces.next().unwrap_or_default().trim().to_owned();
        errors.push(api::json!({"line": line, "column": column, "message": message}));
    }
    if errors.is_empty() {
        errors.push(api::json!({"line": (-1), "column": (-1), "message": text}));
    }
    errors
}

fn issues(error: &CompileError) -> Value {
    let CompileError::Issues(issues) = error else {
        return Value::Array(vec![api::json!({"line": (-1), "column": (-1), "message": (error.to_string())})]);
    };
    let all = issues.sorted().into_iter().map(|issue| {
        let (line, column) = (i64::from(issue.location.line), i64::from(issue.location.column));
        api::json!({"line": line, "column": column, "message": (issue.message.as_str())})
    });
    Value::Array(all.collect())
}

fn range(cost: Cost) -> Value {
    api::json!({"min": (unsigned(cost.min)), "max": (unsigned(cost.max))})
}

/// The compiled expression of a place, for tools that evaluate it often.
fn compile(environment: &Environment, text: &str) -> Result<CompiledExpression, Value> {
    environment.compile(text).map_err(|error| issues(&error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[track_caller]
    fn ask(question: Value) -> Value {
        evaluate(&question).unwrap()
    }

    #[track_caller]
    fn part<'a>(answer: &'a Value, expression: &str, text: &str) -> &'a Value {
        let parts = answer.get("parts").and_then(Value::as_array).unwrap();
        let range = |it: &Value, name: &str| usize::try_from(it.get(name).and_then(Value::as_i64).unwrap()).unwrap();
        parts.iter().find(|it| expression.get(range(it, "start")..range(it, "end")) == Some(text)).unwrap()
    }

    #[test]
    fn parts_have_values_types_and_costs() {
        let expression = "taint.key == 'gpu' && int(taint.value) >= 5";
        let answer =
            ask(api::json!({"place": "toleration", "expression": expression, "input": "{key: gpu, value: '6'}"}));
        assert_eq!(answer.str_at(&["value"]), Some("true"));
        assert_eq!(answer.str_at(&["type"]), Some("bool"));
        let value = part(&answer, expression, "int(taint.value)");
        assert_eq!((value.str_at(&["value"]), value.str_at(&["type"])), (Some("6"), Some("int")));
        assert!(value.at(&["estimated", "max"]).is_some() && value.get("cost").is_some());
    }

    #[test]
    fn errors_have_places() {
        let answer = ask(api::json!({"place": "toleration", "expression": "taint.kee == 1", "input": ""}));
        let error = answer.get("errors").and_then(Value::as_array).unwrap().first().unwrap().clone();
        assert_eq!(
            (error.get("line").and_then(Value::as_i64), error.get("column").and_then(Value::as_i64)),
            (Some(1), Some(5))
        );
        let answer = ask(api::json!({"place": "admission", "expression": "object.a ==", "input": ""}));
        let error = answer.get("errors").and_then(Value::as_array).unwrap().first().unwrap().clone();
        assert_eq!(error.get("line").and_then(Value::as_i64), Some(1));
    }

    #[test]
    fn admission_sees_all_its_documents() {
        let input = "object: {spec: {replicas: 5}}\noldObject: {spec: {replicas: 3}}\nparams: {max: 4}\n";
        let expression = "object.spec.replicas <= params.max || object.spec.replicas == oldObject.spec.replicas";
        let answer = ask(api::json!({"place": "admission", "expression": expression, "input": input}));
        assert_eq!(answer.str_at(&["value"]), Some("false"), "{answer:?}");
        assert_eq!(part(&answer, expression, "params.max").str_at(&["value"]), Some("4"));
    }

    #[test]
    fn column_is_typed_by_its_schema() {
        let schema = "type: object\nproperties: {spec: {type: object, properties: {hosts: {type: array, items: {type: string}}}}}";
        let question = |expression: &str| api::json!({"place": "column", "expression": expression, "schema": schema, "input": "spec: {hosts: [a, b]}"});
        assert_eq!(ask(question("self.spec.hosts.map(h, h + '!')")).str_at(&["value"]), Some(r#"["a!", "b!"]"#));
        assert!(ask(question("self.spec.other")).get("errors").is_some());
    }

    #[test]
    fn bad_questions_are_reported() {
        let message = |question: Value| evaluate(&question).unwrap_err().message;
        assert!(message(api::json!({"place": "nowhere"})).contains("`nowhere`"));
        assert!(message(api::json!({"place": "rule", "schema": ": ["})).starts_with("schema: "));
        assert!(message(api::json!({"place": "toleration", "expression": ("a".repeat(20_000))})).contains("10240"));
        let answer = ask(api::json!({"place": "toleration", "expression": "true", "input": "a: [\n"}));
        assert!(answer.str_at(&["inputError"]).unwrap().starts_with("line "), "{answer:?}");
    }
}
