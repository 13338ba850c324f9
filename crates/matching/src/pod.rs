//! All requirements of a pod on nodes: built once per pod spec, evaluated for many nodes, from many threads.

use locks::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use api::core::v1;
use api::meta::v1::StringMap;

use crate::expressions::{CompileCache, Meter};
use crate::features::Features;
use crate::node::Node;
use crate::node_affinity::{PreferredAffinity, RequiredAffinity};
use crate::taints::{self, Owner, Set};
use crate::tolerations::Tolerations;

/// All requirements of a pod on nodes.
#[derive(Debug, Default)]
pub struct PodMatcher {
    /// Compiled at once where there are no expressions, else by the first question: a pod that is never asked about costs
    /// nothing, and the budget of the attempt that asks includes the time.
    rules: OnceLock<Rules>,
    /// The rules that are not compiled yet.
    source: Mutex<Option<Box<Source>>>,
    verdicts: TaintVerdicts,
    has_expressions: bool,
    /// Budget of the attempts that ask, where there are expressions.
    meter: Option<Arc<Meter>>,
}

/// The rules of a pod.
#[derive(Debug, Default)]
struct Rules {
    tolerations: Tolerations,
    /// Whether a toleration reads the time at which a taint was added.
    reads_time: bool,
    required: RequiredAffinity,
    preferred: PreferredAffinity,
}

/// All that rules are compiled from.
#[derive(Debug)]
struct Source {
    tolerations: Vec<v1::Toleration>,
    node_selector: StringMap,
    affinity: Option<v1::NodeAffinity>,
    cache: CompileCache,
    features: Features,
}

/// Result of a pod's tolerations for a node's taints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TaintVerdict {
    /// The first taint that keeps the pod away.
    pub first_untolerated: Option<u16>,
    /// Number of taints with the effect `PreferNoSchedule` that are not tolerated.
    pub intolerable_soft: u16,
}

impl Rules {
    fn new(
        tolerations: &[v1::Toleration],
        node_selector: &StringMap,
        affinity: Option<&v1::NodeAffinity>,
        cache: &CompileCache,
        features: &Features,
    ) -> Self {
        let preferred = affinity.map(|it| it.preferred_during_scheduling_ignored_during_execution.as_slice());
        let tolerations = Tolerations::new(tolerations, cache, features);
        Rules {
            reads_time: tolerations.read_time(),
            tolerations,
            required: RequiredAffinity::new(node_selector, affinity, cache, features),
            preferred: PreferredAffinity::new(preferred.unwrap_or_default(), cache, features),
        }
    }
}

impl Source {
    fn compile(&self) -> Rules {
        Rules::new(&self.tolerations, &self.node_selector, self.affinity.as_ref(), &self.cache, &self.features)
    }
}

impl PodMatcher {
    /// Builds the requirements of a pod. Unusable requirements match nothing.
    pub fn new(spec: &v1::PodSpec, cache: &CompileCache, features: &Features) -> Self {
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        if !has_expressions(&spec.tolerations, affinity) {
            let rules = Rules::new(&spec.tolerations, &spec.node_selector, affinity, cache, features);
            return PodMatcher { rules: OnceLock::from(rules), ..PodMatcher::default() };
        }
        let source = Source {
            tolerations: spec.tolerations.clone(),
            node_selector: spec.node_selector.clone(),
            affinity: affinity.cloned(),
            cache: cache.clone(),
            features: *features,
        };
        PodMatcher {
            source: Mutex::new(Some(Box::new(source))),
            has_expressions: true,
            meter: cache.meter().cloned(),
            ..PodMatcher::default()
        }
    }

    fn rules(&self) -> &Rules {
        self.rules.get_or_init(|| {
            let source = self.source.lock().take();
            let Some(source) = source else { return Rules::default() };
            match &self.meter {
                Some(meter) => meter.measure(|| source.compile()),
                None => source.compile(),
            }
        })
    }

    /// Whether the pod has expressions.
    pub fn has_expressions(&self) -> bool {
        self.has_expressions
    }

