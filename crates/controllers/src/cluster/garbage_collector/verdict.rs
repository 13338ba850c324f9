//! Decision about an object, given the state of its owners.
//!
//! Pure. Follows `attemptToDeleteItem` in Kubernetes `pkg/controller/garbagecollector/garbagecollector.go`.

use api::json::Text;
use api::meta::v1::ObjectMeta;

use super::graph::{FOREGROUND, ORPHAN};

/// State of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The owner exists and is not being deleted.
    Solid,
    /// The owner does not exist.
    Dangling,
    /// The owner is being deleted, and waits for its dependents.
    WaitingForDependents,
}

/// State of an object's own dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dependents {
    /// There are none.
    None,
    /// There are some.
    Some,
    /// One of them waits for its own dependents: perhaps a circle.
    Waiting,
}

/// The decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The object is kept.
    Keep,
    /// Remove the references to these owners.
    Detach(Vec<Text>),
    /// Delete it, with this propagation policy.
    Delete {
        /// Propagation policy.
        policy: &'static str,
        /// Whether `blockOwnerDeletion` of its references is cleared first, so that a cycle of owners can be deleted.
        unblock: bool,
    },
}

/// Decides about an object by its owners, in the order of its references.
pub(crate) fn verdict(latest: &ObjectMeta, owners: &[Owner], dependents: Dependents) -> Verdict {
    let with = |state: Owner| {
        latest.owner_references.iter().zip(owners).filter(move |(_, it)| **it == state).map(|(it, _)| it.uid.clone())
    };
    if owners.contains(&Owner::Solid) {
        let gone: Vec<Text> = with(Owner::Dangling).chain(with(Owner::WaitingForDependents)).collect();
        return if gone.is_empty() { Verdict::Keep } else { Verdict::Detach(gone) };
    }
    if owners.is_empty() {
        return Verdict::Keep;
    }
    if owners.contains(&Owner::WaitingForDependents) && dependents != Dependents::None {
        return Verdict::Delete { policy: "Foreground", unblock: dependents == Dependents::Waiting };
    }
    let has = |finalizer: &str| latest.finalizers.iter().any(|it| it == finalizer);
    let policy = match (has(ORPHAN), has(FOREGROUND)) {
        (true, _) => "Orphan",
        (false, true) => "Foreground",
        (false, false) => "Background",
    };
    Verdict::Delete { policy, unblock: false }
}

#[cfg(test)]
mod tests {
    use api::meta::v1::ObjectMetaPart;

    use super::*;

    #[track_caller]
    fn check(owners: &[Owner], dependents: Dependents, finalizers: &[&str], expected: &Verdict) {
        let owner_references = (0..owners.len())
            .map(|index| api::meta::v1::OwnerReference { uid: format!("u{index}").into(), ..Default::default() })
            .collect();
        let finalizers = finalizers.iter().map(|it| Text::from(*it)).collect();
        let latest = ObjectMetaPart { owner_references, finalizers, ..ObjectMetaPart::default() }.into();
        assert_eq!(verdict(&latest, owners, dependents), *expected);
    }

    fn delete(policy: &'static str, unblock: bool) -> Verdict {
        Verdict::Delete { policy, unblock }
    }

    #[test]
    fn an_object_lives_as_long_as_one_owner_does() {
        check(&[], Dependents::None, &[], &Verdict::Keep);
        check(&[Owner::Solid], Dependents::Some, &[], &Verdict::Keep);
        let both = [Owner::WaitingForDependents, Owner::Solid, Owner::Dangling];
        check(&both, Dependents::Some, &[], &Verdict::Detach(vec!["u2".into(), "u0".into()]));
    }

    #[test]
    fn without_owners_it_is_deleted_as_its_finalizers_say() {
        check(&[Owner::Dangling], Dependents::None, &[], &delete("Background", false));
        check(&[Owner::Dangling], Dependents::Some, &[FOREGROUND], &delete("Foreground", false));
        check(&[Owner::Dangling], Dependents::None, &[FOREGROUND, ORPHAN], &delete("Orphan", false));
    }

    #[test]
    fn foreground_goes_down_to_dependents_that_have_dependents() {
        check(&[Owner::WaitingForDependents], Dependents::None, &[], &delete("Background", false));
        check(&[Owner::WaitingForDependents, Owner::Dangling], Dependents::Some, &[], &delete("Foreground", false));
        check(&[Owner::WaitingForDependents], Dependents::Waiting, &[], &delete("Foreground", true));
    }
}
