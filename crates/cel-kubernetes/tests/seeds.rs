//! The expressions of the implemented enhancement proposals compile within the limits of their place, and
//! evaluate as the proposals state. The cases are in `tests/cases/seeds.yaml`.

use api::json::Value as Json;
use cel_kubernetes::compile::CompiledExpression;
use cel_kubernetes::environments::Dialect;
use cel_kubernetes::places::{InputError, Place, read_schema};
use cel_kubernetes::recorded::typed_json::encode;
use cel_kubernetes::schema::TypedSchema;

#[test]
fn proposal_expressions_evaluate_as_documented() {
    let (documents, error) = api::yaml::parse_documents(include_str!("cases/seeds.yaml"));
    assert_eq!(error, None);
    let cases = documents[0].value.as_array().unwrap();
    assert!(cases.len() > 20);
    let wrong: Vec<String> = cases.iter().flat_map(check).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the differences from the proposal.
fn check(case: &Json) -> Vec<String> {
    let text = |field: &str| case.str_at(&[field]);
    let story = text("story").unwrap();
    let place = Place::find(text("environment").unwrap()).unwrap();
    let schema = case.get("schema").map(|schema| read_schema(schema).unwrap());
    let environment = place.environment(Dialect::CELPLANE, schema.as_ref()).unwrap();
    let compiled = environment.compile(text("expression").unwrap());
    match (compiled, text("compile_error")) {
        (Ok(compiled), None) => {
            let runs = case.get("runs").and_then(Json::as_array).unwrap();
            runs.iter().filter_map(|it| run(it, place, schema.as_ref(), &compiled, story)).collect()
        }
        (Err(error), Some(expected)) if error.to_string().contains(expected) => Vec::new(),
        (Err(error), _) => vec![format!("{story}: {error}")],
        (Ok(_), Some(expected)) => vec![format!("{story}: compiles, expected {expected}")],
    }
}

fn run(
    run: &Json,
    place: Place,
    schema: Option<&TypedSchema>,
    compiled: &CompiledExpression,
    story: &str,
) -> Option<String> {
    let input = place.input(run.get("input").cloned(), schema.cloned(), &no_variables).unwrap();
    let ours = input.with(|input| match compiled.eval(input).result {
        Ok(value) => encode(&value).to_string(),
        Err(error) => format!("error: {error}"),
    });
    let expected = match (run.str_at(&["value"]), run.str_at(&["error"])) {
        (Some(value), None) => value_of(value),
        (None, Some(error)) => format!("error: {error}"),
        _ => panic!("{story}: a run has a value or an error"),
    };
    (ours != expected).then(|| format!("{story}: {run}\n    expected {expected}, ours is {ours}"))
}

fn no_variables(name: &str, _: &Json) -> Result<cel::value::Value<'static>, InputError> {
    Err(InputError::new(format!("`{name}` is a variable of the base environment")))
}

/// The value of an expression without variables.
fn value_of(expression: &str) -> String {
    let compiled = Place::Base.environment(Dialect::CELPLANE, None).unwrap().compile(expression).unwrap();
    encode(&compiled.eval(&cel::program::EmptyActivation).result.unwrap()).to_string()
}
