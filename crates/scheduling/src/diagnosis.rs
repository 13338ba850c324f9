//! Reasons why a pod fits nowhere, and their message.
//!
//! The message is Kubernetes' (`FitError`), except that taints are named: one reason per distinct taint, at
//! most [`NAMED_TAINTS`], within the length of an event.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::cluster::NodeId;
use crate::framework::{Code, Status};

/// The plugin whose reasons are merged by taint.
pub(crate) const TAINT_TOLERATION: &str = "TaintToleration";

/// Prefix of every reason of that plugin; the taint follows.
pub(crate) const UNTOLERATED_TAINT: &str = "node(s) had untolerated taint";

/// Maximum number of distinct taints in a message.
pub const NAMED_TAINTS: usize = 8;

/// Maximum length of an event's note.
pub const MESSAGE_MAX: usize = 1024;

/// Reasons why a pod fits nowhere.
#[derive(Debug, Clone, Default)]
pub struct Diagnosis {
    /// Number of nodes.
    pub nodes: usize,
    /// Rejections of single nodes.
    pub by_node: Vec<(NodeId, Arc<Status>)>,
    /// Status of all other nodes.
    pub others: Option<Arc<Status>>,
    /// Message of PreFilter plugins, before any node was evaluated.
    pub pre_filter: Option<String>,
    /// Result of preemption.
    pub post_filter: Option<String>,
    /// The plugins that rejected the pod.
    pub plugins: Vec<&'static str>,
    /// Those of them that wait for an operation in progress.
    pub pending: Vec<&'static str>,
}

impl Diagnosis {
    /// Counts a plugin among those that rejected the pod.
    pub fn add_plugin(&mut self, status: &Status) {
        let list = match status.code {
            Code::Pending => &mut self.pending,
            Code::Error => return,
            _ => &mut self.plugins,
        };
        if !status.plugin.is_empty() && !list.contains(&status.plugin) {
            list.push(status.plugin);
        }
    }

    /// Code of a node's rejection.
    pub fn code_of(&self, node: NodeId) -> Option<Code> {
        let said = self.by_node.iter().find(|(id, _)| *id == node).map(|(_, status)| status);
        said.or(self.others.as_ref()).map(|status| status.code)
    }

    /// The nodes where removing pods might help.
    pub fn resolvable(&self, all: impl Iterator<Item = NodeId>) -> Vec<NodeId> {
        let said: HashMap<NodeId, Code> = self.by_node.iter().map(|(id, status)| (*id, status.code)).collect();
        let others = self.others.as_ref().map(|status| status.code);
        all.filter(|id| said.get(id).copied().or(others) == Some(Code::Unschedulable)).collect()
    }

    /// The message for the pod's events.
    pub fn message(&self) -> String {
        let head = format!("0/{} nodes are available:", self.nodes);
        let middle = match &self.pre_filter {
            Some(said) => format!(" {said}."),
            None => {
                let reasons = self.histogram();
                if reasons.is_empty() { String::new() } else { format!(" {}.", reasons.join(", ")) }
            }
        };
        let tail = self.post_filter.as_deref().filter(|said| !said.is_empty()).map(|said| format!(" {said}"));
        let tail = tail.unwrap_or_default();
        shortened(head, middle, &tail)
    }

