//! A program of instructions for one character each, for patterns whose automata would be too large.
//!
//! The program is as small as Go's: `\pL{1000}` is a thousand instructions that share one set. It is run as Go runs it,
//! all alternatives side by side, in time proportional to text times program.

use std::collections::HashMap;

use regex_syntax::hir::{ClassUnicode, Look};

use super::hir;
use super::tree::{ClassItem, NodeId, NodeKind, Tree};
use super::unicode::Properties;

/// Maximum number of instructions; Go's own limit is lower, except for literals that are repeated often.
const INSTRUCTIONS_MAX: usize = 4 << 20;

/// The ranges of all sets together.
const RANGES_MAX: usize = 8 << 20;

/// The positions that a search may have to remember: alternatives times positions in each.
const SLOTS_MAX: usize = 16 << 20;

type Address = usize;

#[derive(Debug, Clone)]
pub(super) struct Program {
    /// INVARIANT: addresses in instructions are addresses of instructions.
    code: Vec<Instruction>,
    classes: Vec<Box<[(char, char)]>>,
    start: Address,
    slots: usize,
}

#[derive(Debug, Clone, Copy)]
enum Instruction {
    Match,
    Fail,
    Char(char, Address),
    Any(Address),
    AnyNotNewline(Address),
    /// A set of `Program::classes`.
    Class(usize, Address),
    Look(Look, Address),
    Save(usize, Address),
    /// The preferred branch, and the other one.
    Split(Address, Address),
}

impl Program {
    /// Compiles a tree, with `groups` capturing groups or none. `None` when the limits are exceeded.
    pub(super) fn compile(tree: &Tree, root: NodeId, groups: usize) -> Option<Self> {
        let slots = groups.checked_add(1)?.checked_mul(2)?;
        let program = Self { code: vec![Instruction::Match], classes: Vec::new(), start: 0, slots };
        let mut compiler = Compiler {
            tree,
            program,
            classes: HashMap::new(),
            folded: HashMap::new(),
            properties: Properties::default(),
            ranges: 0,
            start: 0,
            tasks: vec![Task::Node(root)],
        };
        while let Some(task) = compiler.tasks.pop() {
            compiler.perform(task)?;
        }
        let start = compiler.start;
        let mut program = compiler.program;
        program.start = start;
        let waiting = program.code.iter().filter(|instruction| instruction.waits()).count();
        (waiting.checked_mul(slots)? <= SLOTS_MAX).then_some(program)
    }

    /// Whether there is a match anywhere.
    pub(super) fn is_match(&self, text: &str) -> bool {
        self.run(text, 0, 0, true).is_some()
    }

    /// Start and end of the leftmost match from `from` on, followed by those of its groups.
    pub(super) fn search(&self, text: &str, from: usize) -> Option<Vec<Option<usize>>> {
        self.run(text, from, self.slots, false)
    }

    fn run(&self, text: &str, from: usize, slots: usize, earliest: bool) -> Option<Vec<Option<usize>>> {
        let mut current = Threads::new(self.code.len());
        let mut next = Threads::new(self.code.len());
        let mut scratch = Scratch { slots: vec![None; slots], stack: Vec::new() };
        let mut found = None;
        let mut position = from;
        loop {
            if found.is_none() {
                scratch.slots.fill(None);
                if let Some(slot) = scratch.slots.first_mut() {
                    *slot = Some(position);
                }
                self.follow(&mut current, self.start, text, position, &mut scratch);
            } else if current.waiting.is_empty() {
                break;
            }
            let c = text.get(position..).and_then(|rest| rest.chars().next());
            let behind = position.saturating_add(c.map_or(0, char::len_utf8));
            next.clear();
            for (thread, &address) in current.waiting.iter().enumerate() {
                let target = match self.code.get(address) {
                    Some(Instruction::Match) => {
                        let mut slots = current.slots_of(thread, slots).to_vec();
                        if let Some(slot) = slots.get_mut(1) {
                            *slot = Some(position);
                        }
                        found = Some(slots);
                        break;
                    }
                    Some(&instruction) => c.and_then(|c| self.consume(instruction, c)),
                    None => None,
                };
                if let Some(target) = target {
                    scratch.slots.copy_from_slice(current.slots_of(thread, slots));
                    self.follow(&mut next, target, text, behind, &mut scratch);
                }
            }
            std::mem::swap(&mut current, &mut next);
            if c.is_none() || earliest && found.is_some() {
                break;
            }
            position = behind;
        }
        found
    }

