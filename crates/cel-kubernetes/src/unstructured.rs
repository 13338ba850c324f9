//! Documents read without a schema, in place: objects are maps, arrays lists, numbers `int` or `double`.
//!
//! Admission policies see objects so. Follows `SchemalessTypedToVal` of Kubernetes' `apiserver/pkg/cel/common`, which yields
//! the values that the object's JSON has.

use std::ops::ControlFlow;

use api::json;
use cel::value::{HostData, List, ListShape, Map, MapShape, Value};

/// The value of a document.
#[must_use]
pub fn value(document: &json::Value) -> Value<'_> {
    match document {
        json::Value::Null => Value::Null,
        json::Value::Bool(truth) => Value::Bool(*truth),
        json::Value::Int(number) => Value::Int(*number),
        json::Value::Float(number) => Value::Double(number.get()),
        json::Value::String(text) => Value::str(text),
        json::Value::Array(_) => Value::List(List::Shaped(document, &UnstructuredShape)),
        json::Value::Object(_) => Value::Map(Map::Shaped(document, &UnstructuredShape)),
    }
}

/// The shape of every document.
#[derive(Debug)]
struct UnstructuredShape;

fn document(data: &HostData) -> &json::Value {
    static NULL: json::Value = json::Value::Null;
    data.downcast_ref().unwrap_or(&NULL)
}

impl MapShape for UnstructuredShape {
    fn len(&self, data: &HostData) -> usize {
        document(data).as_object().map_or(0, json::Object::len)
    }

    fn get<'v>(&'v self, data: &'v HostData, key: &Value<'_>) -> Option<Value<'v>> {
        document(data).get(key.as_str()?).map(value)
    }

    fn for_each<'v>(&'v self, data: &'v HostData, visit: &mut dyn FnMut(Value<'v>, Value<'v>) -> ControlFlow<()>) {
        let fields = document(data).as_object().into_iter().flat_map(json::Object::iter);
        for (key, field) in fields {
            if visit(Value::str(key), value(field)).is_break() {
                return;
            }
        }
    }
}

impl ListShape for UnstructuredShape {
    fn len(&self, data: &HostData) -> usize {
        document(data).as_array().map_or(0, <[json::Value]>::len)
    }

    fn get<'v>(&'v self, data: &'v HostData, index: usize) -> Option<Value<'v>> {
        document(data).as_array()?.get(index).map(value)
    }
}

#[cfg(test)]
mod tests {
    use cel::program::{Bindings, Program};

    use super::*;
    use crate::environments::Dialect;

    #[track_caller]
    fn check(expression: &str, expected: &str) {
        let text =
            r#"{"name":"a","count":3,"ratio":0.5,"on":true,"none":null,"list":[1,"x",{"k":"v"}],"labels":{"b":"c"}}"#;
        let object = json::parse(text.as_bytes()).unwrap();
        let language = Dialect::KUBERNETES.language().unwrap();
        let env = language.builder().variable("object", cel::types::Type::Dyn).build().unwrap();
        let program = Program::new(&env.compile(expression).unwrap()).unwrap();
        let input = Bindings::new().bind("object", value(&object));
        let found = match program.eval(&input).result {
            Ok(value) => value.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{expression}");
    }

    #[test]
    fn documents_have_the_values_of_their_json() {
        check("object.name + object.labels.b", "ac");
        check("object.count + 1", "4");
        check("object.ratio * 2.5", "1.25");
        check("object.on && object.none == null && has(object.none)", "true");
        check("object.list[2].k == 'v' && size(object.list) == 3", "true");
        check("object.labels.map(k, k)", "[b]");
        check("object.labels == {'b': 'c'} && 'b' in object.labels", "true");
        check("has(object.nothing)", "false");
        check("object.nothing", "no such key: nothing");
        check("object.none.deeper", "no such key: deeper");
        check("object.name.deeper", "no such key: deeper");
    }
}