    /// Each reason with the number of nodes that gave it, sorted as text.
    fn histogram(&self) -> Vec<String> {
        let mut by_status: HashMap<*const Status, (usize, &Status)> = HashMap::new();
        for (_, status) in &self.by_node {
            let entry = by_status.entry(Arc::as_ptr(status)).or_insert((0, status));
            entry.0 = entry.0.saturating_add(1);
        }
        let rest = self.nodes.saturating_sub(self.by_node.len());
        let rest = self.others.iter().filter(|_| rest > 0).map(|status| (rest, status.as_ref()));
        let mut plain: BTreeMap<&str, usize> = BTreeMap::new();
        let mut taints: BTreeMap<&str, usize> = BTreeMap::new();
        for (count, status) in by_status.into_values().chain(rest) {
            for reason in &status.reasons {
                let is_taint = status.plugin == TAINT_TOLERATION && reason.starts_with(UNTOLERATED_TAINT);
                let counts = if is_taint { &mut taints } else { &mut plain };
                let entry = counts.entry(reason).or_default();
                *entry = entry.saturating_add(count);
            }
        }
        let mut taints: Vec<(&str, usize)> = taints.into_iter().collect();
        // The most frequent taints are named; ties are broken by name, so that the message is stable.
        taints.sort_by(|(left, few), (right, many)| many.cmp(few).then_with(|| left.cmp(right)));
        let other: usize = taints.iter().skip(NAMED_TAINTS).map(|(_, count)| *count).sum();
        taints.truncate(NAMED_TAINTS);
        let other = (other > 0).then_some((Cow::Borrowed("node(s) had other untolerated taints"), other));
        let all = plain.into_iter().chain(taints).map(|(reason, count)| (Cow::Borrowed(reason), count));
        let mut lines: Vec<String> = all.chain(other).map(|(reason, count)| format!("{count} {reason}")).collect();
        lines.sort();
        lines
    }
}

/// Shortens the message to the length of an event: reasons are cut, both ends stay.
fn shortened(head: String, middle: String, tail: &str) -> String {
    let whole = format!("{head}{middle}{tail}");
    if whole.len() <= MESSAGE_MAX {
        return whole;
    }
    let room = MESSAGE_MAX.saturating_sub(head.len()).saturating_sub(4);
    let tail = prefix(tail, room.min(MESSAGE_MAX / 2));
    let middle = prefix(&middle, room.saturating_sub(tail.len()));
    format!("{head}{middle}...{tail}")
}

fn prefix(text: &str, length: usize) -> &str {
    if text.len() <= length {
        return text;
    }
    let end = (0..=length).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnosis(statuses: &[(usize, Status)]) -> Diagnosis {
        let mut diagnosis = Diagnosis::default();
        for (count, status) in statuses {
            let status = Arc::new(status.clone());
            for _ in 0..*count {
                diagnosis.by_node.push((NodeId(0), status.clone()));
                diagnosis.nodes = diagnosis.by_node.len();
            }
        }
        diagnosis
    }

    fn taint(name: &str) -> Status {
        Status::unresolvable(format!("{UNTOLERATED_TAINT} {{{name}: }}")).by(TAINT_TOLERATION)
    }

    #[test]
    fn reasons_are_sorted_as_text() {
        let said = diagnosis(&[
            (2, Status::unresolvable("node(s) didn't match Pod's node affinity/selector").by("NodeAffinity")),
            (3, taint("gpu")),
            (10, Status::unschedulable("Insufficient cpu").by("NodeResourcesFit")),
        ]);
        assert_eq!(
            said.message(),
            "0/15 nodes are available: 10 Insufficient cpu, 2 node(s) didn't match Pod's node affinity/selector, \
             3 node(s) had untolerated taint {gpu: }."
        );
    }

    #[test]
    fn at_most_eight_taints_are_named_by_count() {
        let statuses: Vec<_> = (0..12).map(|number| (number + 1, taint(&format!("t{number:02}")))).collect();
        let message = diagnosis(&statuses).message();
        assert!(message.contains("12 node(s) had untolerated taint {t11: }"), "{message}");
        assert!(message.contains("10 node(s) had other untolerated taints"), "{message}");
        assert!(!message.contains("{t03: }"), "{message}");
    }

    #[test]
    fn long_sentences_fit_into_an_event() {
        let statuses: Vec<_> = (0..40)
            .map(|number| (1, Status::unschedulable(format!("Insufficient example.com/resource-{number:030}"))))
            .collect();
        let mut said = diagnosis(&statuses);
        said.post_filter = Some(format!("preemption: {}", "ä".repeat(900)));
        let message = said.message();
        assert!(message.len() <= MESSAGE_MAX, "{}", message.len());
        assert!(message.starts_with("0/40 nodes are available: 1 Insufficient"), "{message}");
    }
}
