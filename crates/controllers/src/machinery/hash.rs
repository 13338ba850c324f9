//! Short names for templates and revisions.
//!
//! The value is FNV over the canonical JSON of a template. Kubernetes hashes a dump of its Go structs, so the
//! names of our ReplicaSets differ; ReplicaSets are found by comparing templates, never names. Revisions of
//! StatefulSets and DaemonSets are hashed over JSON in Kubernetes, too, and have the same names.

use api::json::{Value, to_string};

const OFFSET: u32 = 2_166_136_261;
const PRIME: u32 = 16_777_619;

/// Letters and digits that form no words.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// FNV-1 over 32 bits.
#[must_use]
pub fn fnv(bytes: &[u8]) -> u32 {
    continue_fnv(OFFSET, bytes)
}

fn continue_fnv(state: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(state, |hash, byte| hash.wrapping_mul(PRIME) ^ u32::from(*byte))
}

/// FNV-1a over 32 bits.
fn fnv_a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(PRIME))
}

/// The digits of a number, written with letters that are valid in names and form no words.
#[must_use]
pub fn encode(hash: u32) -> String {
    safe(&hash.to_string())
}

/// A text with each byte replaced by one of the letters.
#[must_use]
pub fn safe(text: &str) -> String {
    let letter = |byte: u8| ALPHABET.get(usize::from(byte).checked_rem(ALPHABET.len()).unwrap_or(0)).copied();
    text.bytes().filter_map(letter).map(char::from).collect()
}

/// The hash of a pod template; `collisions` makes another one when the first is taken.
#[must_use]
pub fn template(template: &Value, collisions: Option<i32>) -> String {
    let mut text = canonical(template);
    // Kubernetes, too, appends the count to the hashed data.
    if let Some(collisions) = collisions {
        text.push_str(&collisions.to_string());
    }
    encode(fnv_a(text.as_bytes()))
}

/// The hash of a revision's data, as Kubernetes computes it.
#[must_use]
pub fn revision(data: &Value, collisions: Option<i32>) -> String {
    let state = fnv(canonical(data).as_bytes());
    let state = collisions.map_or(state, |count| continue_fnv(state, count.to_string().as_bytes()));
    encode(state)
}

/// JSON with sorted fields, as Go writes maps.
#[must_use]
pub fn canonical(value: &Value) -> String {
    let mut sorted = value.clone();
    sorted.sort_keys();
    to_string(&sorted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_go() {
        // hash/fnv's own vectors.
        assert_eq!(fnv(b"abc"), 0x439c_2f4b);
        assert_eq!(fnv_a(b"abc"), 0x1a47_e90b);
        assert_eq!(safe("0123456789"), "456789bcdf");
    }

    #[test]
    fn order_of_fields_does_not_matter_and_a_collision_does() {
        let one = template(&api::json!({"a": 1, "b": {"c": 2, "d": 3}}), None);
        assert_eq!(one, template(&api::json!({"b": {"d": 3, "c": 2}, "a": 1}), None));
        assert_ne!(one, template(&api::json!({"a": 1, "b": {"c": 2, "d": 3}}), Some(1)));
    }
}
