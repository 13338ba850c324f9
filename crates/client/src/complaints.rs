//! Reports about expressions without an answer: every component writes the same event and the same line in the log.

use api::core::v1::ObjectReference;
use tracing::{debug, error, trace};

use crate::events::{Recorder, Severity};

/// A report.
#[derive(Debug, Clone)]
pub struct Report<'a> {
    /// The message in the log.
    pub title: &'a str,
    /// Lowest verbosity at which it is logged; 0 for an error.
    pub verbosity: u8,
    /// Node, expression or label, value and error.
    pub parts: [&'a str; 4],
    /// Reason and note of the event, where there is one.
    pub event: Option<(&'static str, String)>,
}

/// Reports about an object.
pub fn report(recorder: &Recorder, about: ObjectReference, report: Report<'_>) {
    let name = format!("{}/{}", about.namespace, about.name);
    let [node, expression, value, why] = report.parts;
    let title = report.title;
    // Keys in the log are constants.
    macro_rules! log {
        ($level:ident) => {
            match about.kind.as_str() {
                "DaemonSet" => $level!(daemonSet = %name, node, expression, value, err = why, "{title}"),
                _ => $level!(pod = %name, node, expression, value, err = why, "{title}"),
            }
        };
    }
    match report.verbosity {
        0 => log!(error),
        1..=4 => log!(debug),
        _ => log!(trace),
    }
    if let Some((reason, note)) = report.event {
        recorder.event(about, Severity::Warning, reason, &note);
    }
}
