//! Variables that a part of the plan reads: its results can be cached by their values.

use super::super::Program;
use super::super::node::{Attribute, Base, FoldCondition, FoldStep, Kind, Node, QualifierKey};
use crate::cost::Price;

/// A part of the plan that reads nothing but a few local variables.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClosedTerm {
    /// The variables that it reads.
    pub(super) slots: [Option<usize>; 2],
}

/// The variables that a part of the plan reads, if it reads at most two, and no input.
pub(super) fn closed(program: &Program, body: &Node) -> Option<ClosedTerm> {
    let mut reads =
        Reads { program, read: Vec::new(), bound: Vec::new(), reads_input: false, is_too_deep: false, depth: 0 };
    reads.node(body);
    reads.read.retain(|slot| !reads.bound.contains(slot));
    reads.read.sort_unstable();
    reads.read.dedup();
    if reads.reads_input || reads.is_too_deep || reads.read.len() > 2 {
        return None;
    }
    let mut slots = reads.read.into_iter();
    Some(ClosedTerm { slots: [slots.next(), slots.next()] })
}

/// Whether a call in the body ends the whole evaluation if its operand fails.
pub(in super::super) fn can_end(program: &Program, body: &Node) -> bool {
    let mut found = false;
    let mut reads =
        Reads { program, read: Vec::new(), bound: Vec::new(), reads_input: false, is_too_deep: false, depth: 0 };
    reads.each(body, &mut |node| {
        found |= matches!(&node.kind, Kind::Call(call) if matches!(call.price, Price::OfList { .. }));
    });
    found || reads.is_too_deep
}

struct Reads<'p> {
    program: &'p Program,
    read: Vec<usize>,
    bound: Vec<usize>,
    reads_input: bool,
    /// Whether a part was not analyzed.
    is_too_deep: bool,
    /// Nesting depth of initial accumulator values.
    depth: usize,
}

/// Deeper nesting is not looked through.
const DEPTH_MAX: usize = 64;

impl Reads<'_> {
    fn node(&mut self, node: &Node) {
        self.each(node, &mut |_| {});
    }

    fn each(&mut self, node: &Node, visit: &mut dyn FnMut(&Node)) {
        visit(node);
        match &node.kind {
            Kind::Constant(_) | Kind::Computed(_) => {}
            Kind::Attribute(attribute) => self.attribute(attribute, visit),
            Kind::And(terms) | Kind::Or(terms) => terms.iter().for_each(|term| self.each(term, visit)),
            Kind::Equality(it) => {
                self.each(&it.left, visit);
                self.each(&it.right, visit);
            }
            Kind::NotStrictlyFalse(operand) => self.each(operand, visit),
            Kind::Member(member) => self.each(&member.operand, visit),
            Kind::Call(call) => call.operands.iter().for_each(|operand| self.each(operand, visit)),
            Kind::OptionalOr(pair) | Kind::OptionalOrValue(pair) => {
                self.each(&pair.0, visit);
                self.each(&pair.1, visit);
            }
            Kind::List(elements) => elements.iter().for_each(|element| self.each(&element.value, visit)),
            Kind::Map(entries) => {
                for entry in entries {
                    self.each(&entry.key, visit);
                    self.each(&entry.value, visit);
                }
            }
            Kind::Struct(it) => it.fields.iter().for_each(|(_, element)| self.each(&element.value, visit)),
            Kind::Quantifier(it) => {
                self.bound.push(it.variable);
                self.bound.extend(it.second_variable);
                self.each(&it.range, visit);
                self.each(&it.predicate, visit);
            }
            Kind::Collect(it) => {
                self.bound.push(it.variable);
                self.bound.extend(it.second_variable);
                self.each(&it.range, visit);
                if let Some(condition) = &it.condition {
                    self.each(condition, visit);
                }
                self.each(&it.list, visit);
            }
            Kind::Fold(it) => {
                self.bound.extend([it.accumulator, it.variable]);
                self.bound.extend(it.second_variable);
                self.each(&it.range, visit);
                if let FoldCondition::While(condition) = &it.condition {
                    self.each(condition, visit);
                }
                match &it.step {
                    FoldStep::Assign(step) | FoldStep::Append(step) => self.each(step, visit),
                    FoldStep::AppendIf(condition, list) => {
                        self.each(condition, visit);
                        self.each(list, visit);
                    }
                }
                self.each(&it.result, visit);
            }
        }
    }

    fn attribute(&mut self, attribute: &Attribute, visit: &mut dyn FnMut(&Node)) {
        match &attribute.base {
            Base::Variable(_) => self.reads_input = true,
            Base::Local(slot) => self.read.push(*slot),
            Base::LazyLocal { slot, init } => {
                self.read.push(*slot);
                let program = self.program;
                match program.lazies.get(*init) {
                    Some(init) if self.depth < DEPTH_MAX => {
                        self.depth = self.depth.saturating_add(1);
                        self.each(init, visit);
                        self.depth = self.depth.saturating_sub(1);
                    }
                    _ => self.is_too_deep = true,
                }
            }
            Base::Value(node) => self.each(node, visit),
            Base::Conditional(it) => {
                self.each(&it.condition, visit);
                self.attribute(&it.truthy, visit);
                self.attribute(&it.falsy, visit);
            }
        }
        for qualifier in &attribute.qualifiers {
            if let QualifierKey::Attribute(key) = &qualifier.key {
                self.attribute(key, visit);
            }
        }
    }
}