    /// Returns the next address after an instruction that expects a character, if the character matches.
    fn consume(&self, instruction: Instruction, c: char) -> Option<Address> {
        let (matches, target) = match instruction {
            Instruction::Char(expected, target) => (c == expected, target),
            Instruction::Any(target) => (true, target),
            Instruction::AnyNotNewline(target) => (c != '\n', target),
            Instruction::Class(class, target) => {
                let ranges = self.classes.get(class)?;
                let candidate = ranges.partition_point(|&(_, high)| high < c);
                (ranges.get(candidate).is_some_and(|&(low, _)| low <= c), target)
            }
            _ => return None,
        };
        matches.then_some(target)
    }

    /// Adds all instructions that wait, as reached from `start` without a character, the preferred ones first.
    fn follow(&self, threads: &mut Threads, start: Address, text: &str, position: usize, scratch: &mut Scratch) {
        scratch.stack.push(PendingStep::Visit(start));
        while let Some(pending) = scratch.stack.pop() {
            let address = match pending {
                PendingStep::Visit(address) => address,
                PendingStep::Restore(slot, old) => {
                    if let Some(slot) = scratch.slots.get_mut(slot) {
                        *slot = old;
                    }
                    continue;
                }
            };
            if !threads.visit(address) {
                continue;
            }
            let Some(&instruction) = self.code.get(address) else { continue };
            match instruction {
                Instruction::Fail => {}
                Instruction::Split(preferred, other) => {
                    scratch.stack.push(PendingStep::Visit(other));
                    scratch.stack.push(PendingStep::Visit(preferred));
                }
                Instruction::Look(look, target) => {
                    if holds(look, text.as_bytes(), position) {
                        scratch.stack.push(PendingStep::Visit(target));
                    }
                }
                Instruction::Save(slot, target) => {
                    if let Some(value) = scratch.slots.get_mut(slot) {
                        scratch.stack.push(PendingStep::Restore(slot, *value));
                        *value = Some(position);
                    }
                    scratch.stack.push(PendingStep::Visit(target));
                }
                _ => threads.wait(address, &scratch.slots),
            }
        }
    }
}

impl Instruction {
    /// Whether a thread stops here until the next character.
    fn waits(self) -> bool {
        !matches!(self, Self::Fail | Self::Look(..) | Self::Save(..) | Self::Split(..))
    }
}

/// Threads at one position of the text, in the order of preference.
struct Threads {
    waiting: Vec<Address>,
    /// The slots of all waiting threads, one after the other.
    slots: Vec<Option<usize>>,
    /// For each instruction, the round in which it was last visited.
    visited: Vec<u32>,
    round: u32,
}

impl Threads {
    fn new(instructions: usize) -> Self {
        Self { waiting: Vec::new(), slots: Vec::new(), visited: vec![0; instructions], round: 1 }
    }

    fn clear(&mut self) {
        self.waiting.clear();
        self.slots.clear();
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.visited.fill(0);
            self.round = 1;
        }
    }

    /// Marks an instruction; returns false if it was marked before.
    fn visit(&mut self, address: Address) -> bool {
        let round = self.round;
        self.visited.get_mut(address).is_some_and(|last| std::mem::replace(last, round) != round)
    }

    fn wait(&mut self, address: Address, slots: &[Option<usize>]) {
        self.waiting.push(address);
        self.slots.extend_from_slice(slots);
    }

    fn slots_of(&self, thread: usize, slots: usize) -> &[Option<usize>] {
        let start = thread.saturating_mul(slots);
        self.slots.get(start..start.saturating_add(slots)).unwrap_or_default()
    }
}

