//! A map with unknown entries gives consistent answers to every kind of query.

use std::ops::ControlFlow;

use cel::env::Env;
use cel::library;
use cel::program::{Activation, Effort, Limits, Memory, Program, Verdict};
use cel::types::Type;
use cel::value::{HostMap, Map, Value};

/// `known` is there, of `perhaps` nothing is known, and nothing else is there.
#[derive(Debug)]
struct Labels;

impl HostMap for Labels {
    fn len(&self) -> usize {
        1
    }

    fn get(&self, key: &Value<'_>) -> Option<Value<'_>> {
        match key.as_str()? {
            "known" => Some(Value::str("v")),
            "perhaps" => Some(Value::unknown(0)),
            _ => None,
        }
    }

    fn is_partial(&self) -> bool {
        true
    }

    fn for_each<'v>(&'v self, visit: &mut dyn FnMut(Value<'v>, Value<'v>) -> ControlFlow<()>) {
        let _ = visit(Value::str("known"), Value::str("v"));
    }
}

struct Input(Labels);

impl Activation for Input {
    fn resolve(&self, name: &str) -> Option<Value<'_>> {
        (name == "m").then_some(Value::Map(Map::Host(&self.0)))
    }
}

fn verdict(expression: &str) -> Verdict {
    let env = Env::builder()
        .library(&library::standard())
        .library(&library::optionals(2))
        .library(&library::two_variable_comprehensions())
        .syntax(|options| options.optional_syntax = true)
        .variable("m", Type::map(Type::String, Type::String))
        .build()
        .unwrap();
    let typed = env.compile(expression).unwrap_or_else(|issues| panic!("{issues}"));
    let program = Program::new(&typed).unwrap();
    let input = Input(Labels);
    program.eval_partial(&input, Limits::cost(1_000_000), &mut Memory::default(), Effort::Full).verdict()
}

#[test]
fn known_entries_are_returned() {
    for expression in
        ["'known' in m", "has(m.known)", "m.known == 'v'", "m['known'] == 'v'", "!('absent' in m)", "!has(m.absent)"]
    {
        assert_eq!(verdict(expression), Verdict::TRUE, "{expression}");
    }
}

#[test]
fn unknown_entries_are_unknown_to_every_query() {
    for expression in [
        "'perhaps' in m",
        "has(m.perhaps)",
        "m[?'perhaps'].hasValue()",
        "m.perhaps == 'v'",
        "m['perhaps'] == 'v'",
        "size(m) == 1",
        "m.size() > 1",
        "m.all(k, k == 'known')",
        "m.exists(k, k == 'perhaps')",
        "m.exists_one(k, k.startsWith(''))",
        "m.all(k, v, v == 'v')",
        "m.map(k, k) == ['known']",
        "m.filter(k, k != 'known').size() == 0",
        "m == {'known': 'v'}",
        "m in [{'known': 'v'}]",
    ] {
        let found = verdict(expression);
        assert!(found.can_be(Verdict::TRUE) && found.can_be(Verdict::FALSE), "{expression}: {found:?}");
        let opposite = verdict(&format!("!({expression})"));
        assert!(opposite.can_be(Verdict::TRUE) && opposite.can_be(Verdict::FALSE), "{expression}: {opposite:?}");
    }
}
