//! Measurements by the active attacks.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::{ALL, ATTACKS};

/// Latencies of requests, by the attacks that were active when they were sent.
#[derive(Default)]
pub(super) struct Samples(BTreeMap<u32, Vec<Duration>>);

impl Samples {
    pub(super) fn add(&mut self, during: u32, took: Duration) {
        self.0.entry(during).or_default().push(took);
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (during, times) in other.0 {
            self.0.entry(during).or_default().extend(times);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    pub(super) fn longest(&self) -> Duration {
        self.0.values().flatten().copied().max().unwrap_or_default()
    }

    pub(super) fn of(&mut self, during: u32) -> &mut [Duration] {
        self.0.entry(during).or_default()
    }
}

/// The most memory, by the attacks that were under way.
#[derive(Default)]
pub(super) struct Peaks(BTreeMap<u32, u64>);

impl Peaks {
    pub(super) fn add(&mut self, during: u32, kibibytes: u64) {
        let peak = self.0.entry(during).or_default();
        *peak = kibibytes.max(*peak);
    }

    pub(super) fn highest(&self) -> u64 {
        self.0.values().copied().max().unwrap_or_default()
    }
}

/// Number of steps of each attack, by the active attacks.
pub(super) type Steps = BTreeMap<u32, Vec<usize>>;

fn part(times: &mut [Duration], hundredths: usize) -> Duration {
    times.sort_unstable();
    times.get(times.len().saturating_sub(1) * hundredths / 100).copied().unwrap_or_default()
}

pub(super) fn p99(times: &mut [Duration]) -> Duration {
    part(times, 99)
}

/// The table: a row for quiet, one for each attack that came alone, and one for all of them.
pub(super) fn of(
    windows: &[u32],
    attacked: &[usize],
    steps: &Steps,
    ordinary: &mut Samples,
    health: &mut Samples,
    peaks: &Peaks,
) -> String {
    let mut text = String::from(
        "| attack | windows | requests p50 | p99 | failed | health p50 | p99 | longest | failed | steps | most memory |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut masks: Vec<u32> = windows.to_vec();
    masks.sort_unstable();
    masks.dedup();
    for mask in masks {
        let name = match mask {
            0 => "none".to_owned(),
            ALL => "all of them".to_owned(),
            one => ATTACKS.get(one.trailing_zeros() as usize).map_or_else(String::new, |it| it.name.to_owned()),
        };
        let count = windows.iter().filter(|it| **it == mask).count();
        let taken: usize = steps.get(&mask).into_iter().flatten().sum();
        let ms = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1000.0);
        let (requests, probes) = (ordinary.of(mask), health.of(mask));
        // A request or a probe that fails ends the test.
        let _ = writeln!(
            text,
            "| {name} | {count} | {} | {} | 0 of {} | {} | {} | {} | 0 of {} | {taken} | {} MiB |",
            ms(part(requests, 50)),
            ms(p99(requests)),
            requests.len(),
            ms(part(probes, 50)),
            ms(p99(probes)),
            ms(probes.last().copied().unwrap_or_default()),
            probes.len(),
            peaks.0.get(&mask).copied().unwrap_or_default() >> 10,
        );
    }
    let together = |place: usize| steps.get(&ALL).and_then(|steps| steps.get(place)).copied().unwrap_or_default();
    let all = ATTACKS.iter().zip(attacked).enumerate();
    let all = all.map(|(place, (attack, taken))| format!("{} {taken} ({} together)", attack.name, together(place)));
    let _ = write!(text, "\nsteps: {}", all.collect::<Vec<_>>().join(", "));
    text
}
