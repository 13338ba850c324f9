//! A printer column both ways: as an expression and as a path, on the same object.

use crate::engine::{Batch, batch};
use api::json;
use api::json_path::{JsonPath, print_results};
use cel::program::{Limits, ListSink};
use cel::value::Value;
use cel_kubernetes::compile::{CompiledExpression, Environment};
use cel_kubernetes::environments::Dialect;
use cel_kubernetes::environments::printer_column::{self, Object};
use cel_kubernetes::places::read_schema;
use cel_kubernetes::schema::TypedSchema;

/// The column as an expression.
pub const EXPRESSION: &str = r#"self.spec.servers.map(s, s.hosts.filter(h, h == "prod.example.com"))"#;

/// The column as a path.
pub const PATH: &str = r#".spec.servers[*].hosts[?(@ == "prod.example.com")]"#;

const SCHEMA: &str = r#"{"type": "object", "properties": {"spec": {"type": "object", "properties": {"servers": {
    "type": "array", "items": {"type": "object", "properties": {"hosts": {"type": "array", "items": {"type": "string"}}}}}}}}}"#;

const OBJECT: &str = r#"{"apiVersion": "example.com/v1", "kind": "Gateway", "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"servers": [{"hosts": ["prod.example.com", "www.example.com"]}, {"hosts": ["test.example.com", "prod.example.com"]}]}}"#;

/// Prepared state for printing a column.
struct PreparedColumn {
    schema: TypedSchema,
    environment: Environment,
    object: json::Value,
}

fn ready() -> Option<PreparedColumn> {
    let schema = read_schema(&json::parse(SCHEMA.as_bytes()).ok()?).ok()?;
    let environment = printer_column::environment(Dialect::KUBERNETES, &schema).ok()?;
    Some(PreparedColumn { schema, environment, object: json::parse(OBJECT.as_bytes()).ok()? })
}

/// One kind of work, done both ways: the expression's first, then the path's.
#[derive(Debug)]
pub struct Work {
    /// Name in the table.
    pub name: &'static str,
    /// With the expression.
    pub expression: fn() -> Option<Batch>,
    /// With the path.
    pub path: fn() -> Option<Batch>,
    /// Go's times for the expression and for the path in nanoseconds, recorded in another run.
    pub recorded: Option<(f64, f64)>,
}

/// All work, in the order of the table.
pub const ALL: [Work; 5] = [
    Work { name: "environment", expression: build_environment, path: || None, recorded: None },
    Work { name: "compile", expression: compile_expression, path: compile_path, recorded: None },
    Work { name: "find", expression: find_expression, path: find_path, recorded: None },
    Work {
        name: "find and print",
        expression: print_expression,
        path: print_path,
        recorded: Some((14_100.0, 3_000.0)),
    },
    Work {
        name: "all of it",
        expression: everything_expression,
        path: everything_path,
        recorded: Some((575_000.0, 18_100.0)),
    },
];

/// From the schema's types to what expressions may refer to: once per version of a definition.
fn build_environment() -> Option<Batch> {
    let schema = ready()?.schema;
    let language = Dialect::KUBERNETES.language().ok()?;
    Some(batch(move || printer_column::environment_in(&language, &schema)))
}

fn compile_expression() -> Option<Batch> {
    let environment = ready()?.environment;
    Some(batch(move || environment.compile(EXPRESSION)))
}

fn compile_path() -> Option<Batch> {
    Some(batch(|| JsonPath::parse_column(PATH)))
}

fn find_expression() -> Option<Batch> {
    let PreparedColumn { schema, environment, object } = ready()?;
    let compiled = environment.compile(EXPRESSION).ok()?;
    Some(batch(move || compiled.eval(&Object { schema: &schema, document: &object }).result.is_ok()))
}

fn find_path() -> Option<Batch> {
    let object = ready()?.object;
    let path = JsonPath::parse_column(PATH).ok()?;
    Some(batch(move || path.find(&object).is_ok()))
}

fn print_expression() -> Option<Batch> {
    let PreparedColumn { schema, environment, object } = ready()?;
    let compiled = environment.compile(EXPRESSION).ok()?;
    let mut text = String::new();
    Some(batch(move || {
        text.clear();
        print_expression_to(&mut text, &compiled, &Object { schema: &schema, document: &object });
        text.len()
    }))
}

/// As the server prints: while it evaluates, so that no list is made.
fn print_expression_to(text: &mut String, compiled: &CompiledExpression, input: &Object<'_>) {
    let mut printer = Printer { text, is_behind_element: false };
    let evaluation = compiled.eval_list(input, Limits::cost(printer_column::LIMITS.runtime_cost), &mut printer);
    if let Ok(Some(value)) = evaluation.result {
        value.append_to(text);
    }
}

/// Prints a list as the value would be printed.
struct Printer<'t> {
    text: &'t mut String,
    is_behind_element: bool,
}

impl Printer<'_> {
    fn separate(&mut self) {
        if self.is_behind_element {
            self.text.push_str(", ");
        }
    }
}

impl ListSink for Printer<'_> {
    fn begin(&mut self) {
        self.separate();
        self.is_behind_element = false;
        self.text.push('[');
    }

    fn element(&mut self, value: &Value<'_>) {
        self.separate();
        self.is_behind_element = true;
        match value {
            Value::String(text) => self.text.push_str(text),
            other => other.append_to(self.text),
        }
    }

    fn end(&mut self) {
        self.is_behind_element = true;
        self.text.push(']');
    }
}

fn print_path() -> Option<Batch> {
    let object = ready()?.object;
    let path = JsonPath::parse_column(PATH).ok()?;
    let mut text = String::new();
    Some(batch(move || {
        text.clear();
        print_path_to(&mut text, &path, &object);
        text.len()
    }))
}

fn print_path_to(text: &mut String, path: &JsonPath, object: &json::Value) {
    for results in path.find(object).unwrap_or_default() {
        print_results(text, &results);
    }
}

fn everything_expression() -> Option<Batch> {
    let PreparedColumn { schema, environment, object } = ready()?;
    Some(batch(move || {
        let compiled = environment.compile(EXPRESSION).ok()?;
        let mut text = String::new();
        print_expression_to(&mut text, &compiled, &Object { schema: &schema, document: &object });
        Some(text)
    }))
}

fn everything_path() -> Option<Batch> {
    let object = ready()?.object;
    Some(batch(move || {
        let mut text = String::new();
        print_path_to(&mut text, &JsonPath::parse_column(PATH).ok()?, &object);
        Some(text)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_the_same_hosts() {
        let PreparedColumn { schema, environment, object } = ready().unwrap();
        let compiled = environment.compile(EXPRESSION).unwrap();
        let input = Object { schema: &schema, document: &object };
        let value = compiled.eval(&input).result.unwrap();
        assert_eq!(value.to_string(), "[[prod.example.com], [prod.example.com]]");
        let mut text = String::new();
        print_expression_to(&mut text, &compiled, &input);
        assert_eq!(text, value.to_string());
        text.clear();
        print_path_to(&mut text, &JsonPath::parse_column(PATH).unwrap(), &object);
        assert_eq!(text, "prod.example.com prod.example.com");
    }

    #[test]
    fn all_work_can_be_repeated() {
        for work in ALL {
            (work.expression)().unwrap()(2);
            if let Some(mut path) = (work.path)() {
                path(2);
            }
        }
    }
}
