//! Minimum and maximum cost of a checked expression.
//!
//! The cost of a call is given by the [`Price`] of its overloads; this module adds the structure of the tree:
//! selections, literals that create containers, branches, comprehensions, and the sizes of containers and their
//! contents. Follows cel-go's `checker/cost.go`, because users depend on the numbers.

use super::path::{Path, Paths};
use super::{CallEstimate, CallSite, Cost, PathStep, Size, SizeHints};
use super::{LIST_CREATION, MAP_CREATION, STRUCT_CREATION};
use crate::checker::{OverloadSet, Reference, TypedAst};
use crate::env::{Function, ResolvedOverload};
use crate::syntax::ast::{Comprehension, ExprId, ExprKind, Literal, Name, operator};
use crate::types::{Primitive, Type};

const IDENT_OR_SELECT: Cost = Cost::exactly(1);
const CREATE_LIST: Cost = Cost::exactly(LIST_CREATION);
const CREATE_MAP: Cost = Cost::exactly(MAP_CREATION);
const CREATE_STRUCT: Cost = Cost::exactly(STRUCT_CREATION);

/// Estimates the minimum and maximum cost of the expression for input of the given size.
///
/// The minimum ignores constant folding, so an evaluation can cost less.
pub fn estimate(typed: &TypedAst, hints: &dyn SizeHints) -> Cost {
    let has_cost = u64::from(typed.env().options().presence_test_has_cost);
    let mut estimator = Estimator {
        typed,
        hints,
        presence_test: Cost::exactly(has_cost),
        facts: vec![Facts::NOTHING; typed.ast().node_count()],
        entries: Vec::new(),
        paths: Paths::new(),
        locals: Vec::new(),
        operands: Vec::with_capacity(8),
    };
    estimator.cost(typed.ast().root())
}

struct Estimator<'a> {
    typed: &'a TypedAst,
    hints: &'a dyn SizeHints,
    presence_test: Cost,
    /// Facts about each node, by its index.
    facts: Vec<Facts>,
    /// Entries of containers; facts and local variables hold indices into this list.
    entries: Vec<Entry>,
    paths: Paths<'a>,
    /// The variables of enclosing comprehensions, innermost last.
    locals: Vec<LocalVariable<'a>>,
    /// The operands of enclosing calls, innermost last.
    operands: Vec<Operand>,
}

/// Facts about a node.
#[derive(Clone, Copy)]
struct Facts {
    size: Option<Size>,
    path: Path,
    entry: EntryId,
}

impl Facts {
    const NOTHING: Facts = Facts { size: None, path: Path::EMPTY, entry: None };
}

/// An index into [`Estimator::entries`].
type EntryId = Option<u32>;

/// Sizes of the entries of a list or map. The key of a list's entry is the index.
#[derive(Clone, Copy)]
struct Entry {
    is_list: bool,
    key: Size,
    value: Size,
}

struct LocalVariable<'a> {
    name: &'a str,
    path: Path,
    size: Option<Size>,
    entry: EntryId,
}

/// An operand as it was when it had just been looked at: a later operand can change its path.
#[derive(Clone, Copy)]
struct Operand {
    id: ExprId,
    path: Path,
    size: Option<Size>,
}

