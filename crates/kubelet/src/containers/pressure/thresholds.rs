//! Eviction thresholds: which signals are below them, for how long, and which of them lead to evictions now.
//!
//! Follows `pkg/kubelet/eviction` of Kubernetes: a hard threshold acts at once, a soft one when it was met for its grace
//! period, and both until the amount to reclaim is reached. Reads no clock and no file.

use std::collections::BTreeMap;
use std::time::Duration;

use api::Quantity;
use api::time::Timestamp;

use crate::runtime::Pressure;

/// A resource that is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Signal {
    /// `memory.available`
    Memory,
    /// `nodefs.available`
    Disk,
    /// `nodefs.inodesFree`
    Inodes,
}

impl Signal {
    fn parse(name: &str) -> Result<Self, String> {
        match name {
            "memory.available" => Ok(Signal::Memory),
            "nodefs.available" => Ok(Signal::Disk),
            "nodefs.inodesFree" => Ok(Signal::Inodes),
            _ => Err(format!("signal `{name}` is not supported")),
        }
    }

    /// The resource in messages.
    pub(super) fn resource(self) -> &'static str {
        match self {
            Signal::Memory => "memory",
            Signal::Disk => "ephemeral-storage",
            Signal::Inodes => "inodes",
        }
    }
}

/// An amount, absolute or in hundredths of a percent of the capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Amount {
    Absolute(i64),
    Portion(i64),
}

impl Amount {
    fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is neither an amount nor a percentage below 100%");
        if let Some(percent) = text.strip_suffix('%') {
            let (whole, part) = percent.split_once('.').unwrap_or((percent, "0"));
            let part = format!("{part:0<2}");
            let digits = |it: &str| it.parse::<u16>().ok().map(i64::from);
            let whole = digits(whole).filter(|it| *it < 100).ok_or_else(bad)?;
            let part = part.get(..2).and_then(digits).ok_or_else(bad)?;
            return Ok(Amount::Portion(whole.saturating_mul(100).saturating_add(part)));
        }
        let amount = Quantity::parse(text).ok().map(|it| it.value()).filter(|it| *it >= 0);
        amount.map(Amount::Absolute).ok_or_else(bad)
    }

    fn of(self, capacity: i64) -> i64 {
        match self {
            Amount::Absolute(amount) => amount,
            Amount::Portion(portion) => {
                let product = i128::from(capacity).saturating_mul(i128::from(portion));
                product.checked_div(10_000).and_then(|it| i64::try_from(it).ok()).unwrap_or(0)
            }
        }
    }
}

/// An amount below which the node is under pressure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Threshold {
    pub(super) signal: Signal,
    amount: Amount,
    min_reclaim: Option<Amount>,
    /// The time for which a soft threshold must be met; none for hard ones.
    grace: Option<Duration>,
}

impl Threshold {
    pub(super) fn is_hard(&self) -> bool {
        self.grace.is_none()
    }

    /// The threshold as an amount.
    pub(super) fn amount(&self, capacity: i64) -> i64 {
        self.amount.of(capacity)
    }

    fn is_met(&self, observed: ObservedResource, with_reclaim: bool) -> bool {
        let reclaim = self.min_reclaim.filter(|_| with_reclaim).map_or(0, |it| it.of(observed.capacity));
        self.amount(observed.capacity).saturating_add(reclaim) > observed.available
    }
}

/// All thresholds of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thresholds {
    all: Vec<Threshold>,
    /// Longest grace period of pods that are evicted for a soft threshold, in seconds.
    pub(super) max_pod_grace: i64,
    /// The node reports pressure for this long after its end.
    pub(super) transition: Duration,
}

/// Thresholds as flags give them.
#[derive(Debug, Clone, Default)]
pub struct ThresholdFlags {
    /// `SIGNAL<AMOUNT`, separated by commas.
    pub hard: String,
    /// `SIGNAL<AMOUNT`, separated by commas.
    pub soft: String,
    /// `SIGNAL=DURATION`, separated by commas.
    pub soft_grace: Vec<(String, Duration)>,
    /// `SIGNAL=AMOUNT`, separated by commas.
    pub min_reclaim: String,
    /// Longest grace period of pods that are evicted for a soft threshold, in seconds.
    pub max_pod_grace: i64,
    /// The node reports pressure for this long after its end.
    pub transition: Duration,
}

