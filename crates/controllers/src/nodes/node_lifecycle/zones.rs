//! Rate limits of evictions by zone.
//!
//! When most of a zone is silent, the fault is more likely in between: evictions slow down, and stop when all zones are
//! silent. Follows `ComputeZoneState` and `handleDisruption` of Kubernetes' node lifecycle controller.

use std::collections::{BTreeMap, VecDeque};

use api::core::v1::Node;
use api::json::Text;
use api::time::Timestamp;
use api::well_known::{LABEL_TOPOLOGY_REGION, LABEL_TOPOLOGY_ZONE};

/// Eviction rates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Nodes per second in a healthy zone, and in one that is wholly silent while others are not.
    pub normal: f64,
    /// Nodes per second in a large zone that is partly silent; small ones stop.
    pub reduced: f64,
    /// A zone with more nodes than this is large.
    pub large_zone: usize,
    /// The share of silent nodes from which a zone counts as partly silent.
    pub unhealthy_share: f64,
}

impl Default for Rates {
    fn default() -> Self {
        Rates { normal: 0.1, reduced: 0.01, large_zone: 50, unhealthy_share: 0.55 }
    }
}

/// State of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Most nodes are ready.
    Normal,
    /// Many are not.
    Partial,
    /// None is.
    Full,
}

/// The name of a node's zone and region, empty if it has neither.
#[must_use]
pub fn key(node: &Node) -> Text {
    let label = |old: &str, new: &str| {
        let labels = &node.metadata.labels;
        labels.get(old).or_else(|| labels.get(new)).cloned().unwrap_or_default()
    };
    let zone = label("failure-domain.beta.kubernetes.io/zone", LABEL_TOPOLOGY_ZONE);
    let region = label("failure-domain.beta.kubernetes.io/region", LABEL_TOPOLOGY_REGION);
    match (region.as_str(), zone.as_str()) {
        ("", "") => Text::default(),
        (region, zone) => format!("{region}:\0:{zone}").into(),
    }
}

/// Returns the state of a zone with these numbers of ready and other nodes.
#[must_use]
pub fn state(ready: usize, not_ready: usize, rates: &Rates) -> State {
    #[expect(clippy::cast_precision_loss, reason = "counts of nodes are small")]
    let share = not_ready as f64 / ready.saturating_add(not_ready).max(1) as f64;
    match () {
        () if ready == 0 && not_ready > 0 => State::Full,
        () if not_ready > 2 && share >= rates.unhealthy_share => State::Partial,
        () => State::Normal,
    }
}

/// Overall state of all zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlook {
    /// No change.
    Steady,
    /// All nodes are silent: earlier taints are removed, and no more are added.
    AllSilent,
    /// The zones have recovered: their grace periods restart.
    BackAgain,
}

/// The zones, and the nodes that wait for eviction in each.
#[derive(Debug, Default)]
pub struct Zones {
    zones: BTreeMap<Text, Zone>,
}

#[derive(Debug)]
struct Zone {
    state: Option<State>,
    rate: f64,
    /// The fill of a token bucket that holds one token.
    tokens: f64,
    filled: Timestamp,
    waiting: VecDeque<Text>,
}

impl Zone {
    fn new(rates: &Rates, now: Timestamp) -> Self {
        Zone { state: None, rate: rates.normal, tokens: 1.0, filled: now, waiting: VecDeque::new() }
    }

    fn fill(&mut self, now: Timestamp) {
        let seconds = self.filled.until(now).as_secs_f64();
        self.tokens = (self.tokens + seconds * self.rate).min(1.0);
        self.filled = now;
    }

    fn set_rate(&mut self, rate: f64, now: Timestamp) {
        if (self.rate - rate).abs() > f64::EPSILON {
            self.fill(now);
            // Nodes that were waiting for a turn still are.
            self.tokens = if self.tokens >= 1.0 { 1.0 } else { 0.0 };
            self.rate = rate;
        }
    }
}

impl Zones {
    /// Adds a node to the waiting ones.
    pub fn wait(&mut self, zone: &Text, node: &Text, rates: &Rates, now: Timestamp) {
        let zone = self.zones.entry(zone.clone()).or_insert_with(|| Zone::new(rates, now));
        if !zone.waiting.contains(node) {
            zone.waiting.push_back(node.clone());
        }
    }

    /// Removes a node from the waiting ones.
    pub fn keep(&mut self, node: &str) {
        self.zones.values_mut().for_each(|zone| zone.waiting.retain(|waiting| waiting != node));
    }

    /// The nodes that are due now, among the suitable ones. They no longer wait.
    pub fn due(&mut self, now: Timestamp, is_fit: impl Fn(&str) -> bool) -> Vec<Text> {
        let mut due = Vec::new();
        for zone in self.zones.values_mut() {
            zone.fill(now);
            // A bucket of one: at most one at a time, at the given rate.
            if zone.tokens >= 1.0
                && zone.rate > 0.0
                && let Some(place) = zone.waiting.iter().position(|node| is_fit(node))
                && let Some(node) = zone.waiting.remove(place)
            {
                zone.tokens = 0.0;
                due.push(node);
            }
        }
        due
    }