impl<'a> Estimator<'a> {
    fn cost(&mut self, id: ExprId) -> Cost {
        let typed = self.typed;
        match &typed.ast()[id].kind {
            ExprKind::Literal(_) => Cost::default(),
            ExprKind::Ident(name) => self.ident(id, name),
            // The checker found a variable, constant or type whose name has dots.
            ExprKind::Select { field, .. } if !matches!(typed.reference(id), Reference::None) => self.ident(id, field),
            ExprKind::Select { operand, test_only: true, .. } => self.presence_test.plus(self.cost(*operand)),
            ExprKind::Select { operand, field, test_only: false } => {
                let sum = self.cost(*operand);
                self.set_path(id, *operand, PathStep::Field(field));
                match typed.type_of(*operand) {
                    Type::Map(_) | Type::Object(_) | Type::Param(_) | Type::Var(_) => sum.plus(IDENT_OR_SELECT),
                    _ => sum,
                }
            }
            ExprKind::Call { target, args, .. } => self.call(id, *target, args),
            ExprKind::List(elements) => {
                let mut sum = CREATE_LIST;
                let mut value = Range::default();
                for element in elements {
                    sum = sum.plus(self.cost(element.value));
                    value.add(self.size_or_unknown(element.value));
                }
                self.set_entry(id, Entry { is_list: true, key: Size::exactly(1), value: value.size() });
                sum
            }
            ExprKind::Map(entries) => {
                let mut sum = CREATE_MAP;
                let (mut key, mut value) = (Range::default(), Range::default());
                for entry in entries {
                    sum = sum.plus(self.cost(entry.key)).plus(self.cost(entry.value));
                    key.add(self.size_or_unknown(entry.key));
                    value.add(self.size_or_unknown(entry.value));
                }
                self.set_entry(id, Entry { is_list: false, key: key.size(), value: value.size() });
                sum
            }
            ExprKind::Struct { fields, .. } => {
                fields.iter().fold(CREATE_STRUCT, |sum, field| sum.plus(self.cost(field.value)))
            }
            ExprKind::Comprehension(fold) if self.is_binding(fold) => self.binding(id, fold),
            ExprKind::Comprehension(fold) => self.comprehension(id, fold),
        }
    }

    fn ident(&mut self, id: ExprId, written: &'a Name) -> Cost {
        let typed = self.typed;
        let (name, global) = match typed.reference(id) {
            Reference::Variable { name, global } => (name.as_str(), *global),
            Reference::Type { name, .. } => (name.as_str(), false),
            _ => (written.as_str(), false),
        };
        let local = if global { None } else { self.local(name).map(|local| local.path) };
        let path = match local {
            Some(path) => path,
            None if global => self.paths.root(PathStep::Shadowed(name)),
            None => self.paths.root(PathStep::Variable(name)),
        };
        self.facts_mut(id, |facts| facts.path = path);
        IDENT_OR_SELECT
    }

    fn call(&mut self, id: ExprId, target: Option<ExprId>, args: &'a [ExprId]) -> Cost {
        let typed = self.typed;
        let Reference::Function { function, overloads, qualified } = typed.reference(id) else {
            // Selecting an optional field needs no declaration.
            let selects = matches!(&typed.ast()[id].kind, ExprKind::Call { function, .. } if *function == operator::OPTIONAL_SELECT);
            return match args {
                [operand, _field] if selects => self.cost(*operand).plus(Cost::exactly(1)),
                _ => Cost::default(),
            };
        };
        let target = if *qualified { None } else { target };
        match (function.name.as_str(), args) {
            // Only turns off checking.
            ("dyn", [operand]) => {
                let cost = self.cost(*operand);
                self.copy_sizes(id, *operand);
                cost.plus(Cost::exactly(1))
            }
            ("_&&_" | "_||_", [left, right]) => {
                let (left, right) = (self.cost(*left), self.cost(*right));
                let size = self.size(id);
                self.set_size(id, size);
                Cost { min: left.min, max: left.plus(right).max }
            }
            ("_?_:_", [condition, if_true, if_false]) => self.conditional(id, *condition, *if_true, *if_false),
            _ => self.function(id, function, *overloads, target, args),
        }
    }

    fn conditional(&mut self, id: ExprId, condition: ExprId, if_true: ExprId, if_false: ExprId) -> Cost {
        let condition = self.cost(condition);
        let first = self.cost(if_true);
        let first_size = self.size_or_unknown(if_true);
        let second = self.cost(if_false);
        let second_size = self.size_or_unknown(if_false);
        self.join_entries(id, if_true, if_false);
        self.set_size(id, Some(first_size.union(second_size)));
        condition.plus(first.union(second))
    }

