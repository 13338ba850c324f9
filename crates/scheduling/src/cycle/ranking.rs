//! State of each node for one shape, summarized by blocks of nodes, so that most nodes need not be examined.
//!
//! Nodes are kept in their order. Each belongs to a group of nodes that differ only in a number, the higher the
//! better. The caller assigns the groups and defines their meaning.

use std::ops::Range;

/// Number of nodes per block. Tests use few, so that few nodes form many blocks.
const BLOCK: usize = if cfg!(test) { 4 } else { 64 };

/// State of all nodes.
#[derive(Debug, Default)]
pub(super) struct Ranking {
    /// By position; `None` if the caller must evaluate the node.
    known: Vec<Option<NodeRank>>,
    blocks: Vec<Block>,
}

/// State of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeRank {
    /// Group of the node.
    pub(super) group: u32,
    /// Whether it fits; other nodes do not count as found.
    pub(super) fits: bool,
    /// Score within its group.
    pub(super) score: i64,
}

/// The nodes of a group, summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    /// The group.
    pub(super) group: u32,
    /// Whether these nodes fit.
    pub(super) fits: bool,
    /// Number of nodes.
    pub(super) count: usize,
    /// The highest score.
    pub(super) best: i64,
    /// Number of nodes with the best score.
    pub(super) ties: usize,
}

#[derive(Debug, Default)]
struct Block {
    /// Whether the sums are current.
    is_current: bool,
    fitting: usize,
    tallies: Vec<Tally>,
}

/// Nodes that a search has passed.
#[derive(Debug, Default)]
pub(super) struct SearchExtent {
    /// Number of nodes.
    pub(super) nodes: usize,
    /// Number of nodes that fit.
    pub(super) fitting: usize,
    /// The passed nodes by group.
    pub(super) tallies: Vec<Tally>,
}

impl Ranking {
    /// Removes the state of all nodes.
    pub(super) fn reset(&mut self, nodes: usize) {
        self.known.clear();
        self.known.resize(nodes, None);
        self.blocks.clear();
        self.blocks.resize_with(nodes.div_ceil(BLOCK), Block::default);
    }

    /// Removes the state of a node.
    pub(super) fn forget(&mut self, position: usize) {
        if let Some(known) = self.known.get_mut(position) {
            *known = None;
        }
        if let Some(block) = self.blocks.get_mut(position / BLOCK) {
            block.is_current = false;
        }
    }

    /// Iterates from a position, wrapping around, until enough fitting nodes are found.
    ///
    /// # Errors
    /// Error of the caller's evaluation.
    pub(super) fn find<E>(
        &mut self,
        start: usize,
        enough: usize,
        mut ask: impl FnMut(usize) -> Result<NodeRank, E>,
    ) -> Result<SearchExtent, E> {
        let mut passed = SearchExtent::default();
        for piece in round(start, self.known.len(), self.known.len()) {
            if piece.len() == BLOCK {
                let block = self.current(piece.start / BLOCK, &mut ask)?;
                if let Some(block) = block.filter(|block| passed.fitting.saturating_add(block.fitting) < enough) {
                    passed.nodes = passed.nodes.saturating_add(BLOCK);
                    passed.fitting = passed.fitting.saturating_add(block.fitting);
                    block.tallies.iter().for_each(|tally| add(&mut passed.tallies, *tally));
                    continue;
                }
            }
            for position in piece {
                let Some(known) = self.known(position, &mut ask)? else { continue };
                passed.nodes = passed.nodes.saturating_add(1);
                passed.fitting = passed.fitting.saturating_add(usize::from(known.fits));
                add(&mut passed.tallies, Tally::of(known));
                if passed.fitting >= enough {
                    return Ok(passed);
                }
            }
        }
        Ok(passed)
    }

    /// Returns the position of one of the best nodes, after this many others of them. `best` returns the best
    /// score of a group.
    pub(super) fn nth(
        &self,
        start: usize,
        passed: usize,
        mut skipped: usize,
        best: impl Fn(u32) -> Option<i64>,
    ) -> Option<usize> {
        for piece in round(start, passed, self.known.len()) {
            let block = self.blocks.get(piece.start / BLOCK).filter(|it| it.is_current && piece.len() == BLOCK);
            if let Some(block) = block {
                let tied = block.tallies.iter().filter(|tally| best(tally.group) == Some(tally.best));
                let tied: usize = tied.map(|tally| tally.ties).sum();
                if tied <= skipped {
                    skipped = skipped.saturating_sub(tied);
                    continue;
                }
            }
            for position in piece {
                let known = self.known.get(position).copied().flatten();
                if known.is_some_and(|known| best(known.group) == Some(known.score)) {
                    if skipped == 0 {
                        return Some(position);
                    }
                    skipped = skipped.saturating_sub(1);
                }
            }
        }
        None
    }

    /// The group of a node of which something is known.
    pub(super) fn group_of(&self, position: usize) -> Option<u32> {
        self.known.get(position).copied().flatten().map(|known| known.group)
    }

