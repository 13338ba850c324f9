//! One case: what is asked, what is expected, and where our answer differs.

use cel::checker::TypedAst;
use cel::env::Env;
use cel::program::{Activation, Program};
use cel::source::Source;
use cel::value::Value;
use serde::Deserialize;
use serde_json::Value as Json;

use super::environment;
use super::proto::{self, field, repeated, word};

#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) file: String,
    section: String,
    name: String,
    pub(crate) expr: String,
    #[serde(default)]
    pub(crate) container: String,
    #[serde(default)]
    disable_check: String,
    #[serde(default)]
    check_only: String,
    #[serde(default)]
    type_env: Vec<Json>,
    #[serde(default)]
    bindings: Vec<Json>,
    value: Option<Json>,
    typed_result: Option<Json>,
    eval_error: Option<Json>,
}

/// Declarations of a case.
pub(crate) enum Declaration<'j> {
    /// A variable's type.
    Variable(&'j Json),
    /// One overload of a function.
    Overload(&'j Json),
}

impl Case {
    pub(crate) fn read(line: &str) -> Case {
        serde_json::from_str(line).unwrap()
    }

    /// Names the case.
    pub(crate) fn id(&self) -> String {
        format!("{}/{}/{}", self.file, self.section, self.name)
    }

    /// The declarations of the case, by name.
    pub(crate) fn declarations(&self) -> impl Iterator<Item = (&str, Declaration<'_>)> {
        self.type_env.iter().flat_map(|declaration| {
            let name = field(declaration, "name").map(word).unwrap();
            let variable = repeated(declaration, "ident").map(|it| Declaration::Variable(field(it, "type").unwrap()));
            let functions = repeated(declaration, "function").flat_map(|it| repeated(it, "overloads"));
            variable.chain(functions.map(Declaration::Overload)).map(move |declared| (name, declared))
        })
    }

    /// The first thing in which our answer differs, if there is one.
    pub(crate) fn difference(&self) -> Option<String> {
        let env = environment::of(self);
        // Texts of errors are hints, and an error may be found as early as possible.
        let fails = self.eval_error.is_some();
        let typed = match self.compile(&env) {
            Ok(typed) => typed,
            Err(_) if fails => return None,
            Err(error) => return Some(error),
        };
        if let Some(expected) = self.typed_result.as_ref().and_then(|result| field(result, "deduced_type")) {
            let (expected, ours) = (proto::type_of(expected), typed.result_type());
            if expected != *ours {
                return Some(format!("type: expected {expected}, ours is {ours}"));
            }
        }
        if self.check_only == "true" {
            return None;
        }
        let program = match Program::new(&typed) {
            Ok(program) => program,
            Err(_) if fails => return None,
            Err(error) => return Some(format!("no program: {error}")),
        };
        let input = Input::read(&self.bindings);
        match (program.eval(&input).result, fails) {
            (Err(_), true) => None,
            (Ok(ours), true) => Some(format!("expected an error, ours is {ours:?}")),
            (Err(error), false) => Some(format!("expected a value, ours is the error: {error}")),
            (Ok(ours), false) => {
                let expected = self.expected_value();
                (!is_same(&expected, &ours)).then(|| format!("value: expected {expected:?}, ours is {ours:?}"))
            }
        }
    }

    fn compile(&self, env: &Env) -> Result<TypedAst, String> {
        if self.disable_check == "true" {
            let ast = env.parse(&Source::new(&self.expr)).map_err(|issues| issues.to_string())?;
            return Ok(TypedAst::unchecked(env, ast));
        }
        env.compile(&self.expr).map_err(|issues| issues.to_string())
    }

    fn expected_value(&self) -> Value<'static> {
        let typed = self.typed_result.as_ref().and_then(|result| field(result, "result"));
        self.value.as_ref().or(typed).map_or(Value::Bool(true), proto::value)
    }
}

/// Whether two values are deeply equal and of one type; `NaN` is the same as `NaN`.
fn is_same(a: &Value<'_>, b: &Value<'_>) -> bool {
    match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Uint(a), Value::Uint(b)) => a == b,
        (Value::Double(a), Value::Double(b)) => a == b || (a.is_nan() && b.is_nan()),
        (Value::String(a), Value::String(b)) => a == b,
        (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a.name() == b.name(),
        (Value::List(a), Value::List(b)) => a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| is_same(&a, &b)),
        (Value::Map(a), Value::Map(b)) => {
            let same = |(key, value): &(Value<'_>, Value<'_>)| b.get(key).is_some_and(|other| is_same(value, &other));
            a.len() == b.len() && a.entries().iter().all(same)
        }
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => is_same(a, b),
        (Value::Optional(None), Value::Optional(None)) => true,
        _ => false,
    }
}

/// The variables that have a value.
struct Input<'c>(Vec<(&'c str, Value<'static>)>);

impl<'c> Input<'c> {
    fn read(bindings: &'c [Json]) -> Self {
        let variables = bindings.iter().map(|binding| {
            let known = field(binding, "value").and_then(|it| field(it, "value")).expect("a known value");
            (field(binding, "key").map(word).unwrap(), proto::value(known))
        });
        Input(variables.collect())
    }
}

impl Activation for Input<'_> {
    fn resolve(&self, name: &str) -> Option<Value<'_>> {
        self.0.iter().find(|(bound, _)| *bound == name).map(|(_, value)| value.borrowed())
    }
}