    fn function(
        &mut self,
        id: ExprId,
        function: &'a Function,
        overloads: OverloadSet,
        target: Option<ExprId>,
        args: &'a [ExprId],
    ) -> Cost {
        let base = self.operands.len();
        let mut sum = Cost::default();
        // The receiver is looked at last, but is the first operand: its place is kept.
        if let Some(target) = target {
            self.operands.push(Operand { id: target, path: Path::EMPTY, size: None });
        }
        for arg in args {
            sum = sum.plus(self.cost(*arg));
            let operand = self.operand(*arg);
            self.operands.push(operand);
        }
        if let Some(target) = target {
            sum = sum.plus(self.cost(target));
            let operand = self.operand(target);
            if let Some(place) = self.operands.get_mut(base) {
                *place = operand;
            }
        }

        let mut price: Option<Cost> = None;
        let mut result_size: Option<Size> = None;
        let (is_index, is_add) = (function.name == operator::INDEX, function.name == operator::ADD);
        for overload in overloads.of(function) {
            let estimate = self.price(overload, base);
            price = Some(price.map_or(estimate.cost, |price| price.union(estimate.cost)));
            if let Some(size) = estimate.result_size {
                result_size = Some(result_size.map_or(size, |other| other.union(size)));
            }
            if let (true, [container, ..]) = (is_index, args) {
                let step = match overload.signature.parameters.first() {
                    Some(Type::List(_)) => Some(PathStep::Items),
                    Some(Type::Map(_)) => Some(PathStep::Values),
                    _ => None,
                };
                if let Some(step) = step {
                    result_size = self.entry(*container).map(|entry| entry.value);
                    self.set_path(id, *container, step);
                }
            }
            if result_size.is_none() {
                result_size = self.size(id);
            }
        }
        if let (true, [left, right]) = (is_add, args) {
            self.join_entries(id, *left, *right);
        }
        self.operands.truncate(base);
        self.set_size(id, result_size);
        match price {
            Some(price) => sum.plus(price),
            None => Cost::default(),
        }
    }

    fn price(&self, overload: &ResolvedOverload, base: usize) -> CallEstimate {
        overload.price.estimate(&Call { estimator: self, operands: self.operands.get(base..).unwrap_or(&[]) })
    }

    fn operand(&mut self, id: ExprId) -> Operand {
        Operand { id, path: self.path(id), size: self.size(id) }
    }

    /// Whether a comprehension is the expansion of `cel.bind` or a similar macro: a fold over an empty list,
    /// whose result uses the accumulator as a variable.
    fn is_binding(&self, fold: &Comprehension) -> bool {
        let ast = self.typed.ast();
        let nothing = matches!(&ast[fold.range].kind, ExprKind::List(elements) if elements.is_empty());
        nothing && matches!(ast[fold.condition].kind, ExprKind::Literal(Literal::Bool(false)))
    }

    fn binding(&mut self, id: ExprId, fold: &'a Comprehension) -> Cost {
        let mut sum = self.cost(fold.range).plus(self.cost(fold.init));
        self.push_bound(&fold.accumulator, fold.init);
        sum = sum.plus(self.cost(fold.result));
        self.locals.pop();
        self.copy_sizes(id, fold.result);
        sum
    }

    fn comprehension(&mut self, id: ExprId, fold: &'a Comprehension) -> Cost {
        let mut sum = self.cost(fold.range).plus(self.cost(fold.init));
        let outer = self.locals.len();
        self.push_bound(&fold.accumulator, fold.init);
        match &fold.second_variable {
            None => self.push_iterated(&fold.variable, fold.range, IterationSource::Element),
            Some(second) => {
                self.push_iterated(&fold.variable, fold.range, IterationSource::Key);
                self.push_iterated(second, fold.range, IterationSource::Value);
            }
        }
        let each = self.cost(fold.condition).plus(self.cost(fold.step));
        self.locals.truncate(outer.saturating_add(1));
        sum = sum.plus(self.cost(fold.result));
        self.locals.truncate(outer);

        let times = self.size_or_unknown(fold.range);
        match self.typed.ast()[fold.init].kind {
            ExprKind::Literal(_) => {
                let size = self.size(fold.init);
                self.set_size(id, size);
            }
            ExprKind::List(_) | ExprKind::Map(_) => {
                self.set_size(id, Some(times));
                if let Some(entry) = self.entry(fold.step) {
                    self.set_entry(id, entry);
                }
            }
            _ => {}
        }
        sum.plus(times.times_cost(each))
    }