    fn known<E>(
        &mut self,
        position: usize,
        ask: &mut impl FnMut(usize) -> Result<NodeRank, E>,
    ) -> Result<Option<NodeRank>, E> {
        let Some(known) = self.known.get_mut(position) else { return Ok(None) };
        match known {
            Some(_) => {}
            // INVARIANT: its block is not current.
            None => *known = Some(ask(position)?),
        }
        Ok(*known)
    }

    /// A block whose sums hold.
    fn current<E>(
        &mut self,
        index: usize,
        ask: &mut impl FnMut(usize) -> Result<NodeRank, E>,
    ) -> Result<Option<&Block>, E> {
        if self.blocks.get(index).is_some_and(|block| !block.is_current) {
            let from = index.saturating_mul(BLOCK);
            let (mut tallies, mut fitting) = (Vec::new(), 0_usize);
            for position in from..from.saturating_add(BLOCK) {
                let Some(known) = self.known(position, ask)? else { break };
                fitting = fitting.saturating_add(usize::from(known.fits));
                add(&mut tallies, Tally::of(known));
            }
            if let Some(block) = self.blocks.get_mut(index) {
                *block = Block { is_current: true, fitting, tallies };
            }
        }
        Ok(self.blocks.get(index))
    }
}

impl Tally {
    fn of(known: NodeRank) -> Self {
        Tally { group: known.group, fits: known.fits, count: 1, best: known.score, ties: 1 }
    }
}

fn add(tallies: &mut Vec<Tally>, more: Tally) {
    let Some(tally) = tallies.iter_mut().find(|tally| tally.group == more.group) else {
        tallies.push(more);
        return;
    };
    tally.count = tally.count.saturating_add(more.count);
    if more.best > tally.best {
        (tally.best, tally.ties) = (more.best, more.ties);
    } else if more.best == tally.best {
        tally.ties = tally.ties.saturating_add(more.ties);
    }
}

/// Returns the positions of this many nodes from a start, wrapping around, in pieces within one block each.
fn round(start: usize, count: usize, all: usize) -> impl Iterator<Item = Range<usize>> {
    let end = start.saturating_add(count);
    let ranges = [start..end.min(all), 0..end.saturating_sub(all).min(start)];
    ranges.into_iter().flat_map(|range| {
        let mut from = range.start;
        std::iter::from_fn(move || {
            let next = (from / BLOCK).saturating_add(1).saturating_mul(BLOCK).min(range.end);
            let piece = from..next;
            from = next;
            (!piece.is_empty()).then_some(piece)
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, reason = "tests")]

    use super::*;
    use crate::random::Random;

    /// Evaluates every node in turn, for comparison.
    fn plainly(nodes: &[NodeRank], start: usize, enough: usize) -> Vec<usize> {
        let mut fitting = 0;
        let all = nodes.len();
        let mut passed = Vec::new();
        for position in (start..start + all).map(|position| position % all) {
            if fitting >= enough {
                break;
            }
            fitting += usize::from(nodes[position].fits);
            passed.push(position);
        }
        passed
    }

    #[test]
    fn sums_are_those_of_all_nodes_in_turn() {
        let mut random = Random::new(3);
        for _ in 0..200 {
            let all = 1 + random.below(40);
            let groups = 1 + random.below(4);
            let node = |random: &mut Random| {
                let group = random.below(groups);
                NodeRank { group: group as u32, fits: group % 3 != 2, score: random.below(3) as i64 }
            };
            let mut nodes: Vec<NodeRank> = (0..all).map(|_| node(&mut random)).collect();
            let mut ranking = Ranking::default();
            ranking.reset(all);
            for _ in 0..10 {
                for _ in 0..random.below(3) {
                    let changed = random.below(all);
                    nodes[changed] = node(&mut random);
                    ranking.forget(changed);
                }
                let (start, enough) = (random.below(all), 1 + random.below(all));
                let found = ranking.find(start, enough, |position| Ok::<_, ()>(nodes[position])).unwrap();
                let passed = plainly(&nodes, start, enough);
                assert_eq!(found.nodes, passed.len());
                assert_eq!(found.fitting, passed.iter().filter(|position| nodes[**position].fits).count());
                for tally in &found.tallies {
                    let of_group = || passed.iter().filter(|position| nodes[**position].group == tally.group);
                    let best = of_group().map(|position| nodes[*position].score).max();
                    let tied: Vec<usize> =
                        of_group().copied().filter(|position| Some(nodes[*position].score) == best).collect();
                    assert_eq!((tally.count, Some(tally.best), tally.ties), (of_group().count(), best, tied.len()));
                    let of = |group: u32| best.filter(|_| group == tally.group);
                    for (skipped, position) in tied.iter().enumerate() {
                        assert_eq!(ranking.nth(start, found.nodes, skipped, of), Some(*position));
                    }
                    assert_eq!(ranking.nth(start, found.nodes, tied.len(), of), None);
                }
            }
        }
    }
}
