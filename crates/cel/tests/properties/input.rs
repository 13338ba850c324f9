//! Random input: values for the variables, some of which are not known, or hold something that is not.

use std::collections::BTreeMap;
use std::sync::Arc;

use cel::cost::{PathStep, Size, SizeHints};
use cel::program::Activation;
use cel::types::Type;
use cel::value::{Key, List, Map, Value};

/// The variables and their types.
pub(crate) const VARIABLES: [(&str, &str); 11] = [
    ("x", "int"),
    ("y", "int"),
    ("d", "double"),
    ("s", "string"),
    ("t", "string"),
    ("b", "bool"),
    ("l", "list(int)"),
    ("ls", "list(string)"),
    ("m", "map(string, int)"),
    ("ms", "map(string, string)"),
    ("a", "dyn"),
];

const ELEMENTS_MAX: u64 = 4;
const TEXTS: [&str; 6] = ["", "a", "k", "é,a", "hello", "aaaaaaaaaaaa"];
const TEXT_LENGTH_MAX: u64 = 12;
const NUMBERS: [i64; 8] = [0, 1, 2, 3, -1, 17, i64::MAX, i64::MIN];
const DOUBLES: [f64; 5] = [0.0, 1.0, -2.5, f64::INFINITY, f64::NAN];

/// Decisions, read from bytes one by one; zeros once they are used up.
pub(crate) struct Choices<'d>(&'d [u8]);

impl<'d> Choices<'d> {
    pub(crate) fn new(bytes: &'d [u8]) -> Self {
        Choices(bytes)
    }

    pub(crate) fn below(&mut self, count: usize) -> usize {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        usize::from(*first) % count
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Values for all variables.
#[derive(Debug)]
pub(crate) struct Input(Vec<Value<'static>>);

impl Activation for Input {
    fn resolve(&self, name: &str) -> Option<Value<'_>> {
        let index = VARIABLES.iter().position(|(variable, _)| *variable == name)?;
        self.0.get(index).cloned()
    }
}

impl Input {
    pub(crate) fn known(choices: &mut Choices<'_>) -> Input {
        Input(VARIABLES.iter().map(|(_, of)| value(choices, of, false)).collect())
    }

    /// Some variables are not known at all, others have elements or values that are not.
    pub(crate) fn partial(choices: &mut Choices<'_>) -> Input {
        let variable = |(name, of): &(&str, &str)| match choices.below(3) {
            0 => value(choices, of, false),
            1 => value(choices, of, true),
            _ => Value::unknown(name.len() as u32),
        };
        Input(VARIABLES.iter().map(variable).collect())
    }

    /// The same with some value in every place that is not known.
    pub(crate) fn completed(&self, choices: &mut Choices<'_>) -> Input {
        let complete = |(held, (_, of)): (&Value<'static>, &(&str, &str))| completed(choices, held, of);
        Input(self.0.iter().zip(&VARIABLES).map(complete).collect())
    }
}

fn element_of(of: &str) -> &'static str {
    match of {
        "list(int)" | "map(string, int)" => "int",
        "list(string)" | "map(string, string)" => "string",
        _ => "dyn",
    }
}

fn value(choices: &mut Choices<'_>, of: &str, holes: bool) -> Value<'static> {
    match of {
        "int" => Value::Int(choices.pick(&NUMBERS)),
        "double" => Value::Double(choices.pick(&DOUBLES)),
        "string" => Value::str(choices.pick(&TEXTS)),
        "bool" => Value::Bool(choices.below(2) == 1),
        "list(int)" | "list(string)" | "list(dyn)" => {
            let count = choices.below(1 + usize::try_from(ELEMENTS_MAX).unwrap());
            Value::list((0..count).map(|_| element(choices, of, holes)).collect())
        }
        "map(string, int)" | "map(string, string)" => {
            let entries = (0..choices.below(4)).map(|_| {
                let key = Value::str(choices.pick(&TEXTS));
                (Key::new(key).unwrap(), element(choices, of, holes))
            });
            map(entries.collect())
        }
        _ => {
            let of = choices.pick(&["int", "string", "bool", "double", "list(int)", "map(string, int)", "null"]);
            if of == "null" { Value::Null } else { value(choices, of, holes) }
        }
    }
}

fn element(choices: &mut Choices<'_>, container: &str, holes: bool) -> Value<'static> {
    if holes && choices.below(2) == 1 {
        return Value::unknown(20);
    }
    value(choices, element_of(container), holes)
}

fn map(entries: BTreeMap<Key<'static>, Value<'static>>) -> Value<'static> {
    Value::Map(Map::Shared(Arc::new(entries)))
}

fn completed(choices: &mut Choices<'_>, held: &Value<'static>, of: &str) -> Value<'static> {
    match held {
        Value::Unknown(_) => value(choices, of, false),
        Value::List(List::Shared(elements)) => {
            Value::list(elements.iter().map(|element| completed(choices, element, element_of(of))).collect())
        }
        Value::Map(Map::Shared(entries)) => {
            // An entry whose value is not known need not be there.
            let mut complete = |(key, value): (&Key<'static>, &Value<'static>)| {
                let is_there = !matches!(value, Value::Unknown(_)) || choices.below(3) > 0;
                is_there.then(|| (key.clone(), completed(choices, value, element_of(of))))
            };
            map(entries.iter().filter_map(&mut complete).collect())
        }
        other => other.clone(),
    }
}

/// Sizes of the values above.
pub(crate) struct Sizes;

impl SizeHints for Sizes {
    fn size(&self, path: &[PathStep<'_>], of: &Type) -> Option<Size> {
        path.first()?;
        match of {
            Type::String => Some(Size::at_most(TEXT_LENGTH_MAX)),
            Type::List(_) | Type::Map(_) => Some(Size::at_most(ELEMENTS_MAX)),
            _ => None,
        }
    }
}
