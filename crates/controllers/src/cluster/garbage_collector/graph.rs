//! The ownership graph: existing objects, and owners that are only referenced.
//!
//! Pure: from changes to work. An owner that is referenced before it is observed is a *virtual* node in the
//! graph, to be looked up. Follows `GraphBuilder` in Kubernetes
//! `pkg/controller/garbagecollector/graph_builder.go`.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use api::json::Text;
use api::meta::v1::{ObjectMeta, OwnerReference};

/// The finalizer of an object whose dependents are deleted first.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object whose dependents are set free first.
pub(crate) const ORPHAN: &str = "orphan";
/// Maximum number of owners known to be absent.
const ABSENT_MAX: usize = 500;

/// Identity of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Identity {
    pub(crate) kind: Text,
    pub(crate) api_version: Text,
    pub(crate) namespace: Text,
    pub(crate) name: Text,
    pub(crate) uid: Text,
}

impl Identity {
    /// The owner that a dependent in `namespace` names.
    pub(crate) fn of_owner(owner: &OwnerReference, namespace: &str) -> Self {
        Self {
            kind: owner.kind.clone(),
            api_version: owner.api_version.clone(),
            namespace: namespace.into(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        }
    }

    fn is_named_by(&self, owner: &OwnerReference) -> bool {
        self.uid == owner.uid
            && self.name == owner.name
            && self.kind == owner.kind
            && self.api_version == owner.api_version
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, api_version, namespace, name, uid } = self;
        write!(f, "[{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}]")
    }
}

/// An observed object, or a virtual one that is only referenced.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) identity: Identity,
    pub(crate) owners: Vec<OwnerReference>,
    pub(crate) dependents: BTreeSet<Text>,
    /// Whether it was observed by an informer, not only referenced by a dependent.
    pub(crate) observed: bool,
    pub(crate) deleting: bool,
    /// Whether it is being deleted, with its dependents first.
    pub(crate) deleting_dependents: bool,
    orphaning: bool,
}

/// Work for an object, by its UID.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    /// Find out whether it is to be deleted.
    Delete(Text),
    /// The same after a delay, because its state is unclear.
    DeleteLater(Text),
    /// Set its dependents free.
    Orphan(Text),
    /// Report that a dependent references an owner in another namespace.
    WrongNamespace(Box<WrongNamespace>),
}

/// A reference that leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct WrongNamespace {
    /// The referencing object.
    pub(crate) dependent: Identity,
    /// The owner, as referenced.
    pub(crate) owner: Identity,
}

/// The objects and their owners.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: HashMap<Text, Node>,
    /// Owners that are known not to exist, oldest first.
    absent: VecDeque<Identity>,
    absent_set: HashSet<Identity>,
}