struct Scratch {
    slots: Vec<Option<usize>>,
    stack: Vec<PendingStep>,
}

enum PendingStep {
    Visit(Address),
    Restore(usize, Option<usize>),
}

fn holds(look: Look, text: &[u8], position: usize) -> bool {
    let before = position.checked_sub(1).and_then(|before| text.get(before)).copied();
    let behind = text.get(position).copied();
    let is_word = |byte: Option<u8>| byte.is_some_and(|byte| byte == b'_' || byte.is_ascii_alphanumeric());
    match look {
        Look::Start => before.is_none(),
        Look::End => behind.is_none(),
        Look::StartLF => before.is_none_or(|byte| byte == b'\n'),
        Look::EndLF => behind.is_none_or(|byte| byte == b'\n'),
        Look::WordAscii => is_word(before) != is_word(behind),
        Look::WordAsciiNegate => is_word(before) == is_word(behind),
        // The parser makes no others.
        _ => false,
    }
}

/// Generates the code from its end to its start, so that the successor of each instruction is known.
///
/// Pending work is kept on an explicit stack: a pattern may nest deeper than a thread's stack allows.
struct Compiler<'t> {
    tree: &'t Tree,
    program: Program,
    /// Classes that have their set already.
    classes: HashMap<(&'t [ClassItem], bool, bool), usize>,
    /// Characters of any letter case that have their set already.
    folded: HashMap<char, usize>,
    properties: Properties,
    /// The ranges of all sets so far.
    ranges: usize,
    /// Start of the code generated so far.
    start: Address,
    tasks: Vec<Task>,
}

/// A step of the compiler. Each moves `Compiler::start` to the front of its output.
enum Task {
    /// Writes a node in front of the code so far.
    Node(NodeId),
    /// Writes a node in front of `next`, as the alternative before the code so far.
    Alternative { node: NodeId, next: Address },
    /// Prefers the code so far to the alternatives at `rest`.
    Prefer { rest: Address },
    /// Opens a group.
    Save { slot: usize },
    /// Makes the code so far optional.
    Skip { next: Address, greedy: bool },
    /// Makes the code so far repeatable, from the instruction `again` at its end.
    Again { again: Address, next: Address, greedy: bool },
}

