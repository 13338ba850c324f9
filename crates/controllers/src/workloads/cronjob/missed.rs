//! Due time of a schedule: the last one that has passed and was not started.

use api::batch::v1::CronJob;
use api::time::Timestamp;

use super::schedule::Schedule;

/// More than this was missed: something is wrong.
const MANY: i64 = 100;

/// A due time of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct DueTime {
    /// The last time that has passed, if one is found.
    pub(super) at: Option<Timestamp>,
    /// Approximate number of missed starts, if more than one.
    missed: i64,
    /// From when on times count.
    since: Option<Timestamp>,
}

impl DueTime {
    /// Whether many were missed.
    pub(super) fn many(&self) -> bool {
        self.missed > MANY
    }
}

/// Finds the starts that are due between the last start (or the creation) and `now`; with a deadline, none that is older
/// than it.
pub(super) fn due(cron: &CronJob, schedule: &Schedule, now: Timestamp, with_deadline: bool) -> DueTime {
    let mut since = cron.status.last_schedule_time.or(cron.metadata.creation_timestamp).unwrap_or(now);
    if let Some(seconds) = cron.spec.starting_deadline_seconds.filter(|_| with_deadline) {
        since = since.max(now.plus_seconds(seconds.saturating_neg()));
    }
    let none = DueTime { since: Some(since), ..DueTime::default() };
    let Some(first) = schedule.next(since).filter(|first| *first <= now) else { return none };
    let Some(second) = schedule.next(first).filter(|second| *second <= now) else {
        return DueTime { at: Some(first), ..none };
    };
    // The intervals are most often equal: start near the end instead of counting all of them. Kubernetes: if
    // they are not, and no time is found there, missed ones are not made up.
    let between = second.seconds.saturating_sub(first.seconds).max(1);
    let passed = now.seconds.saturating_sub(first.seconds);
    let missed = passed.checked_div(between).unwrap_or(0).saturating_add(1);
    let from = first.plus_seconds(missed.saturating_sub(2).saturating_mul(between));
    DueTime { at: last_between(schedule, from, now), missed, ..none }
}

/// The last time after `from` that is not after `to`.
fn last_between(schedule: &Schedule, from: Timestamp, to: Timestamp) -> Option<Timestamp> {
    let times = std::iter::successors(schedule.next(from), |time| schedule.next(*time));
    times.take_while(|time| *time <= to).last()
}

/// The time at which the next Job is to be started.
pub(super) fn next(cron: &CronJob, schedule: &Schedule, now: Timestamp) -> Option<Timestamp> {
    let due = due(cron, schedule, now, false);
    let last = if due.missed == 0 { due.at.or(due.since) } else { due.at };
    schedule.next(last.unwrap_or(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    #[track_caller]
    fn check(schedule: &str, deadline: Option<i64>, now: &str, expected: &str, many: bool) {
        let mut cron = CronJob::default();
        cron.metadata.creation_timestamp = Some(at("2026-03-01T10:00:30Z"));
        cron.spec.starting_deadline_seconds = deadline;
        let due = due(&cron, &Schedule::parse(schedule, None).unwrap(), at(now), true);
        assert_eq!((due.at.map(|at| at.to_string()).unwrap_or_default(), due.many()), (expected.to_owned(), many));
    }

    #[test]
    fn the_last_that_has_passed_is_due() {
        check("* * * * *", None, "2026-03-01T10:00:59Z", "", false);
        check("* * * * *", None, "2026-03-01T10:01:00Z", "2026-03-01T10:01:00Z", false);
        check("* * * * *", None, "2026-03-01T10:05:30Z", "2026-03-01T10:05:00Z", false);
        check("* * * * *", None, "2026-03-02T10:05:30Z", "2026-03-02T10:05:00Z", true);
        check("* * * * *", Some(100), "2026-03-02T10:05:30Z", "2026-03-02T10:05:00Z", false);
        // Uneven times, days of work only: on a weekend nothing is found near the end.
        check("0 9 * * mon-fri", None, "2026-03-13T10:00:00Z", "2026-03-13T09:00:00Z", false);
        check("0 9 * * mon-fri", None, "2026-03-15T10:00:00Z", "", false);
        // Counted from the first, not from now.
        check("@every 90s", None, "2026-03-01T10:07:00Z", "2026-03-01T10:06:30Z", false);
    }

    #[test]
    fn the_next_time_follows_the_last_or_now() {
        let mut cron = CronJob::default();
        cron.metadata.creation_timestamp = Some(at("2026-03-01T10:00:30Z"));
        let check = |schedule: &str, now: &str, expected: &str| {
            let next = next(&cron, &Schedule::parse(schedule, None).unwrap(), at(now));
            assert_eq!(next.unwrap().to_string(), expected, "{schedule} {now}");
        };
        check("0 * * * *", "2026-03-01T10:05:30Z", "2026-03-01T11:00:00Z");
        check("* * * * *", "2026-03-01T10:05:30Z", "2026-03-01T10:06:00Z");
        check("0 9 * * mon-fri", "2026-03-15T10:00:00Z", "2026-03-16T09:00:00Z");
    }
}
