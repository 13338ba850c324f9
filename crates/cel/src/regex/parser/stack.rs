//! The parser's stack: finished nodes, open groups and bars, and limits on their size.

use super::super::error::{Error, ErrorKind};
use super::super::tree::{Node, NodeId, NodeKind};
use super::{Flags, ParsedPattern, Parser};

/// The levels of nesting that Go allows.
const HEIGHT_MAX: u32 = 1000;

/// The instructions that Go allows: 128 MiB of 40 bytes each.
const SIZE_MAX: u64 = (128 << 20) / 40;

/// An entry of the parse stack.
#[derive(Debug, Clone, Copy)]
pub(super) enum Item {
    Node(NodeId),
    /// An open group, with the flags to return to, and its number when it captures.
    Open {
        outer: Flags,
        capture: Option<u32>,
    },
    Bar,
}

/// Go measures the size of a pattern only when the nodes in use, times all counts, reach the limit.
/// This keeps the books that Go keeps, so that a long literal repeated often is accepted in both.
#[derive(Debug)]
pub(super) struct Budget {
    allocated: u64,
    free: u64,
    repeats: u64,
    exhausted: bool,
}

impl Default for Budget {
    fn default() -> Self {
        Self { allocated: 0, free: 0, repeats: 1, exhausted: false }
    }
}

impl Budget {
    fn allocate(&mut self) {
        match self.free.checked_sub(1) {
            Some(free) => self.free = free,
            None => self.allocated = self.allocated.saturating_add(1),
        }
    }

    fn release(&mut self) {
        self.free = self.free.saturating_add(1);
    }

    fn is_reached(&self) -> bool {
        SIZE_MAX.checked_div(self.repeats).is_none_or(|nodes| self.allocated >= nodes)
    }

    fn multiply(&mut self, count: u32) {
        self.repeats = self.repeats.saturating_mul(count.max(1).into()).min(SIZE_MAX);
    }
}

