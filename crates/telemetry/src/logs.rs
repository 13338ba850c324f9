//! Output of log lines: standard error, as text or as JSON.

use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::time::SystemTime;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The most detailed level that is logged at Kubernetes' verbosity `-v=N`.
#[must_use]
pub fn level(verbosity: u8) -> LevelFilter {
    match verbosity {
        0 => LevelFilter::WARN,
        1..=3 => LevelFilter::INFO,
        4 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

static VERBOSITY: AtomicU8 = AtomicU8::new(0);

/// Kubernetes' verbosity of the process: very detailed messages check it before they are formatted.
#[must_use]
pub fn verbosity() -> u8 {
    VERBOSITY.load(Ordering::Relaxed)
}

/// Starts logging for the whole process. A second call changes nothing.
pub fn start(format: Format, verbosity: u8) {
    VERBOSITY.store(verbosity, Ordering::Relaxed);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_timer(SystemTime).with_target(false);
    let lines = match format {
        Format::Text => lines.with_ansi(false).boxed(),
        Format::Json => lines.json().flatten_event(true).boxed(),
    };
    // An error means that logging has been started before.
    let _ = tracing_subscriber::registry().with(filter(verbosity)).with(lines).try_init();
}

/// The levels by the crate that logs. Libraries below HTTP log every frame as details: those are left to the highest
/// verbosities.
fn filter(verbosity: u8) -> Targets {
    let libraries = match verbosity {
        0..=5 => LevelFilter::WARN,
        6..=8 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let names = ["h2", "hyper", "hyper_util", "rustls", "tokio_tungstenite", "tower", "tungstenite", "mio"];
    names.into_iter().fold(Targets::new().with_default(level(verbosity)), |all, name| {
        all.with_target(name, libraries.min(level(verbosity)))
    })
}

/// An error with its causes, in one line: `err = %chain(&error)`.
///
/// A cause whose text the error above it ends with already is not repeated.
#[must_use]
pub fn chain<'e>(error: &'e (dyn Error + 'e)) -> Chain<'e> {
    Chain(error)
}

/// The text of [`chain`].
#[derive(Debug, Clone, Copy)]
pub struct Chain<'e>(&'e (dyn Error + 'e));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        out.write_str(&text)?;
        let mut next = self.0.source();
        while let Some(cause) = next {
            let below = cause.to_string();
            if !text.ends_with(&below) {
                write!(out, ": {below}")?;
                text = below;
            }
            next = cause.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Step(&'static str, Option<Box<Step>>);

    impl fmt::Display for Step {
        fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str(self.0)
        }
    }

    impl Error for Step {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|step| step as &(dyn Error + 'static))
        }
    }

    #[test]
    fn chain_names_every_cause_once() {
        let refused = Step("connection refused", None);
        let connect = Step("tcp connect: connection refused", Some(Box::new(refused)));
        let request = Step("no response to the request", Some(Box::new(connect)));
        assert_eq!(chain(&request).to_string(), "no response to the request: tcp connect: connection refused");
        assert_eq!(chain(&Step("alone", None)).to_string(), "alone");
    }

    #[test]
    fn frames_of_http_are_not_logged_at_usual_verbosities() {
        use tracing::Level;
        for (verbosity, own, of_libraries) in [(2, false, false), (4, true, false), (7, true, true)] {
            let filter = filter(verbosity);
            let found = ["celplane_scheduler::shell", "h2::codec::framed_write"]
                .map(|target| filter.would_enable(target, &Level::DEBUG));
            assert_eq!(found, [own, of_libraries], "-v={verbosity}");
        }
    }

    #[test]
    fn verbosity_follows_kubernetes() {
        assert_eq!(level(0), LevelFilter::WARN);
        assert_eq!(level(2), LevelFilter::INFO);
        assert_eq!(level(4), LevelFilter::DEBUG);
        assert_eq!(level(9), LevelFilter::TRACE);
    }
}
