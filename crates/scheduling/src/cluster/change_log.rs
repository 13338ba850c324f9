//! Log of changed nodes: code that keeps state per node revisits only these.

use super::node::NodeId;

/// The latest changes of nodes, oldest first.
#[derive(Debug, Default)]
pub(super) struct ChangeLog {
    /// Number of changes that were dropped.
    forgotten: u64,
    nodes: Vec<NodeId>,
}

/// Minimum number of changes to keep.
const KEPT_MIN: usize = 1024;

impl ChangeLog {
    /// Records a change of one of `all` nodes; returns its new generation. The first is 1.
    pub(super) fn note(&mut self, node: NodeId, all: usize) -> u64 {
        // After more changes than nodes, to look at all of them is as good.
        if self.nodes.len() >= all.saturating_mul(2).max(KEPT_MIN) {
            let old = self.nodes.len() / 2;
            self.nodes.drain(..old);
            self.forgotten = self.forgotten.saturating_add(old as u64);
        }
        self.nodes.push(node);
        self.last()
    }

    /// The generation of the last change.
    pub(super) fn last(&self) -> u64 {
        self.forgotten.saturating_add(self.nodes.len() as u64)
    }

    /// Returns the nodes that have changed after a generation, possibly with duplicates; `None` if that part of
    /// the log was dropped.
    pub(super) fn since(&self, generation: u64) -> Option<&[NodeId]> {
        let known = generation.checked_sub(self.forgotten)?;
        self.nodes.get(usize::try_from(known).ok()?..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_returned_until_dropped() {
        let mut log = ChangeLog::default();
        assert_eq!(log.note(NodeId(7), 1), 1);
        assert_eq!(log.note(NodeId(8), 1), 2);
        assert_eq!(log.since(0), Some([NodeId(7), NodeId(8)].as_slice()));
        assert_eq!(log.since(1), Some([NodeId(8)].as_slice()));
        assert_eq!(log.since(2), Some([].as_slice()));
        for _ in 0..KEPT_MIN {
            log.note(NodeId(9), 1);
        }
        let last = log.last();
        assert_eq!((log.since(0), log.since(last - 1)), (None, Some([NodeId(9)].as_slice())));
        assert_eq!(last, 2 + KEPT_MIN as u64);
    }
}