    /// Whether any node waits.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.zones.values().any(|zone| !zone.waiting.is_empty())
    }

    /// Takes in how many nodes of each zone are ready and are not, and sets the rates.
    pub fn look(&mut self, counts: &BTreeMap<Text, (usize, usize)>, rates: &Rates, now: Timestamp) -> Outlook {
        for zone in counts.keys() {
            self.zones.entry(zone.clone()).or_insert_with(|| Zone::new(rates, now));
        }
        self.zones.retain(|zone, _| counts.contains_key(zone));
        let states: BTreeMap<&Text, (State, usize)> = counts
            .iter()
            .map(|(zone, (ready, rest))| (zone, (state(*ready, *rest, rates), ready.saturating_add(*rest))))
            .collect();
        let all_silent = states.values().all(|(state, _)| *state == State::Full);
        let was_silent = self.zones.values().all(|zone| zone.state == Some(State::Full));
        if all_silent && was_silent {
            return Outlook::Steady;
        }
        for (name, zone) in &mut self.zones {
            let Some((state, size)) = states.get(name) else { continue };
            let rate = match state {
                _ if all_silent => 0.0,
                State::Partial if *size <= rates.large_zone => 0.0,
                State::Partial => rates.reduced,
                State::Normal | State::Full => rates.normal,
            };
            zone.set_rate(rate, now);
            zone.state = Some(*state);
        }
        match (all_silent, was_silent) {
            (true, _) if !counts.is_empty() => Outlook::AllSilent,
            (_, true) if !counts.is_empty() => Outlook::BackAgain,
            _ => Outlook::Steady,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanos: 0 }
    }

    fn counts(list: &[(&str, usize, usize)]) -> BTreeMap<Text, (usize, usize)> {
        list.iter().map(|(zone, ready, rest)| (Text::from(*zone), (*ready, *rest))).collect()
    }

    #[test]
    fn a_zone_is_partly_silent_from_three_nodes_and_a_share_on() {
        let rates = Rates::default();
        assert_eq!(state(0, 1, &rates), State::Full);
        assert_eq!(state(1, 2, &rates), State::Normal);
        assert_eq!(state(2, 3, &rates), State::Partial);
        assert_eq!(state(3, 3, &rates), State::Normal);
        assert_eq!(state(0, 0, &rates), State::Normal);
    }

    #[test]
    fn nodes_are_given_up_one_by_one_at_the_rate() {
        let (rates, mut zones) = (Rates::default(), Zones::default());
        zones.look(&counts(&[("a", 10, 2)]), &rates, at(0));
        for node in ["n1", "n2", "n1"] {
            zones.wait(&"a".into(), &node.into(), &rates, at(0));
        }
        assert!(zones.due(at(0), |_| false).is_empty());
        assert_eq!(zones.due(at(0), |_| true), ["n1"]);
        assert!(zones.due(at(9), |_| true).is_empty());
        assert_eq!(zones.due(at(10), |_| true), ["n2"]);
        assert!(!zones.is_waiting());
    }

    #[test]
    fn a_small_zone_that_is_partly_silent_stops_and_a_large_one_slows_down() {
        let (rates, mut zones) = (Rates::default(), Zones::default());
        zones.look(&counts(&[("a", 2, 8), ("b", 20, 80), ("c", 5, 0)]), &rates, at(0));
        zones.wait(&"a".into(), &"a1".into(), &rates, at(0));
        zones.wait(&"b".into(), &"b1".into(), &rates, at(0));
        zones.wait(&"b".into(), &"b2".into(), &rates, at(0));
        assert_eq!(zones.due(at(1), |_| true), ["b1"]);
        assert!(zones.due(at(99), |_| true).is_empty());
        assert_eq!(zones.due(at(200), |_| true), ["b2"]);
    }

    #[test]
    fn when_all_zones_are_silent_nothing_is_done_until_one_is_back() {
        let (rates, mut zones) = (Rates::default(), Zones::default());
        assert_eq!(zones.look(&counts(&[("a", 1, 0), ("b", 1, 0)]), &rates, at(0)), Outlook::Steady);
        assert_eq!(zones.look(&counts(&[("a", 0, 1), ("b", 1, 0)]), &rates, at(5)), Outlook::Steady);
        zones.wait(&"a".into(), &"a1".into(), &rates, at(5));
        assert_eq!(zones.look(&counts(&[("a", 0, 1), ("b", 0, 1)]), &rates, at(10)), Outlook::AllSilent);
        assert!(zones.due(at(1000), |_| true).is_empty());
        assert_eq!(zones.look(&counts(&[("a", 0, 1), ("b", 0, 1)]), &rates, at(15)), Outlook::Steady);
        assert_eq!(zones.look(&counts(&[("a", 0, 1), ("b", 1, 0)]), &rates, at(20)), Outlook::BackAgain);
        assert_eq!(zones.due(at(40), |_| true), ["a1"]);
    }
}
