//! Which time of a schedule is due: the last that has passed and was not started.

use api::batch::v1::CronJob;
use api::time::Timestamp;

use super::schedule::Schedule;

/// More than this was missed: something is wrong.
const MANY: i64 = 100;

/// What has become due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Due {
    /// The last time that has passed, if one has.
    pub(super) at: Option<Timestamp>,
    /// Whether many were missed.
    pub(super) many: bool,
    /// From when on times count.
    pub(super) since: Option<Timestamp>,
}

/// Looks back from `now` to the last start, or the creation; with a deadline no further than that.
pub(super) fn due(cron: &CronJob, schedule: &Schedule, now: Timestamp, with_deadline: bool) -> Due {
    let mut since = cron.status.last_schedule_time.or(cron.metadata.creation_timestamp).unwrap_or(now);
    if let Some(seconds) = cron.spec.starting_deadline_seconds.filter(|_| with_deadline) {
        since = since.max(now.plus_seconds(seconds.saturating_neg()));
    }
    let none = Due { since: Some(since), ..Due::default() };
    let Some(first) = schedule.next(since).filter(|first| *first <= now) else { return none };
    let Some(second) = schedule.next(first).filter(|second| *second <= now) else {
        return Due { at: Some(first), ..none };
    };
    // The times between are most often equal: begin near the end instead of counting all of them.
    let between = second.seconds.saturating_sub(first.seconds).max(1);
    let passed = now.seconds.saturating_sub(first.seconds);
    let missed = passed.checked_div(between).unwrap_or(0).saturating_add(1);
    // Where they are not, one looks further back, twice as far each time. (Kubernetes gives up here.)
    let mut back = between.saturating_mul(2);
    let at = loop {
        let from = now.plus_seconds(back.saturating_neg()).max(first.plus_seconds(-1));
        let found = last_between(schedule, from, now);
        if found.is_some() || from <= first {
            break found.or(Some(first));
        }
        back = back.saturating_mul(2);
    };
    Due { at, many: missed > MANY, since: Some(since) }
}

/// The last time after `from` that is not after `to`.
fn last_between(schedule: &Schedule, from: Timestamp, to: Timestamp) -> Option<Timestamp> {
    let times = std::iter::successors(schedule.next(from), |time| schedule.next(*time));
    times.take_while(|time| *time <= to).last()
}

/// The time at which the next Job is to be started.
pub(super) fn next(cron: &CronJob, schedule: &Schedule, now: Timestamp) -> Option<Timestamp> {
    let due = due(cron, schedule, now, false);
    schedule.next(due.at.or(due.since).unwrap_or(now))
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
        assert_eq!((due.at.map(|at| at.to_string()).unwrap_or_default(), due.many), (expected.to_owned(), many));
    }

    #[test]
    fn the_last_that_has_passed_is_due() {
        check("* * * * *", None, "2026-03-01T10:00:59Z", "", false);
        check("* * * * *", None, "2026-03-01T10:01:00Z", "2026-03-01T10:01:00Z", false);
        check("* * * * *", None, "2026-03-01T10:05:30Z", "2026-03-01T10:05:00Z", false);
        check("* * * * *", None, "2026-03-02T10:05:30Z", "2026-03-02T10:05:00Z", true);
        check("* * * * *", Some(100), "2026-03-02T10:05:30Z", "2026-03-02T10:05:00Z", false);
        // Uneven times: days of work only.
        check("0 9 * * mon-fri", None, "2026-03-15T10:00:00Z", "2026-03-13T09:00:00Z", false);
    }
}
