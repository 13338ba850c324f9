//! NodeAffinity: the pod's node selector and affinity, and additional terms of the configuration.

use std::collections::BTreeSet;

use api::core::v1;
use api::json::{Text, Value};
use matching::Matcher;
use matching::expressions::object_limits::Tally;
use matching::node_affinity::{PreferredAffinity, RequiredAffinity};

use super::args::{self, ArgsError};
use crate::cluster::{Cluster, NodeId, NodeInfo, NodeObject, PodInfo};
use crate::framework::{
    Action, Change, Dependencies, Event, Filter, Hint, Plugin, Point, PreFilter, PreScore, Resource, Score, Status,
    default_normalize,
};

pub(crate) const NAME: &str = "NodeAffinity";

/// Extension points of the plugin.
pub(super) const POINTS: &[Point] = &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score];

#[derive(Debug)]
struct NodeAffinity {
    added_required: Option<RequiredAffinity>,
    added_preferred: Option<PreferredAffinity>,
}

#[derive(Default, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Args {
    #[serde(skip_serializing_if = "Option::is_none")]
    added_affinity: Option<v1::NodeAffinity>,
}

/// The arguments with their defaults.
pub(super) fn write_args(given: &Value) -> Result<Value, ArgsError> {
    args::write(&args::read::<Args>(given)?)
}

pub(super) fn new(args: &Value, matcher: &Matcher) -> Result<Box<dyn Plugin>, ArgsError> {
    let args: Args = args::read(args)?;
    let added = args.added_affinity.unwrap_or_default();
    let required =
        added.required_during_scheduling_ignored_during_execution.is_some().then(|| matcher.required(&added));
    let preferred = added.preferred_during_scheduling_ignored_during_execution;
    let preferred = (!preferred.is_empty()).then(|| matcher.preferred(&preferred));
    let errors = required.iter().map(RequiredAffinity::errors).chain(preferred.iter().map(|it| it.errors().clone()));
    if let Some(errors) = errors.into_iter().find(|errors| !errors.is_empty()) {
        return Err(ArgsError::Form(format!("addedAffinity: {}", errors.message())));
    }
    // A term that matches no node would keep every pod of the profile waiting.
    let unusable = required.iter().flat_map(RequiredAffinity::unusable);
    if let Some(why) = unusable.chain(preferred.iter().flat_map(PreferredAffinity::unusable)).next() {
        return Err(ArgsError::Form(format!("addedAffinity: {why}")));
    }
    let mut tally = Tally::default();
    required.iter().for_each(|it| it.tally(&mut tally));
    preferred.iter().for_each(|it| it.tally(&mut tally));
    if let Some(message) = tally.too_many().or_else(|| tally.too_costly()) {
        return Err(ArgsError::Form(format!("addedAffinity: {message}")));
    }
    Ok(Box::new(NodeAffinity { added_required: required, added_preferred: preferred }))
}

fn required_selector(pod: &PodInfo) -> Option<&v1::NodeSelector> {
    let affinity = pod.spec().affinity.as_ref()?.node_affinity.as_ref()?;
    affinity.required_during_scheduling_ignored_during_execution.as_ref()
}

impl Plugin for NodeAffinity {
    fn events(&self) -> Vec<Event> {
        vec![Event::new(Resource::Node, Action::ADD.or(Action::UPDATE_NODE_LABEL))]
    }

    fn hint(&self, pod: &PodInfo, _: Event, change: Change<'_>, _: &Cluster) -> Hint {
        let Change::Node { old, new: Some(new) } = change else { return Hint::Queue };
        if self.added_required.as_ref().is_some_and(|added| !added.matches(&new.matching)) {
            return Hint::Skip;
        }
        let matches = |node: &NodeObject| pod.matcher.required().try_matches(&node.matching);
        match (old.map(matches), matches(new)) {
            (_, Ok(false)) => Hint::Skip,
            (Some(Ok(true)), Ok(true)) => Hint::Skip,
            // Terms that cannot be parsed: when in doubt, try.
            _ => Hint::Queue,
        }
    }

    fn pre_filter<'c>(&'c self, pod: &'c PodInfo, _: &'c Cluster) -> PreFilter<'c> {
        let selector = required_selector(pod);
        if selector.is_none() && self.added_required.is_none() && pod.spec().node_selector.is_empty() {
            return PreFilter::Skip;
        }
        let filter = Box::new(Affinity { plugin: self, pod });
        let terms = selector.map(|selector| selector.node_selector_terms.as_slice()).unwrap_or_default();
        match names(terms) {
            None => PreFilter::Ask(filter),
            Some(names) if names.is_empty() => PreFilter::Reject(Status::unresolvable("pod affinity terms conflict")),
            Some(names) => PreFilter::AskAbout(filter, names),
        }
    }

    fn pre_score<'c>(&'c self, pod: &'c PodInfo, _: &'c Cluster, _: Option<&[NodeId]>) -> PreScore<'c> {
        let preferred = pod.matcher.preferred();
        let errors = preferred.errors();
        if !errors.is_empty() {
            return PreScore::Fail(Status::error(errors.message()));
        }
        let affinity = pod.spec().affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let asks = affinity.is_some_and(|it| !it.preferred_during_scheduling_ignored_during_execution.is_empty());
        if !asks && self.added_preferred.is_none() {
            return PreScore::Skip;
        }
        PreScore::Ask(Box::new(Affinity { plugin: self, pod }))
    }
}

/// The nodes that are named by every term: no other needs a look. Nothing if one of the terms names none.
fn names(terms: &[v1::NodeSelectorTerm]) -> Option<BTreeSet<Text>> {
    let mut all = BTreeSet::new();
    for term in terms {
        let named = term.match_fields.iter().filter(|it| it.key == "metadata.name" && it.operator == "In");
        let named = named.map(|it| it.values.iter().flatten().cloned().collect::<BTreeSet<Text>>());
        all.extend(named.reduce(|left, right| left.intersection(&right).cloned().collect())?);
    }
    (!terms.is_empty()).then_some(all)
}

#[derive(Clone, Copy)]
struct Affinity<'c> {
    plugin: &'c NodeAffinity,
    pod: &'c PodInfo,
}

impl Filter for Affinity<'_> {
    fn filter(&self, node: &NodeInfo) -> Result<(), Status> {
        let node = &node.object.matching;
        if self.plugin.added_required.as_ref().is_some_and(|added| !added.matches(node)) {
            return Err(Status::unresolvable("node(s) didn't match scheduler-enforced node affinity"));
        }
        if self.pod.matcher.required().matches(node) {
            return Ok(());
        }
        Err(Status::unresolvable("node(s) didn't match Pod's node affinity/selector"))
    }

    fn copy<'s>(&'s self) -> Box<dyn Filter + 's> {
        Box::new(*self)
    }

    fn depends_on(&self) -> Dependencies {
        Dependencies::NODE
    }
}

impl Score for Affinity<'_> {
    fn score(&self, node: &NodeInfo) -> Result<i64, Status> {
        let node = &node.object.matching;
        let added = self.plugin.added_preferred.as_ref().map_or(0, |added| added.score(node));
        Ok(self.pod.matcher.preferred().score(node).saturating_add(added))
    }

    fn is_relative(&self) -> bool {
        true
    }

    fn normalize(&self, scores: &mut [(NodeId, i64)]) {
        default_normalize(scores, false);
    }

    fn depends_on(&self) -> Dependencies {
        Dependencies::NODE
    }
}