impl Graph {
    pub(crate) fn node(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    pub(crate) fn is_absent(&self, owner: &Identity) -> bool {
        self.absent_set.contains(owner)
    }

    pub(crate) fn remember_absent(&mut self, owner: Identity) {
        if self.absent_set.insert(owner.clone()) {
            self.absent.push_back(owner);
            if self.absent.len() > ABSENT_MAX
                && let Some(oldest) = self.absent.pop_front()
            {
                self.absent_set.remove(&oldest);
            }
        }
    }

    /// The dependents whose deletion an owner waits for.
    pub(crate) fn blocking_dependents(&self, node: &Node) -> Vec<&Node> {
        let blocks = |dependent: &&Node| {
            let mut owners = dependent.owners.iter();
            owners.any(|owner| owner.uid == node.identity.uid && owner.block_owner_deletion == Some(true))
        };
        node.dependents.iter().filter_map(|uid| self.nodes.get(uid)).filter(blocks).collect()
    }

    /// Records a new or changed object.
    pub(crate) fn observe(&mut self, identity: Identity, metadata: &ObjectMeta) -> Vec<Work> {
        let mut work = Vec::new();
        let uid = identity.uid.clone();
        let has = |finalizer: &str| metadata.is_deleting() && metadata.finalizers.iter().any(|it| it == finalizer);
        // Most changes, such as those of status, concern neither owners nor deletion.
        if let Some(node) = self.nodes.get_mut(&uid)
            && node.observed
            && node.identity == identity
            && node.owners == metadata.owner_references
            && (node.deleting_dependents, node.orphaning) == (has(FOREGROUND), has(ORPHAN))
        {
            node.deleting = metadata.is_deleting();
            return work;
        }
        let known = self.nodes.get(&uid).cloned();
        let (was_deleting_dependents, was_orphaning) =
            known.as_ref().map_or((false, false), |node| (node.deleting_dependents, node.orphaning));
        let old_owners = known.as_ref().map(|node| node.owners.clone()).unwrap_or_default();
        let dependents = known.as_ref().map(|node| node.dependents.clone()).unwrap_or_default();
        if let Some(rumor) = known.filter(|node| !node.observed && node.identity != identity) {
            // Dependents that named it otherwise may name something that does not exist.
            let (_, others) = self.partition(&rumor.dependents, &identity);
            for dependent in others {
                if let Some(warning) = self.wrong_namespace(&dependent, &identity) {
                    work.push(warning);
                }
                work.push(Work::Delete(dependent));
            }
        }
        let is_known = self.nodes.contains_key(&uid);
        let node = Node {
            identity,
            owners: metadata.owner_references.clone(),
            dependents,
            observed: true,
            deleting: metadata.is_deleting(),
            deleting_dependents: has(FOREGROUND),
            orphaning: has(ORPHAN),
        };
        let (deleting_dependents, orphaning) = (node.deleting_dependents, node.orphaning);
        self.nodes.insert(uid.clone(), node);
        let new_owners = &metadata.owner_references;
        if !is_known || old_owners != *new_owners {
            let in_list = |list: &[OwnerReference], uid: &str| list.iter().any(|it| it.uid == uid);
            for old in old_owners.iter().filter(|old| old.block_owner_deletion == Some(true)) {
                let now = new_owners.iter().find(|new| new.uid == old.uid);
                if now.is_none_or(|now| now.block_owner_deletion != Some(true)) && self.nodes.contains_key(&old.uid) {
                    work.push(Work::Delete(old.uid.clone()));
                }
            }
            let added: Vec<OwnerReference> =
                new_owners.iter().filter(|new| !in_list(&old_owners, &new.uid)).cloned().collect();
            self.add_to_owners(&uid, &added, &mut work);
            for removed in old_owners.iter().filter(|old| !in_list(new_owners, &old.uid)) {
                if let Some(owner) = self.nodes.get_mut(&removed.uid) {
                    owner.dependents.remove(&uid);
                }
            }
        }
        if orphaning && !was_orphaning {
            work.push(Work::Orphan(uid));
        } else if deleting_dependents && !was_deleting_dependents {
            let dependents = self.nodes.get(&uid).map(|node| node.dependents.clone()).unwrap_or_default();
            work.extend(dependents.into_iter().map(Work::Delete));
            work.push(Work::Delete(uid));
        }
        work
    }

    fn add_to_owners(&mut self, uid: &Text, owners: &[OwnerReference], work: &mut Vec<Work>) {
        let Some(dependent) = self.nodes.get(uid).map(|node| node.identity.clone()) else { return };
        let mut doubtful = false;
        for owner in owners {
            let Some(node) = self.nodes.get_mut(&owner.uid) else {
                let rumor = Node {
                    identity: Identity::of_owner(owner, &dependent.namespace),
                    owners: Vec::new(),
                    dependents: BTreeSet::from([uid.clone()]),
                    observed: false,
                    deleting: false,
                    deleting_dependents: false,
                    orphaning: false,
                };
                self.nodes.insert(owner.uid.clone(), rumor);
                work.push(Work::Delete(owner.uid.clone()));
                continue;
            };
            node.dependents.insert(uid.clone());
            if doubtful {
                continue;
            }
            let namespaced = !node.identity.namespace.is_empty();
            let elsewhere = node.identity.namespace != dependent.namespace;
            let observed = node.observed;
            let identity = node.identity.clone();
            if namespaced && elsewhere {
                if observed && let Some(warning) = self.wrong_namespace(uid, &identity) {
                    work.push(warning);
                }
                doubtful = true;
            } else {
                // A rumor without a namespace may be a namespaced kind that a cluster-wide dependent named.
                doubtful = !identity.is_named_by(owner) || (elsewhere && !observed);
            }
        }
        if doubtful {
            work.push(Work::Delete(uid.clone()));
        }
    }

    fn wrong_namespace(&self, dependent: &str, owner: &Identity) -> Option<Work> {
        let dependent = self.nodes.get(dependent)?;
        if owner.namespace.is_empty() || owner.namespace == dependent.identity.namespace {
            return None;
        }
        let named = dependent.owners.iter().find(|it| it.uid == owner.uid)?;
        let owner = Identity::of_owner(named, &dependent.identity.namespace);
        let dependent = dependent.identity.clone();
        Some(Work::WrongNamespace(Box::new(WrongNamespace { dependent, owner })))
    }

    /// The dependents that name `owner` so, and those that name its uid otherwise. One can be both.
    fn partition(&self, dependents: &BTreeSet<Text>, owner: &Identity) -> (Vec<Text>, Vec<Text>) {
        let (mut matching, mut others) = (Vec::new(), Vec::new());
        for uid in dependents {
            let Some(dependent) = self.nodes.get(uid) else { continue };
            if !owner.namespace.is_empty() && owner.namespace != dependent.identity.namespace {
                others.push(uid.clone());
                continue;
            }
            let same = |it: &&OwnerReference| it.uid == owner.uid;
            if dependent.owners.iter().filter(same).any(|it| owner.is_named_by(it)) {
                matching.push(uid.clone());
            }
            if dependent.owners.iter().filter(same).any(|it| !owner.is_named_by(it)) {
                others.push(uid.clone());
            }
        }
        (matching, others)
    }

    /// Records the deletion of an object.
    pub(crate) fn gone(&mut self, uid: &str) -> Vec<Work> {
        let Some(node) = self.nodes.get(uid).cloned() else { return Vec::new() };
        self.remove(&node)
    }

    /// Records that the server has no such object.
    pub(crate) fn absent(&mut self, identity: &Identity) -> Vec<Work> {
        let Some(node) = self.nodes.get(&identity.uid).cloned() else { return Vec::new() };
        let (matching, others) = self.partition(&node.dependents, identity);
        if node.observed && node.identity == *identity || !node.observed && others.is_empty() {
            return self.remove(&Node { identity: identity.clone(), ..node });
        }
        // Another object has this UID, or may have it: only dependents of the absent one are processed.
        let mut work = Vec::new();
        if !matching.is_empty() {
            self.remember_absent(identity.clone());
            work.extend(matching.into_iter().map(Work::Delete));
        }
        if !node.observed
            && node.identity == *identity
            && let Some(other) = self.other_identity(&others, identity)
        {
            if let Some(node) = self.nodes.get_mut(&identity.uid) {
                node.identity = other;
            }
            work.push(Work::DeleteLater(identity.uid.clone()));
        }
        work
    }

    fn remove(&mut self, node: &Node) -> Vec<Work> {
        self.nodes.remove(&node.identity.uid);
        for owner in &node.owners {
            if let Some(owner) = self.nodes.get_mut(&owner.uid) {
                owner.dependents.remove(&node.identity.uid);
            }
        }
        if !node.dependents.is_empty() {
            self.remember_absent(node.identity.clone());
        }
        let waits = |owner: &&OwnerReference| self.nodes.get(&owner.uid).is_some_and(|it| it.deleting_dependents);
        let waiting = node.owners.iter().filter(waits).map(|owner| Work::Delete(owner.uid.clone()));
        node.dependents.iter().cloned().map(Work::Delete).chain(waiting).collect()
    }

    /// Another identity under which dependents reference an owner: the next in order after the absent one, else
    /// the first.
    fn other_identity(&self, dependents: &[Text], absent: &Identity) -> Option<Identity> {
        let mut named = BTreeSet::new();
        for dependent in dependents.iter().filter_map(|uid| self.nodes.get(uid)) {
            for owner in dependent.owners.iter().filter(|owner| owner.uid == absent.uid) {
                let mut identity = Identity::of_owner(owner, &dependent.identity.namespace);
                if absent.namespace.is_empty() && owner.kind == absent.kind && owner.api_version == absent.api_version {
                    // This kind is known to have no namespace.
                    identity.namespace = Text::default();
                }
                if identity != *absent {
                    named.insert(identity);
                }
            }
        }
        named.range(absent.clone()..).next().or_else(|| named.first()).cloned()
    }
}

#[cfg(test)]
mod tests;
