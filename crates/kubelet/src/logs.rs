//! What a container has written, and how much of it somebody wants to read.
//!
//! Follows `PodLogOptions`, which `kubectl logs` fills in. Who follows a log asks again: what a simulated container
//! writes, it writes when it starts and when it ends.

use std::fmt::Write as _;
use std::time::Duration;

use api::time::Timestamp;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// When it was written.
    pub time: Timestamp,
    /// The line without its end.
    pub text: String,
}

/// What is wanted of the logs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Of the run before this one.
    pub previous: bool,
    timestamps: bool,
    tail_lines: Option<usize>,
    limit_bytes: Option<usize>,
    since: Option<Timestamp>,
    since_seconds: Option<u64>,
}

impl Options {
    /// Reads options by the names of `PodLogOptions`. Unknown ones are ignored.
    ///
    /// # Errors
    /// The first value that cannot be read.
    pub fn new<'t>(given: impl IntoIterator<Item = (&'t str, &'t str)>) -> Result<Self, String> {
        let mut options = Options::default();
        for (name, value) in given {
            let wrong = || format!("{name}: cannot read \"{value}\"");
            let number = || value.parse::<usize>().map(Some).map_err(|_| wrong());
            let flag = !matches!(value, "false" | "0");
            match name {
                "previous" => options.previous = flag,
                "timestamps" => options.timestamps = flag,
                "tailLines" => options.tail_lines = number()?,
                "limitBytes" => options.limit_bytes = number()?,
                "sinceSeconds" => options.since_seconds = Some(value.parse().map_err(|_| wrong())?),
                "sinceTime" => options.since = Some(Timestamp::parse(value).map_err(|_| wrong())?),
                _ => {}
            }
        }
        Ok(options)
    }

    /// The lines that are wanted, as text.
    #[must_use]
    pub fn render(&self, lines: &[Line], now: Timestamp) -> String {
        let is_recent = |line: &&Line| {
            self.since.is_none_or(|since| line.time >= since)
                && self.since_seconds.is_none_or(|seconds| line.time.plus(Duration::from_secs(seconds)) >= now)
        };
        let recent: Vec<&Line> = lines.iter().filter(is_recent).collect();
        let skipped = self.tail_lines.map_or(0, |wanted| recent.len().saturating_sub(wanted));
        let mut text = String::new();
        for line in recent.into_iter().skip(skipped) {
            // Writing to a string does not fail.
            let _ = match self.timestamps {
                true => writeln!(text, "{} {}", line.time, line.text),
                false => writeln!(text, "{}", line.text),
            };
        }
        if let Some(limit) = self.limit_bytes.filter(|limit| *limit < text.len()) {
            text.truncate(text.floor_char_boundary(limit));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanos: 0 }
    }

    #[track_caller]
    fn check(options: &[(&str, &str)], text: &str) {
        let lines = [("a", 10), ("b", 20), ("c", 30)];
        let lines = lines.map(|(text, seconds)| Line { time: at(seconds), text: text.to_owned() });
        assert_eq!(Options::new(options.iter().copied()).unwrap().render(&lines, at(40)), text, "{options:?}");
    }

    #[test]
    fn as_much_is_shown_as_is_wanted() {
        check(&[], "a\nb\nc\n");
        check(&[("tailLines", "1")], "c\n");
        check(&[("tailLines", "0")], "");
        check(&[("limitBytes", "3")], "a\nb");
        check(&[("sinceSeconds", "20")], "b\nc\n");
        check(&[("sinceTime", "1970-01-01T00:00:25Z"), ("timestamps", "true")], "1970-01-01T00:00:30Z c\n");
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        assert_eq!(Options::new([("tailLines", "-1")]), Err("tailLines: cannot read \"-1\"".to_owned()));
    }
}
