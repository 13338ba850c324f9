//! The engines we compare with. Both parse only: no type check, no cost, no limit.

mod cel_rust;
mod kube;

use crate::cases::Input;
use crate::engine::Engine;
use std::collections::HashMap;

/// All peers, in the order of the table.
pub const ENGINES: [Engine; 2] = [cel_rust::ENGINE, kube::ENGINE];

/// The name of the input's one variable.
fn variable(input: &Input) -> &'static str {
    match input {
        Input::Taint(_) => "taint",
        Input::Node(_) => "node",
    }
}

/// The fields of a taint.
fn taint(fields: &[(&'static str, &'static str)]) -> HashMap<String, String> {
    fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A node whose only field is its labels.
fn node(labels: &[(String, String)]) -> HashMap<String, HashMap<String, String>> {
    HashMap::from([("labels".to_owned(), labels.iter().cloned().collect())])
}