    /// Opens the scope of a variable that is bound to an expression.
    fn push_bound(&mut self, name: &'a Name, id: ExprId) {
        let (path, entry, size) = (self.path(id), self.entry_id(id), self.size(id));
        self.locals.push(LocalVariable { name, path, size, entry });
    }

    /// Opens the scope of a variable that iterates over a part of each entry.
    fn push_iterated(&mut self, name: &'a Name, range: ExprId, part: IterationSource) {
        let entry = self.entry(range);
        let is_list = entry.map_or(matches!(self.typed.type_of(range), Type::List(_)), |entry| entry.is_list);
        let (step, of_value) = match (part, is_list) {
            (IterationSource::Element | IterationSource::Value, true) => (PathStep::Items, true),
            (IterationSource::Key, true) => (PathStep::Indices, false),
            (IterationSource::Value, false) => (PathStep::Values, true),
            (IterationSource::Element | IterationSource::Key, false) => (PathStep::Keys, false),
        };
        let size = entry.map(|entry| if of_value { entry.value } else { entry.key });
        let range = self.path(range);
        let path = self.paths.extend(range, step);
        self.locals.push(LocalVariable { name, path, size, entry: None });
    }

    /// The comprehension's variable that the node refers to.
    fn local_of(&self, id: ExprId) -> Option<&LocalVariable<'a>> {
        if self.locals.is_empty() {
            return None;
        }
        match (self.typed.reference(id), &self.typed.ast()[id].kind) {
            (Reference::Variable { global: true, .. }, _) => None,
            (Reference::Variable { name, .. }, _) | (_, ExprKind::Ident(name)) => self.local(name),
            _ => None,
        }
    }

    fn local(&self, name: &str) -> Option<&LocalVariable<'a>> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn facts(&self, id: ExprId) -> &Facts {
        self.facts.get(id.index()).unwrap_or(&Facts::NOTHING)
    }

    fn facts_mut(&mut self, id: ExprId, change: impl FnOnce(&mut Facts)) {
        if let Some(facts) = self.facts.get_mut(id.index()) {
            change(facts);
        }
    }

    fn path(&self, id: ExprId) -> Path {
        self.local_of(id).map_or(self.facts(id).path, |local| local.path)
    }

    fn set_path(&mut self, id: ExprId, operand: ExprId, step: PathStep<'a>) {
        let operand = self.path(operand);
        let path = self.paths.extend(operand, step);
        self.facts_mut(id, |facts| facts.path = path);
    }

    /// The node's size: computed, written, known to the host, given by its type, or that of the variable it names.
    fn size(&mut self, id: ExprId) -> Option<Size> {
        if let Some(size) = self.facts(id).size {
            return Some(size);
        }
        if let Some(size) = written_size(&self.typed.ast()[id].kind) {
            return Some(Size::exactly(size));
        }
        let of = self.typed.type_of(id);
        if let Some(size) = self.hints.size(self.paths.steps(self.path(id)), of) {
            self.set_size(id, Some(size));
            return Some(size);
        }
        if is_scalar(of) {
            return Some(Size::exactly(1));
        }
        self.local_of(id).and_then(|local| local.size)
    }

    fn size_or_unknown(&mut self, id: ExprId) -> Size {
        self.size(id).unwrap_or(Size::UNKNOWN)
    }

    fn set_size(&mut self, id: ExprId, size: Option<Size>) {
        if size.is_some() {
            self.facts_mut(id, |facts| facts.size = size);
        }
    }

    fn entry_id(&self, id: ExprId) -> EntryId {
        self.facts(id).entry.or_else(|| self.local_of(id).and_then(|local| local.entry))
    }

    fn entry(&self, id: ExprId) -> Option<Entry> {
        self.entry_id(id).and_then(|entry| self.entries.get(entry as usize)).copied()
    }

    fn set_entry(&mut self, id: ExprId, entry: Entry) {
        let index = u32::try_from(self.entries.len()).ok();
        self.entries.push(entry);
        self.facts_mut(id, |facts| facts.entry = index);
    }

    /// The node is one or the other container, or both in a row.
    fn join_entries(&mut self, id: ExprId, left: ExprId, right: ExprId) {
        if let (Some(left), Some(right)) = (self.entry(left), self.entry(right)) {
            let (key, value) = (left.key.union(right.key), left.value.union(right.value));
            self.set_entry(id, Entry { is_list: left.is_list, key, value });
        }
    }

    fn copy_sizes(&mut self, to: ExprId, from: ExprId) {
        let (size, entry) = (self.size(from), self.entry_id(from));
        self.set_size(to, size);
        if entry.is_some() {
            self.facts_mut(to, |facts| facts.entry = entry);
        }
    }
}