impl Compiler<'_> {
    fn perform(&mut self, task: Task) -> Option<()> {
        let split = |greedy, body, next| {
            if greedy { Instruction::Split(body, next) } else { Instruction::Split(next, body) }
        };
        match task {
            Task::Node(id) => self.node(id),
            Task::Alternative { node, next } => {
                self.tasks.push(Task::Prefer { rest: self.start });
                self.tasks.push(Task::Node(node));
                self.start = next;
                Some(())
            }
            Task::Prefer { rest } => self.emit(Instruction::Split(self.start, rest)),
            Task::Save { slot } => self.emit(Instruction::Save(slot, self.start)),
            Task::Skip { next, greedy } => self.emit(split(greedy, self.start, next)),
            Task::Again { again, next, greedy } => {
                *self.program.code.get_mut(again)? = split(greedy, self.start, next);
                Some(())
            }
        }
    }

    fn node(&mut self, id: NodeId) -> Option<()> {
        match self.tree.get(id)?.kind {
            NodeKind::Absorbed | NodeKind::Never => self.emit(Instruction::Fail),
            NodeKind::Empty => Some(()),
            NodeKind::Literal { start, end, fold } => {
                for c in self.tree.literals.get(start..end)?.chars().rev() {
                    let instruction = if fold {
                        Instruction::Class(self.folded_character(c)?, self.start)
                    } else {
                        Instruction::Char(c, self.start)
                    };
                    self.emit(instruction)?;
                }
                Some(())
            }
            NodeKind::AnyChar => self.emit(Instruction::Any(self.start)),
            NodeKind::AnyCharNotNewline => self.emit(Instruction::AnyNotNewline(self.start)),
            NodeKind::Class { start, end, negated, fold } => {
                let class = self.class(start, end, negated, fold)?;
                self.emit(Instruction::Class(class, self.start))
            }
            NodeKind::Look(look) => self.emit(Instruction::Look(look, self.start)),
            NodeKind::Capture { sub, index } => {
                let slot = usize::try_from(index).ok()?.checked_mul(2)?;
                if slot < self.program.slots {
                    self.emit(Instruction::Save(slot.checked_add(1)?, self.start))?;
                    self.tasks.push(Task::Save { slot });
                }
                self.tasks.push(Task::Node(sub));
                Some(())
            }
            // The task pushed last, for the last child, is performed first.
            NodeKind::Concat { first, .. } => {
                self.tasks.extend(self.tree.siblings(first).map(Task::Node));
                Some(())
            }
            NodeKind::Alternate { first, last } => {
                let next = self.start;
                let others = self.tree.siblings(first).take_while(|&node| node != last);
                self.tasks.extend(others.map(|node| Task::Alternative { node, next }));
                self.tasks.push(Task::Node(last));
                Some(())
            }
            NodeKind::Repeat { sub, min, max, greedy } => self.repeat(sub, min, max, greedy),
        }
    }

    fn repeat(&mut self, sub: NodeId, min: u32, max: Option<u32>, greedy: bool) -> Option<()> {
        let next = self.start;
        let Some(max) = max else {
            // x{2,} is xx+, and x* is (x+)?, which matters when x can be empty.
            self.tasks.extend((1..min).map(|_| Task::Node(sub)));
            if min == 0 {
                self.tasks.push(Task::Skip { next, greedy });
            }
            let again = self.program.code.len();
            self.emit(Instruction::Fail)?;
            self.tasks.push(Task::Again { again, next, greedy });
            self.tasks.push(Task::Node(sub));
            return Some(());
        };
        // x{2,4} is xx(x(x)?)?
        self.tasks.extend((0..min).map(|_| Task::Node(sub)));
        self.tasks.extend((min..max).flat_map(|_| [Task::Skip { next, greedy }, Task::Node(sub)]));
        Some(())
    }

    /// The set of a class of items.
    fn class(&mut self, start: usize, end: usize, negated: bool, fold: bool) -> Option<usize> {
        let key = (self.tree.items.get(start..end)?, negated, fold);
        if let Some(class) = self.classes.get(&key) {
            return Some(*class);
        }
        let class = hir::class(key.0, negated, fold, &mut self.properties);
        let class = self.add_class(&class)?;
        self.classes.insert(key, class);
        Some(class)
    }

    /// The set of a character in either letter case.
    fn folded_character(&mut self, c: char) -> Option<usize> {
        if let Some(class) = self.folded.get(&c) {
            return Some(*class);
        }
        let class = self.add_class(&hir::fold_character(c))?;
        self.folded.insert(c, class);
        Some(class)
    }

    fn add_class(&mut self, class: &ClassUnicode) -> Option<usize> {
        let index = self.program.classes.len();
        let ranges: Box<[_]> = class.ranges().iter().map(|range| (range.start(), range.end())).collect();
        self.ranges = self.ranges.checked_add(ranges.len())?;
        self.program.classes.push(ranges);
        (self.ranges <= RANGES_MAX).then_some(index)
    }

    /// Writes an instruction in front of the code so far.
    fn emit(&mut self, instruction: Instruction) -> Option<()> {
        self.start = self.program.code.len();
        self.program.code.push(instruction);
        (self.start < INSTRUCTIONS_MAX).then_some(())
    }
}
