//! Pauses between attempts: none before the first repetition is decided by the caller, then 10 s, doubling to 300 s.

use std::time::Duration;

use api::time::Timestamp;

const FIRST: Duration = Duration::from_secs(10);
const MAX: Duration = Duration::from_secs(300);
/// Time between two attempts after which the delay starts over.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// The pause of something that fails repeatedly.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BackOff {
    pause: Duration,
    since: Option<Timestamp>,
}

impl BackOff {
    /// Records a failure; the delay starts now and is longer than the last.
    pub(super) fn fail(&mut self, now: Timestamp) {
        let is_old = self.since.is_some_and(|since| since.plus(self.pause).until(now) > FORGOTTEN);
        self.pause = if self.pause.is_zero() || is_old { FIRST } else { self.pause.saturating_mul(2).min(MAX) };
        self.since = Some(now);
    }

    /// The rest of the delay; `None` if it has passed.
    pub(super) fn left(&self, now: Timestamp) -> Option<Duration> {
        self.left_since(self.since?, now)
    }

    /// The rest of the pause if it began at `since`.
    pub(super) fn left_since(&self, since: Timestamp, now: Timestamp) -> Option<Duration> {
        let left = self.pause.saturating_sub(since.until(now));
        (!left.is_zero()).then_some(left)
    }

    /// The whole pause.
    pub(super) fn pause(&self) -> Duration {
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_until_the_last_is_long_ago() {
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        let mut back_off = BackOff::default();
        assert_eq!(back_off.left(at(0)), None);
        let mut pauses = Vec::new();
        let mut now = 0;
        for _ in 0..7 {
            back_off.fail(at(now));
            pauses.push(back_off.pause().as_secs());
            now += 300;
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(back_off.left(at(1800 + 299)), Some(Duration::from_secs(1)));
        back_off.fail(at(now + 2000));
        assert_eq!(back_off.pause().as_secs(), 10);
    }
}
