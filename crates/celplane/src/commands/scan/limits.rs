//! Stored objects whose expressions exceed the limits of one object: they were accepted before the limits applied.

use matching::expressions::object_limits::{ALWAYS_FIT, Tally};
use registry::expressions::{Environments, Expressions as _, Place};

use crate::gated_uses::{Field, Use};

/// An object above the limits.
pub(super) struct Excess {
    pub(super) file: String,
    pub(super) line: usize,
    pub(super) object: String,
    pub(super) message: String,
    pub(super) effect: &'static str,
}

/// The limit that the expressions of an object exceed; nothing if they are within.
pub(super) fn exceeded(uses: &[Use<'_>], environments: &Environments) -> Option<String> {
    let place = |field: Field<'_>| match field {
        Field::TolerationExpression => Some(Place::Toleration),
        Field::AffinityExpression => Some(Place::NodeAffinity),
        _ => None,
    };
    let expressions = || uses.iter().filter_map(|it| Some((place(it.field)?, it.text)));
    if expressions().count() <= ALWAYS_FIT {
        return None;
    }
    let mut tally = Tally::default();
    for (place, text) in expressions() {
        tally.add(text, environments.check(place, None, text).ok());
    }
    tally.too_many().or_else(|| tally.too_costly())
}

/// The consequence for an object of this kind.
pub(super) fn effect(kind: &str) -> &'static str {
    match kind {
        "Pod" => "the pod is kept; its tolerations may shrink, not grow",
        "PersistentVolume" => "the volume is kept; its node affinity may shrink, not grow",
        "RuntimeClass" => "the class is kept, but new pods that name it are rejected",
        "PodTemplate" => "the template is kept, but new pods made from it are rejected",
        _ => "the object is kept, but the controller cannot create new pods",
    }
}