impl Default for Thresholds {
    /// Those of Kubernetes.
    fn default() -> Self {
        Self::hard("memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%").unwrap_or(Self {
            all: Vec::new(),
            max_pod_grace: 0,
            transition: TRANSITION,
        })
    }
}

/// The default of `--eviction-pressure-transition-period`.
pub(super) const TRANSITION: Duration = Duration::from_secs(300);

impl Thresholds {
    /// Hard thresholds: `memory.available<100Mi,nodefs.available<10%`. Signals that are not named are not checked.
    ///
    /// # Errors
    /// A message for users.
    pub fn hard(text: &str) -> Result<Self, String> {
        let flags = ThresholdFlags { hard: text.to_owned(), transition: TRANSITION, ..ThresholdFlags::default() };
        Self::new(&flags)
    }

    /// The thresholds of flags.
    ///
    /// # Errors
    /// A message for users.
    pub fn new(flags: &ThresholdFlags) -> Result<Self, String> {
        let mut reclaims = BTreeMap::new();
        for (signal, amount) in pairs(&flags.min_reclaim, '=')? {
            reclaims.insert(Signal::parse(signal)?, Amount::parse(amount)?);
        }
        let mut graces = BTreeMap::new();
        for (signal, grace) in &flags.soft_grace {
            graces.insert(Signal::parse(signal)?, *grace);
        }
        let mut all = Vec::new();
        for (text, is_hard) in [(&flags.hard, true), (&flags.soft, false)] {
            for (name, amount) in pairs(text, '<')? {
                let signal = Signal::parse(name)?;
                let grace = match is_hard {
                    true => None,
                    false => Some(*graces.get(&signal).ok_or_else(|| {
                        format!("grace period must be specified for the soft eviction threshold {name}")
                    })?),
                };
                let min_reclaim = reclaims.get(&signal).copied();
                all.push(Threshold { signal, amount: Amount::parse(amount)?, min_reclaim, grace });
            }
        }
        if flags.max_pod_grace < 0 {
            return Err("the longest grace period of evicted pods is negative".to_owned());
        }
        // Memory precedes the disk, as in Kubernetes.
        all.sort_by_key(|it| it.signal);
        Ok(Self { all, max_pod_grace: flags.max_pod_grace, transition: flags.transition })
    }
}

fn pairs(text: &str, separator: char) -> Result<Vec<(&str, &str)>, String> {
    let parts = text.split(',').map(str::trim).filter(|it| !it.is_empty());
    parts
        .map(|part| part.split_once(separator).ok_or_else(|| format!("`{part}` is not SIGNAL{separator}AMOUNT")))
        .collect()
}

/// The state of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ObservedResource {
    pub(super) available: i64,
    pub(super) capacity: i64,
}

/// The states of all resources at one moment.
pub(super) type Observations = BTreeMap<Signal, ObservedResource>;

/// The memory between two observations.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    /// Thresholds that are met, by their index, with the time since when.
    since: BTreeMap<usize, Timestamp>,
    /// Thresholds that acted at the last observation: they stay met until the amount to reclaim is reached.
    acting: Vec<usize>,
    /// Time of the last pressure of each kind.
    last: BTreeMap<Signal, Timestamp>,
}

impl Tracker {
    /// Takes an observation; returns the thresholds for which pods are evicted now, the most urgent first.
    pub(super) fn observe(&mut self, thresholds: &Thresholds, seen: &Observations, now: Timestamp) -> Vec<Threshold> {
        let is_met = |(index, threshold): &(usize, &Threshold)| {
            let observed = seen.get(&threshold.signal)?;
            let is_met = threshold.is_met(*observed, self.acting.contains(index));
            is_met.then_some((*index, threshold.signal))
        };
        let met: BTreeMap<usize, Signal> = thresholds.all.iter().enumerate().filter_map(|it| is_met(&it)).collect();
        self.since.retain(|index, _| met.contains_key(index));
        for (index, signal) in &met {
            self.since.entry(*index).or_insert(now);
            self.last.insert(*signal, now);
        }
        let is_due = |index: &usize| {
            let grace = thresholds.all.get(*index).and_then(|it| it.grace).unwrap_or_default();
            self.since.get(index).is_some_and(|since| since.until(now) >= grace)
        };
        self.acting = met.keys().copied().filter(is_due).collect();
        self.acting.iter().filter_map(|index| thresholds.all.get(*index).copied()).collect()
    }

