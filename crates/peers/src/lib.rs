//! CEL engines for comparisons. Both only parse: no type check, no cost, no limit.
//!
//! A crate of its own, because these engines enable features of shared dependencies: in `celplane-bench`, the load
//! generator and all other benches would compile the whole tree a second time.

mod cel_rust;
mod kube;

use bench::cases::Input;
use bench::engine::Engine;
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

#[cfg(test)]
mod tests {
    use super::*;
    use bench::{cases, report};

    #[test]
    fn every_engine_gives_the_right_verdict_where_it_can_run_the_case() {
        assert_eq!(report::wrong_verdicts(&ENGINES), [""; 0]);
    }

    #[test]
    fn kube_cel_runs_every_case_and_plain_cel_all_but_semver() {
        let runs = |engine: &Engine| -> Vec<&str> {
            cases::all().iter().filter(|case| (engine.evaluate)(case).is_some()).map(|case| case.name).collect()
        };
        let [plain, kube] = &ENGINES;
        assert_eq!(runs(kube), ["startsWith", "or", "semver", "regex", "exists"]);
        assert_eq!(runs(plain), ["startsWith", "or", "regex", "exists"]);
    }
}
