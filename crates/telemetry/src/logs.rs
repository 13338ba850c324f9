//! Where log lines go: standard error, as text or as JSON.

use std::sync::atomic::{AtomicU8, Ordering};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::time::SystemTime;

/// How lines look.
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

/// Kubernetes' verbosity of the process: what is too much even for a trace asks for it before it is put together.
#[must_use]
pub fn verbosity() -> u8 {
    VERBOSITY.load(Ordering::Relaxed)
}

/// Starts logging for the whole process. A second call changes nothing.
pub fn start(format: Format, verbosity: u8) {
    VERBOSITY.store(verbosity, Ordering::Relaxed);
    let builder = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(level(verbosity))
        .with_timer(SystemTime)
        .with_target(false);
    // An error means that logging has been started before.
    let _ = match format {
        Format::Text => builder.with_ansi(false).try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbosity_follows_kubernetes() {
        assert_eq!(level(0), LevelFilter::WARN);
        assert_eq!(level(2), LevelFilter::INFO);
        assert_eq!(level(4), LevelFilter::DEBUG);
        assert_eq!(level(9), LevelFilter::TRACE);
    }
}