    /// The pressure that the node reports.
    pub(super) fn pressure(&self, thresholds: &Thresholds, now: Timestamp) -> Pressure {
        let holds = |signal: Signal| self.last.get(&signal).is_some_and(|last| last.until(now) < thresholds.transition);
        Pressure { memory: holds(Signal::Memory), disk: holds(Signal::Disk) || holds(Signal::Inodes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanos: 0 }
    }

    fn flags() -> ThresholdFlags {
        ThresholdFlags {
            hard: "memory.available<100".to_owned(),
            soft: "memory.available<300".to_owned(),
            soft_grace: vec![("memory.available".to_owned(), Duration::from_secs(60))],
            min_reclaim: "memory.available=50".to_owned(),
            max_pod_grace: 30,
            transition: Duration::from_secs(120),
        }
    }

    /// Plays the available memory at times; returns for each whether a hard, a soft or no threshold acts, and the
    /// reported pressure.
    fn play(thresholds: &Thresholds, observations: &[(i64, i64)]) -> Vec<(&'static str, bool)> {
        let mut tracker = Tracker::default();
        let step = |(seconds, available): &(i64, i64)| {
            let seen = BTreeMap::from([(Signal::Memory, ObservedResource { available: *available, capacity: 1000 })]);
            let acting = tracker.observe(thresholds, &seen, at(*seconds));
            let word = match (acting.iter().any(Threshold::is_hard), acting.is_empty()) {
                (true, _) => "hard",
                (false, false) => "soft",
                (false, true) => "none",
            };
            (word, tracker.pressure(thresholds, at(*seconds)).memory)
        };
        observations.iter().map(step).collect()
    }

    #[test]
    fn soft_thresholds_act_after_their_grace_period() {
        let thresholds = Thresholds::new(&flags()).unwrap();
        let seen = play(&thresholds, &[(0, 500), (10, 250), (60, 250), (69, 299), (70, 250), (80, 340), (90, 350)]);
        // The node reports pressure from the first observation on. After an eviction the threshold is met until 50 more
        // than it are available.
        let words: Vec<&str> = seen.iter().map(|it| it.0).collect();
        assert_eq!(words, ["none", "none", "none", "none", "soft", "soft", "none"]);
        assert_eq!(seen.iter().map(|it| it.1).collect::<Vec<_>>(), [false, true, true, true, true, true, true]);
    }

    #[test]
    fn recovery_starts_the_grace_period_again() {
        let thresholds = Thresholds::new(&flags()).unwrap();
        let seen = play(&thresholds, &[(0, 250), (50, 400), (55, 250), (100, 250), (115, 250)]);
        assert_eq!(seen.iter().map(|it| it.0).collect::<Vec<_>>(), ["none", "none", "none", "none", "soft"]);
    }

    #[test]
    fn hard_thresholds_act_at_once_and_pressure_lasts() {
        let thresholds = Thresholds::new(&flags()).unwrap();
        let seen = play(&thresholds, &[(0, 99), (10, 149), (20, 500), (129, 500), (131, 500)]);
        assert_eq!(seen.iter().map(|it| it.0).collect::<Vec<_>>(), ["hard", "hard", "none", "none", "none"]);
        assert_eq!(seen.iter().map(|it| it.1).collect::<Vec<_>>(), [true, true, true, true, false]);
    }

    #[test]
    fn amounts_are_absolute_or_portions() {
        let amount = |text: &str| Amount::parse(text).map(|it| it.of(2000));
        assert_eq!(
            (amount("1Ki"), amount("10%"), amount("7.5%"), amount("0.25%")),
            (Ok(1024), Ok(200), Ok(150), Ok(5))
        );
        for bad in ["", "x", "100%", "-1", "1.%%", "a%"] {
            assert!(amount(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn flags_are_checked() {
        let all = Thresholds::hard("nodefs.available<10%, memory.available<100Mi,nodefs.inodesFree<5%").unwrap();
        assert_eq!(all, Thresholds::default());
        assert_eq!(all.all.first().map(|it| it.signal), Some(Signal::Memory));
        assert!(Thresholds::hard("").unwrap().all.is_empty());
        for bad in ["memory.available", "memory.available<x", "nodefs.available<100%", "pid.available<1"] {
            assert!(Thresholds::hard(bad).is_err(), "{bad}");
        }
        let without_grace = ThresholdFlags { soft_grace: Vec::new(), ..flags() };
        assert!(Thresholds::new(&without_grace).unwrap_err().contains("grace period must be specified"));
        let negative = ThresholdFlags { max_pod_grace: -1, ..flags() };
        assert!(Thresholds::new(&negative).is_err());
    }
}