    /// Whether the budget of the attempt left out an evaluation: then the answers since it began cannot be used.
    pub fn is_over_budget(&self) -> bool {
        self.meter.as_ref().is_some_and(|meter| meter.is_exceeded())
    }

    /// Evaluates the tolerations for a node's taints, once per distinct set of taints.
    pub fn taints(&self, set: &Set) -> TaintVerdict {
        if set.is_empty() {
            return TaintVerdict::default();
        }
        let reads_time = self.rules().reads_time;
        if let Some(verdict) = self.verdicts.get(set, reads_time) {
            return verdict;
        }
        let verdict = if set.has_masks() { self.taints_by_mask(set) } else { self.taints_directly(set.taints()) };
        if !self.is_over_budget() {
            self.verdicts.put(set, reads_time, verdict);
        }
        verdict
    }

    /// Whether the pod may run on the node, as far as taints, node selector and node affinity go.
    pub fn fits(&self, node: &Node) -> bool {
        self.taints(&node.taints).first_untolerated.is_none() && self.required().matches(node)
    }

    /// The pod's tolerations.
    pub fn tolerations(&self) -> &Tolerations {
        &self.rules().tolerations
    }

    /// The node selector and the required node affinity.
    pub fn required(&self) -> &RequiredAffinity {
        &self.rules().required
    }

    /// The preferred node affinity.
    pub fn preferred(&self) -> &PreferredAffinity {
        &self.rules().preferred
    }

    fn taints_by_mask(&self, set: &Set) -> TaintVerdict {
        let tolerated = self.tolerations().tolerated(set);
        let hard = set.hard_mask() & !tolerated;
        TaintVerdict {
            first_untolerated: (hard != 0).then_some(hard.trailing_zeros() as u16),
            intolerable_soft: (set.soft_mask() & !tolerated).count_ones() as u16,
        }
    }

    fn taints_directly(&self, taints: &[v1::Taint]) -> TaintVerdict {
        let narrow = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
        TaintVerdict {
            first_untolerated: self.tolerations().first_untolerated(taints, taints::is_hard).map(narrow),
            intolerable_soft: narrow(self.tolerations().intolerable_soft_count(taints)),
        }
    }
}

/// Whether tolerations or node affinity have the text of an expression.
fn has_expressions(tolerations: &[v1::Toleration], affinity: Option<&v1::NodeAffinity>) -> bool {
    let has = |term: &v1::NodeSelectorTerm| !term.match_cel_expressions.is_empty();
    tolerations.iter().any(|toleration| !toleration.expression.is_empty())
        || affinity.is_some_and(|affinity| {
            let required = affinity.required_during_scheduling_ignored_during_execution.as_ref();
            required.is_some_and(|selector| selector.node_selector_terms.iter().any(has))
                || affinity.preferred_during_scheduling_ignored_during_execution.iter().any(|it| has(&it.preference))
        })
}

/// Verdicts by the serial number of a set: a table in which a newer set may take an older one's place. Sets of one owner
/// only, because serial numbers are its.
#[derive(Debug, Default)]
struct TaintVerdicts {
    table: OnceLock<Table>,
}

#[derive(Debug)]
struct Table {
    owner: Owner,
    slots: Box<[AtomicU64; SLOTS]>,
}

const SLOTS: usize = 128;

/// A slot holds a serial number above these bits; below, the count of soft taints, and one more than the first untolerated.
const COUNT_BITS: u32 = 12;
const COUNT_MAX: u16 = (1 << COUNT_BITS) - 1;

impl TaintVerdicts {
    fn get(&self, set: &Set, timed: bool) -> Option<TaintVerdict> {
        let table = self.table.get().filter(|table| Owner::ptr_eq(&table.owner, set.owner()))?;
        let serial = set.serial(timed);
        let entry = table.slot(serial)?.load(Ordering::Relaxed);
        if entry >> (2 * COUNT_BITS) != serial || serial == 0 {
            return None;
        }
        let first = (entry >> COUNT_BITS) as u16 & COUNT_MAX;
        Some(TaintVerdict { first_untolerated: first.checked_sub(1), intolerable_soft: entry as u16 & COUNT_MAX })
    }

