//! Topologies that a StorageClass allows.

use api::core::v1::TopologySelectorTerm;
use api::field::{Errors, Path};
use api::labels::{Operator, Requirement};

use crate::node::Labels;

/// Whether one of the terms holds. No terms allow everything, an empty term allows nothing, nor does one that is not valid.
pub fn allows(terms: &[TopologySelectorTerm], labels: &Labels) -> bool {
    terms.is_empty() || terms.iter().any(|term| holds(term, labels))
}

fn holds(term: &TopologySelectorTerm, labels: &Labels) -> bool {
    let requirements = &term.match_label_expressions;
    !requirements.is_empty()
        && requirements.iter().all(|requirement| {
            let mut errors = Errors::new();
            Requirement::check(&requirement.key, Operator::In, Some(&requirement.values), &Path::ROOT, &mut errors);
            let label = labels.get(&requirement.key);
            errors.is_empty() && label.is_some_and(|label| requirement.values.iter().any(|value| value == label))
        })
}
