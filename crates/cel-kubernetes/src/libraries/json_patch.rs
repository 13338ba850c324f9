//! `jsonpatch.escapeKey`: makes a key a step of a JSON patch's path.
//!
//! Only mutations of admission policies have it. Follows Kubernetes `apiserver/pkg/cel/library/jsonpatch.go`.

use cel::cost::Price;
use cel::env::{Library, Overload};
use cel::value::Value;

use super::{library, native, text};

/// The function for paths of JSON patches.
pub fn json_patch() -> Library {
    library("kubernetes.jsonpatch", 0, OVERLOADS)
}

static OVERLOADS: &[Overload] =
    &[native("string_jsonpatch_escapeKey_string", ":jsonpatch.escapeKey(string) -> string", Price::ONE, |operands| {
        Ok(Value::string(text(operands, 0)?.replace('~', "~0").replace('/', "~1")))
    })];