impl Parser<'_> {
    pub(super) fn push_leaf(&mut self, kind: NodeKind) -> Result<(), Error> {
        self.budget.allocate();
        let id = self.add(kind, 1, 1, 1);
        self.push(id)
    }

    pub(super) fn push_literal(&mut self, c: char) -> Result<(), Error> {
        let start = self.tree.literals.len();
        self.tree.literals.push(c);
        let end = self.tree.literals.len();
        self.push_leaf(NodeKind::Literal { start, end, fold: self.flags.fold })
    }

    /// Wraps the node on top of the stack and returns the product of the counts in it.
    pub(super) fn push_repeat(
        &mut self,
        operator: char,
        min: u32,
        max: Option<u32>,
        greedy: bool,
        fragment: &str,
    ) -> Result<u32, Error> {
        let Some(&Item::Node(sub)) = self.stack.last() else {
            return Err(Error::new(ErrorKind::MissingRepeatArgument, fragment));
        };
        let (height, sub_size, sub_repeats) =
            self.tree.get(sub).map_or((0, 0, 1), |node| (node.height, node.size, node.repeats));
        let size = match (operator, max) {
            ('*', _) => sub_size.saturating_add(2),
            ('+' | '?', _) => sub_size.saturating_add(1),
            (_, None) if min == 0 => sub_size.saturating_add(2),
            (_, None) => sub_size.saturating_mul(min.into()).saturating_add(1),
            (_, Some(max)) => sub_size.saturating_mul(max.into()).saturating_add(max.saturating_sub(min).into()),
        };
        let count = max.unwrap_or(min);
        let repeats = match (operator, max) {
            ('{', Some(0)) => 1,
            ('{', _) => sub_repeats.saturating_mul(count.max(1)),
            _ => sub_repeats,
        };
        if operator == '{' && !self.budget.exhausted {
            self.budget.multiply(count);
        }
        self.budget.allocate();
        self.stack.pop();
        let id = self.add(NodeKind::Repeat { sub, min, max, greedy }, height.saturating_add(1), size.max(1), repeats);
        self.stack.push(Item::Node(id));
        self.check_limits(id)?;
        Ok(repeats)
    }

    pub(super) fn open_capture(&mut self, name: Option<&str>) -> Result<(), Error> {
        self.group_names.push(name.map(Into::into));
        // The whole match is group 0. A pattern has fewer groups than bytes.
        let capture = u32::try_from(self.group_names.len()).ok();
        self.open(capture)
    }

    pub(super) fn open_group(&mut self) -> Result<(), Error> {
        self.open(None)
    }

    fn open(&mut self, capture: Option<u32>) -> Result<(), Error> {
        self.budget.allocate();
        self.merge_literals();
        self.stack.push(Item::Open { outer: self.flags, capture });
        Ok(())
    }

    pub(super) fn vertical_bar(&mut self) -> Result<(), Error> {
        self.concat()?;
        self.budget.allocate();
        self.stack.push(Item::Bar);
        Ok(())
    }

    /// Handles a closing parenthesis.
    pub(super) fn close(&mut self) -> Result<(), Error> {
        let sub = self.alternate()?;
        let Some(Item::Open { outer, capture }) = self.stack.pop() else {
            return Err(Error::new(ErrorKind::UnexpectedParenthesis, self.pattern));
        };
        self.flags = outer;
        let Some(index) = capture else {
            return self.push(sub);
        };
        let (height, size, repeats) =
            self.tree.get(sub).map_or((0, 0, 1), |node| (node.height, node.size, node.repeats));
        let id = self.add(NodeKind::Capture { sub, index }, height.saturating_add(1), size.saturating_add(2), repeats);
        self.push(id)
    }

    pub(super) fn finish(mut self) -> Result<ParsedPattern, Error> {
        let root = self.alternate()?;
        if !self.stack.is_empty() {
            return Err(Error::new(ErrorKind::MissingParenthesis, self.pattern));
        }
        Ok(ParsedPattern { tree: self.tree, root, group_names: self.group_names })
    }

    /// Makes one node of all above the last bar or open group, and leaves it on the stack.
    fn concat(&mut self) -> Result<(), Error> {
        self.merge_literals();
        let start = self.above(|item| matches!(item, Item::Node(_)));
        let id = self.collapse(start, false);
        self.push(id)
    }

    /// Makes one node of all above the last open group, and takes it off the stack.
    fn alternate(&mut self) -> Result<NodeId, Error> {
        self.concat()?;
        let start = self.above(|item| !matches!(item, Item::Open { .. }));
        let id = self.collapse(start, true);
        self.check_limits(id)?;
        Ok(id)
    }

    /// The position behind the last item that is not wanted.
    fn above(&self, wanted: impl Fn(&Item) -> bool) -> usize {
        self.stack.iter().rposition(|item| !wanted(item)).map_or(0, |last| last.saturating_add(1))
    }

    /// Joins the nodes from `start` upwards; bars between them are dropped, nodes of the same kind become part of the result.
    fn collapse(&mut self, start: usize, alternate: bool) -> NodeId {
        let items = self.stack.split_off(start.min(self.stack.len()));
        let mut nodes = items.iter().filter_map(|item| match item {
            Item::Node(id) => Some(*id),
            _ => None,
        });
        let Some(only) = nodes.next() else {
            self.budget.allocate();
            return self.add(NodeKind::Empty, 1, 1, 1);
        };
        let Some(second) = nodes.next() else {
            return only;
        };
        self.budget.allocate();
        let mut ends: Option<(NodeId, NodeId)> = None;
        let (mut height, mut size, mut repeats) = (1, 0_u64, 1);
        for id in [only, second].into_iter().chain(nodes) {
            let Some(node) = self.tree.nodes.get_mut(id) else { continue };
            let (first, last, inner_height) = match node.kind {
                NodeKind::Alternate { first, last } if alternate => (first, last, node.height.saturating_sub(1)),
                NodeKind::Concat { first, last } if !alternate => (first, last, node.height.saturating_sub(1)),
                _ => (id, id, node.height),
            };
            if first != id {
                node.kind = NodeKind::Absorbed;
                self.budget.release();
            }
            height = height.max(inner_height.saturating_add(1));
            size = size.saturating_add(node.size).saturating_add(u64::from(alternate && ends.is_some()));
            repeats = repeats.max(node.repeats);
            if let Some((_, previous)) = ends
                && let Some(previous) = self.tree.nodes.get_mut(previous)
            {
                previous.next = Some(first);
            }
            ends = Some((ends.map_or(first, |(first, _)| first), last));
        }
        let (first, last) = ends.unwrap_or((only, only));
        let kind = if alternate { NodeKind::Alternate { first, last } } else { NodeKind::Concat { first, last } };
        self.add(kind, height, size, repeats)
    }

    fn add(&mut self, kind: NodeKind, height: u32, size: u64, repeats: u32) -> NodeId {
        let id = self.tree.nodes.len();
        self.tree.nodes.push(Node { kind, next: None, height, size, repeats });
        id
    }

    fn push(&mut self, id: NodeId) -> Result<(), Error> {
        self.merge_literals();
        self.stack.push(Item::Node(id));
        self.check_limits(id)
    }

    /// Joins two literals on top of the stack: the upper one can no longer be repeated on its own.
    fn merge_literals(&mut self) {
        let [.., Item::Node(lower), Item::Node(upper)] = self.stack.as_slice() else {
            return;
        };
        let (lower, upper) = (*lower, *upper);
        let (Some(lower_node), Some(upper_node)) = (self.tree.get(lower), self.tree.get(upper)) else {
            return;
        };
        let (
            &NodeKind::Literal { start, end: middle, fold },
            &NodeKind::Literal { start: upper_start, end, fold: upper_fold },
        ) = (&lower_node.kind, &upper_node.kind)
        else {
            return;
        };
        // Neighbors on the stack are neighbors in the text of literals.
        if fold != upper_fold || middle != upper_start {
            return;
        }
        let size = lower_node.size.saturating_add(upper_node.size);
        if let Some(node) = self.tree.nodes.get_mut(lower) {
            node.kind = NodeKind::Literal { start, end, fold };
            node.size = size;
        }
        if let Some(node) = self.tree.nodes.get_mut(upper) {
            node.kind = NodeKind::Absorbed;
        }
        self.stack.pop();
        self.budget.release();
    }

    fn check_limits(&mut self, id: NodeId) -> Result<(), Error> {
        let within_size = |id: NodeId| self.tree.get(id).is_none_or(|node| node.size <= SIZE_MAX);
        if self.budget.exhausted {
            if !within_size(id) {
                return Err(Error::new(ErrorKind::TooLarge, self.pattern));
            }
        } else if self.budget.is_reached() {
            let waiting = self.stack.iter().filter_map(|item| match item {
                Item::Node(id) => Some(*id),
                _ => None,
            });
            if !waiting.chain([id]).all(within_size) {
                return Err(Error::new(ErrorKind::TooLarge, self.pattern));
            }
            self.budget.exhausted = true;
        }
        if self.tree.get(id).is_some_and(|node| node.height > HEIGHT_MAX) {
            return Err(Error::new(ErrorKind::NestingDepth, self.pattern));
        }
        Ok(())
    }
}
