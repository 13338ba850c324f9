//! Number and estimated costs of all expressions of one object: a pod, a template, a volume, a runtime class.
//!
//! An object that exceeded the limits before may be updated as long as it does not grow.

use api::field::{Errors, Path};
use api::json::Value;
use cel_kubernetes::object_limits::{ALWAYS_FIT, EXPRESSIONS_MAX, Tally};

use super::pod::placement;
use crate::expressions::{Expressions, Place};

/// Expressions beyond these are counted, but not estimated, where an object has too many.
const ESTIMATED_MAX: usize = 1024;

/// The expressions of one field.
pub(crate) struct Group<'v> {
    pub(crate) place: Place,
    pub(crate) texts: Vec<&'v str>,
}

impl<'v> Group<'v> {
    /// Expressions of tolerations.
    pub(crate) fn of_tolerations(tolerations: &'v [Value]) -> Self {
        let texts = tolerations.iter().map(|it| it.text("expression")).filter(|text| !text.is_empty());
        Group { place: Place::Toleration, texts: texts.collect() }
    }

    /// Expressions of node selector terms.
    pub(crate) fn of_terms(terms: impl Iterator<Item = &'v Value>) -> Self {
        let texts = terms.flat_map(|term| term.texts("matchCELExpressions"));
        Group { place: Place::NodeAffinity, texts: texts.collect() }
    }

    /// Expressions of a pod's tolerations, and of its node affinity.
    pub(crate) fn of_pod(spec: &'v Value) -> [Self; 2] {
        [Self::of_tolerations(spec.list("tolerations")), Self::of_terms(placement::node_affinity_terms(spec))]
    }
}

/// Whether there are more expressions than a new object may have.
pub(crate) fn are_many(groups: &[Group<'_>]) -> bool {
    count(groups) > EXPRESSIONS_MAX
}

/// Whether there are too many expressions to look at each: the object is rejected whatever they are.
pub(crate) fn are_too_many(new: &[Group<'_>], old: &[Group<'_>]) -> bool {
    are_many(new) && count(new) > count(old)
}

/// Rejects too many expressions, and too costly ones. `paths` names the field of each group.
pub(crate) fn validate(
    new: &[Group<'_>],
    old: &[Group<'_>],
    paths: &[Path<'_>],
    compiler: &dyn Expressions,
    errors: &mut Errors,
) {
    if count(new) <= ALWAYS_FIT {
        return;
    }
    let tally = tally(new, compiler);
    let (message, place) = if are_too_many(new, old) {
        let most = new.iter().max_by_key(|group| (group.texts.len(), group.place == Place::Toleration));
        (tally.too_many(), most)
    } else if tally.estimates() <= self::tally(old, compiler).estimates() {
        return;
    } else {
        let holds = |group: &&Group<'_>| tally.costliest().is_some_and(|costliest| group.texts.contains(&costliest));
        (tally.too_costly(), new.iter().find(holds))
    };
    let at = place.and_then(|group| new.iter().position(|it| std::ptr::eq(it, group))).and_then(|it| paths.get(it));
    if let (Some(message), Some(at)) = (message, at) {
        errors.forbidden(*at, message);
    }
}

fn count(groups: &[Group<'_>]) -> usize {
    groups.iter().map(|group| group.texts.len()).sum()
}

fn tally<'v>(groups: &[Group<'v>], compiler: &dyn Expressions) -> Tally<'v> {
    let mut tally = Tally::default();
    let all = groups.iter().flat_map(|group| group.texts.iter().map(|text| (group.place, *text)));
    for (place, text) in all {
        // What cannot be used is reported by itself.
        let estimate = (tally.count() < ESTIMATED_MAX).then(|| compiler.check(place, None, text).ok()).flatten();
        tally.add(text, estimate);
    }
    tally
}