    /// Caches a verdict, unless its numbers are too large for a slot, or the set has no owner or another one.
    fn put(&self, set: &Set, timed: bool, verdict: TaintVerdict) {
        let first = verdict.first_untolerated.map_or(0, |index| index.saturating_add(1));
        let serial = set.serial(timed);
        let shifted = serial.checked_mul(1 << (2 * COUNT_BITS)).filter(|_| serial != 0);
        let (Some(shifted), true, true) = (shifted, first <= COUNT_MAX, verdict.intolerable_soft <= COUNT_MAX) else {
            return;
        };
        let table = self.table.get_or_init(|| Table {
            owner: set.owner().clone(),
            slots: Box::new([const { AtomicU64::new(0) }; SLOTS]),
        });
        if Owner::ptr_eq(&table.owner, set.owner())
            && let Some(slot) = table.slot(serial)
        {
            let entry = shifted | u64::from(first) << COUNT_BITS | u64::from(verdict.intolerable_soft);
            slot.store(entry, Ordering::Relaxed);
        }
    }
}

impl Table {
    fn slot(&self, serial: u64) -> Option<&AtomicU64> {
        self.slots.get(serial as usize % SLOTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: String, effect: &str) -> v1::Taint {
        v1::Taint { key: key.into(), effect: effect.into(), ..v1::Taint::default() }
    }

    #[test]
    fn remembered_verdicts_are_those_of_their_set() {
        let matcher = PodMatcher::default();
        let sets = taints::Sets::new();
        let lists: Vec<Vec<v1::Taint>> = (0..300)
            .map(|number| {
                let soft = (0..number % 5).map(|it| taint(it.to_string(), "PreferNoSchedule"));
                let hard = (0..number % 2).map(|it| taint(it.to_string(), "NoSchedule"));
                soft.chain(hard).chain([taint(number.to_string(), "Other")]).collect()
            })
            .collect();
        let sets: Vec<_> = lists.iter().map(|list| sets.intern(list)).collect();
        for round in 0..2 {
            for (number, set) in sets.iter().enumerate() {
                let hard = (number % 2 == 1).then_some((number % 5) as u16);
                let expected = TaintVerdict { first_untolerated: hard, intolerable_soft: (number % 5) as u16 };
                assert_eq!(matcher.taints(set), expected, "{number} in round {round}");
            }
        }
    }

    #[test]
    fn sets_with_many_taints_are_judged_taint_by_taint() {
        let matcher = PodMatcher::default();
        let mut list: Vec<v1::Taint> = (0..30).map(|it| taint(it.to_string(), "PreferNoSchedule")).collect();
        list.push(taint("last".to_owned(), "NoExecute"));
        let expected = TaintVerdict { first_untolerated: Some(30), intolerable_soft: 30 };
        let sets = taints::Sets::new();
        let set = sets.intern(&list);
        assert_eq!((matcher.taints(&set), matcher.taints(&set)), (expected, expected));
    }

    #[test]
    fn sets_of_two_owners_do_not_share_verdicts() {
        let matcher = PodMatcher::default();
        let (sets, others) = (taints::Sets::new(), taints::Sets::new());
        let hard = sets.intern(&[taint("a".to_owned(), "NoSchedule")]);
        let soft = others.intern(&[taint("a".to_owned(), "PreferNoSchedule")]);
        for _ in 0..2 {
            assert_eq!(matcher.taints(&hard).first_untolerated, Some(0));
            assert_eq!(matcher.taints(&soft), TaintVerdict { first_untolerated: None, intolerable_soft: 1 });
        }
    }

    #[test]
    fn sets_that_differ_only_in_time_are_one_to_those_that_do_not_read_it() {
        let sets = taints::Sets::new();
        let at = |seconds: i64| {
            let time_added = Some(api::time::Timestamp { seconds, nanos: 0 });
            sets.intern(&[v1::Taint { time_added, ..taint("a".to_owned(), "NoSchedule") }])
        };
        let (early, late) = (at(1), at(2));
        assert_eq!(early.serial(false), late.serial(false));
        assert_ne!(early.serial(true), late.serial(true));
        assert_eq!(late.taints()[0].time_added.map(|time| time.seconds), Some(2));
    }
}
