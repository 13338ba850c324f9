//! Output of a container, and options for reading it.
//!
//! Follows `PodLogOptions`, which `kubectl logs` fills in. Following a log means reading it repeatedly: a
//! simulated container writes only when it starts and when it ends.

use std::fmt::Write as _;
use std::time::Duration;

use api::time::Timestamp;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Time of the line.
    pub time: Timestamp,
    /// The line without its end.
    pub text: String,
}

/// Options for reading logs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Read the log of the previous run.
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

    /// The number of bytes that is wanted at most.
    #[must_use]
    pub fn limit(&self) -> Option<usize> {
        self.limit_bytes
    }

    /// Lines that follow those that were wanted, as text.
    #[must_use]
    pub fn render_more(&self, lines: &[Line]) -> String {
        let options = Options { timestamps: self.timestamps, ..Options::default() };
        options.render(lines, Timestamp { seconds: 0, nanos: 0 })
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
                true => writeln!(text, "{} {}", precise(line.time), line.text),
                false => writeln!(text, "{}", line.text),
            };
        }
        if let Some(limit) = self.limit_bytes.filter(|limit| *limit < text.len()) {
            text.truncate(text.floor_char_boundary(limit));
        }
        text
    }
}

/// A time with as many digits of a fraction as it has, as Go prints it.
fn precise(time: Timestamp) -> String {
    let whole = Timestamp { nanos: 0, ..time }.to_string();
    if time.nanos == 0 {
        return whole;
    }
    let fraction = format!("{:09}", time.nanos);
    format!("{}.{}Z", whole.trim_end_matches('Z'), fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    #[test]
    fn timestamps_keep_their_fraction() {
        let at = |nanos| precise(Timestamp { seconds: 1, nanos });
        assert_eq!((at(0).as_str(), at(50_000_000).as_str()), ("1970-01-01T00:00:01Z", "1970-01-01T00:00:01.05Z"));
    }

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
    fn invalid_options_are_rejected() {
        assert_eq!(Options::new([("tailLines", "-1")]), Err("tailLines: cannot read \"-1\"".to_owned()));
    }
}
