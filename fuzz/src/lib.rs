//! Fuzz targets as plain functions: each takes any bytes and panics if its property does not hold.
//!
//! Stable Rust builds and tests them; `fuzz_targets/` passes the same functions to libFuzzer. `docs/fuzzing.md`
//! describes how to run them. An input that fails becomes a case in the crate it concerns.

mod apiserver;
mod apply;
mod bindings;
mod bytes;
mod cbor;
mod cel_regex;
mod cel_source;
mod cel_text;
mod cel_tree;
mod devices;
mod dns_messages;
mod expressions;
mod kubernetes;
mod protobuf;
mod tokens;

pub use apiserver::apiserver_request;
pub use apply::apply_patches;
pub use cbor::kubernetes_cbor;
pub use cel_regex::cel_regex;
pub use cel_source::cel_source_picture;
pub use cel_text::{cel_check_estimate, cel_evaluate, cel_parse_unparse};
pub use cel_tree::cel_tree;
pub use devices::{devices_partial, dra_agrees_with_brute_force};
pub use dns_messages::dns_messages;
pub use kubernetes::{kubernetes_scalars, kubernetes_schema};
pub use protobuf::kubernetes_protobuf;
pub use tokens::apiserver_tokens;

/// A target: its name, and the function that panics if its property does not hold.
pub type Target = (&'static str, fn(&[u8]));

/// Every target: the list that tests and `fuzz_targets/` must agree with.
pub const TARGETS: &[Target] = &[
    ("cel_source_picture", cel_source_picture),
    ("cel_parse_unparse", cel_parse_unparse),
    ("cel_check_estimate", cel_check_estimate),
    ("cel_evaluate", cel_evaluate),
    ("cel_tree", cel_tree),
    ("cel_regex", cel_regex),
    ("devices_partial", devices_partial),
    ("dra_agrees_with_brute_force", dra_agrees_with_brute_force),
    ("kubernetes_scalars", kubernetes_scalars),
    ("kubernetes_schema", kubernetes_schema),
    ("kubernetes_cbor", kubernetes_cbor),
    ("kubernetes_protobuf", kubernetes_protobuf),
    ("apiserver_request", apiserver_request),
    ("apiserver_tokens", apiserver_tokens),
    ("apply_patches", apply_patches),
    ("dns_messages", dns_messages),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that look random and are the same in every run.
    fn noise(seed: u64) -> impl Iterator<Item = u8> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        std::iter::from_fn(move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            Some(state.to_le_bytes()[3])
        })
    }

    #[test]
    fn every_target_has_its_program() {
        let manifest = include_str!("../Cargo.toml");
        let programs: Vec<_> =
            manifest.lines().filter_map(|line| line.strip_prefix("path = \"fuzz_targets/")).collect();
        let expected: Vec<_> = TARGETS.iter().map(|(name, _)| format!("{name}.rs\"")).collect();
        assert_eq!(programs, expected);
    }

    #[test]
    fn properties_hold_for_noise_of_many_lengths() {
        // Half of it printable, because most bytes are not text.
        for seed in 0..600_u64 {
            let length = usize::try_from(seed % 97).unwrap();
            let raw: Vec<u8> = noise(seed).take(length).collect();
            let printable: Vec<u8> =
                raw.iter().map(|byte| b" \t\nabc.+()\"'\xC3\xA9"[usize::from(*byte % 14)]).collect();
            for (_, target) in TARGETS {
                target(&raw);
                target(&printable);
            }
        }
    }
}