/// Source of the values of a comprehension's variable.
#[derive(Clone, Copy)]
enum IterationSource {
    /// The element of a list, the key of a map.
    Element,
    Key,
    Value,
}

/// The range of the sizes of a literal's parts; 0 if it has none.
#[derive(Default)]
struct Range(Option<Size>);

impl Range {
    fn add(&mut self, size: Size) {
        self.0 = Some(self.0.map_or(size, |range| range.union(size)));
    }

    fn size(self) -> Size {
        self.0.unwrap_or(Size::exactly(0))
    }
}

fn written_size(kind: &ExprKind) -> Option<u64> {
    let size = match kind {
        ExprKind::Literal(Literal::String(text)) => text.chars().count(),
        ExprKind::Literal(Literal::Bytes(bytes)) => bytes.len(),
        ExprKind::Literal(_) => 1,
        ExprKind::List(elements) => elements.len(),
        ExprKind::Map(entries) => entries.len(),
        _ => return None,
    };
    u64::try_from(size).ok()
}

/// Whether all values of the type have the same size.
fn is_scalar(value_type: &Type) -> bool {
    match value_type {
        Type::Bool | Type::Int | Type::Uint | Type::Double | Type::Duration | Type::Timestamp => true,
        Type::Wrapper(primitive) => !matches!(primitive, Primitive::String | Primitive::Bytes),
        Type::Opaque(_) => value_type.as_optional().is_some_and(is_scalar),
        _ => false,
    }
}

/// A call, as its price sees it.
struct Call<'c, 'a> {
    estimator: &'c Estimator<'a>,
    operands: &'c [Operand],
}

impl CallSite for Call<'_, '_> {
    fn operand_count(&self) -> usize {
        self.operands.len()
    }

    fn operand_type(&self, operand: usize) -> Type {
        self.operands.get(operand).map_or(Type::Dyn, |operand| self.estimator.typed.type_of(operand.id).clone())
    }

    fn operand_literal(&self, operand: usize) -> Option<&Literal> {
        match &self.estimator.typed.ast()[self.operands.get(operand)?.id].kind {
            ExprKind::Literal(literal) => Some(literal),
            _ => None,
        }
    }

    fn known_size(&self, operand: usize) -> Option<Size> {
        self.operands.get(operand)?.size
    }

    fn known_element_size(&self, operand: usize) -> Option<Size> {
        let operand = self.operands.get(operand)?;
        let of = match self.estimator.typed.type_of(operand.id) {
            Type::List(element) => element,
            Type::Map(entry) => &entry.0,
            Type::Opaque(opaque) => opaque.parameters.first()?,
            _ => return None,
        };
        let mut path = self.estimator.paths.steps(operand.path).to_vec();
        // Elements of containers without a path have none either: only their type is used.
        if !path.is_empty() {
            path.push(PathStep::Items);
        }
        self.estimator.hints.size(&path, of)
    }
}

#[cfg(test)]
mod tests;
