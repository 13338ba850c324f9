//! Typed tree → plan.
//!
//! Folds constants where cel-go does, because that affects costs and planning errors; prepares other calls
//! where that affects only the time.

mod comprehension;
mod operator;

use std::sync::Arc;

use self::operator::{into_qualified, plan_builtin, plan_index};
use super::call;
use super::node::{
    Attribute, Base, CallNode, Code, ComputedValue, Element, Entry, Kind, Node, QualifierKey, Question, QuestionTest,
    StructNode,
};
use super::{PlanError, Program};
use crate::checker::{OverloadSet, Reference, TypedAst};
use crate::cost::{Price, traversal_cost};
use crate::env::{Function, Implementation, PlanTime, PreparedCall, ResolvedOverload, Singleton};
use crate::syntax::ast::{self, ExprId, ExprKind, ListElement, MapEntry, Name, StructField};
use crate::types::Type;
use crate::value::{EvalError, Value};

pub(super) fn plan(typed: &TypedAst) -> Result<Program, PlanError> {
    let mut planner = Planner { typed, scopes: Vec::new(), slot_count: 0, lazies: Vec::new() };
    let root = planner.plan(typed.ast.root())?;
    let options = typed.env.options();
    Ok(Program {
        root,
        lazies: planner.lazies,
        slot_count: planner.slot_count,
        result_type: typed.result_type().clone(),
        presence_test_has_cost: options.presence_test_has_cost,
        error_on_bad_presence_test: options.error_on_bad_presence_test,
    })
}

struct Planner<'t> {
    typed: &'t TypedAst,
    /// The local variables in scope, innermost last.
    scopes: Vec<(&'t Name, LocalSlot)>,
    slot_count: usize,
    lazies: Vec<Node>,
}

#[derive(Clone, Copy)]
enum LocalSlot {
    Slot(usize),
    Lazy { slot: usize, init: usize },
}

type PlanResult = Result<Node, PlanError>;

impl<'t> Planner<'t> {
    fn plan(&mut self, id: ExprId) -> PlanResult {
        let typed = self.typed;
        let expr = &typed.ast[id];
        if let ExprKind::Ident(_) | ExprKind::Select { .. } = &expr.kind
            && let Some(kind) = self.plan_reference(id)?
        {
            return Ok(Node { id, kind });
        }
        let kind = match &expr.kind {
            ExprKind::Literal(literal) => Kind::Constant(Value::from(literal)),
            ExprKind::Ident(name) => self.plan_variable(name, name.starts_with('.')),
            ExprKind::Select { operand, field, test_only } => {
                let operand = self.plan(*operand)?;
                let key = QualifierKey::Constant(Value::string(field.as_str()));
                let mut attribute = into_qualified(operand);
                attribute.push(key, false);
                if *test_only {
                    attribute.test_presence();
                }
                Kind::Attribute(Box::new(attribute))
            }
            ExprKind::Call { function, target, args } => return self.plan_call(id, function, *target, args),
            ExprKind::List(elements) => self.plan_list(elements)?,
            ExprKind::Map(entries) => self.plan_map(entries)?,
            ExprKind::Struct { type_name, fields } => self.plan_struct(id, type_name, fields)?,
            ExprKind::Comprehension(it) => self.plan_comprehension(it)?,
        };
        Ok(Node { id, kind })
    }

    /// Plans a name, qualified or not.
    fn plan_reference(&self, id: ExprId) -> Result<Option<Kind>, PlanError> {
        Ok(match self.typed.reference(id) {
            Reference::Variable { name, global } => Some(self.plan_variable(name, *global)),
            Reference::Constant(value) => Some(Kind::Constant(value.clone())),
            Reference::Type { value: Some(of), .. } => Some(Kind::Constant(Value::Type(of.clone()))),
            Reference::Type { name, value: None } => {
                return Err(PlanError(EvalError::other(format!("reference to undefined type: {name}"))));
            }
            Reference::Function { .. } | Reference::None => None,
        })
    }

    fn plan_variable(&self, name: &Name, global: bool) -> Kind {
        let local = if global { None } else { self.scopes.iter().rev().find(|(local, _)| *local == name) };
        let base = match local {
            Some((_, LocalSlot::Slot(slot))) => Base::Local(*slot),
            Some((_, LocalSlot::Lazy { slot, init })) => Base::LazyLocal { slot: *slot, init: *init },
            None => Base::Variable(match name.strip_prefix('.') {
                Some(global) => global.into(),
                None => name.clone(),
            }),
        };
        Kind::Attribute(Box::new(Attribute::new(base)))
    }

    fn plan_call(&mut self, id: ExprId, name: &Name, target: Option<ExprId>, args: &[ExprId]) -> PlanResult {
        let (function, overloads, qualified) = match self.typed.reference(id) {
            Reference::Function { function, overloads, qualified } => (Some(function), *overloads, *qualified),
            _ => (None, OverloadSet::default(), false),
        };
        let target = target.filter(|_| !qualified);
        let mut operands = Vec::with_capacity(args.len().saturating_add(1));
        for operand in target.iter().chain(args) {
            operands.push(self.plan(*operand)?);
        }
        let Some(function) = function else {
            return self.plan_unresolved(id, name, operands);
        };
        let is_literal = |id: &ExprId| matches!(self.typed.ast[*id].kind, ExprKind::Literal(_));
        if self.typed.env.options().constant_folding || args.last().is_some_and(is_literal) {
            check_key(&function.name, &operands)?;
        }
        if let Some(kind) = plan_builtin(function, overloads, &mut operands) {
            return Ok(Node { id, kind });
        }
        self.plan_function(id, function, overloads, operands)
    }

    /// Selections with `.?` have no function; everything else that the checker let pass has one.
    fn plan_unresolved(&self, id: ExprId, name: &Name, mut operands: Vec<Node>) -> PlanResult {
        match plan_index(name, &mut operands) {
            Some(kind) => Ok(Node { id, kind }),
            None => Err(PlanError(EvalError::other(format!("no such overload: {name}")))),
        }
    }

    fn plan_function(
        &mut self,
        id: ExprId,
        function: &Arc<Function>,
        overloads: OverloadSet,
        operands: Vec<Node>,
    ) -> PlanResult {
        let single = overloads.single(function);
        let folds = self.typed.env.options().constant_folding;
        let plan_time = overloads.of(function).next().map_or(PlanTime::Nothing, |overload| overload.plan_time);
        let prepared = match single {
            // The prepared code does not check the types of its operands.
            Some(overload) if matches!(plan_time, PlanTime::Prepare(_)) && !self.is_certain(overload, &operands) => {
                None
            }
            single => prepare(single, &operands)?,
        };
        let code = match (prepared, single, function.singleton) {
            (Some(code), _, _) => code,
            (None, _, Some(singleton)) => self.code_of_singleton(singleton, &operands),
            (None, Some(overload), None) => self.code_of(function, overloads, overload, &operands),
            (None, None, None) => Code::Dispatch(function.clone(), overloads),
        };
        if let (PlanTime::Convert, true, [operand]) = (plan_time, folds, operands.as_slice())
            && let Some(value) = operand.constant()
        {
            let value = call::run(&code, &function.name, std::slice::from_ref(value)).map_err(PlanError)?;
            return Ok(Node { id, kind: Kind::Constant(value) });
        }
        let stops_early =
            matches!(code, Code::Dispatch(..)) || matches!(plan_time, PlanTime::InTurn) || is_replaced(single, &code);
        let price = match price_of(function, overloads) {
            // The size of a constant is known now.
            Price::Traversal { operand } if let Some(value) = operands.get(operand).and_then(Node::constant) => {
                Price::Fixed(traversal_cost(value.size()))
            }
            price => price,
        };
        if let (PlanTime::Compute, true) = (plan_time, folds)
            && let Some(computed) = compute(&code, &function.name, price, &operands)
        {
            return Ok(Node { id, kind: Kind::Computed(Box::new(computed)) });
        }
        let name = function.name.clone();
        let question = question(&code, function.singleton, price, &operands);
        let partial = function.partial;
        let call = CallNode { name, code, operands: operands.into(), price, stops_early, question, partial };
        Ok(Node { id, kind: Kind::Call(Box::new(call)) })
    }

    /// The code that all overloads share; it need not look at a first operand whose type is certain.
    fn code_of_singleton(&self, singleton: Singleton, operands: &[Node]) -> Code {
        match operands.first() {
            Some(first) if has_certain_kind(self.typed.type_of(first.id)) => Code::Native(singleton.call),
            _ => Code::Singleton(singleton),
        }
    }

    /// Whether the operands match the overload for all possible values.
    fn is_certain(&self, overload: &ResolvedOverload, operands: &[Node]) -> bool {
        let pairs = operands.iter().zip(&overload.signature.parameters);
        pairs.into_iter().all(|(operand, parameter)| is_certainly(self.typed.type_of(operand.id), parameter))
    }

    /// Returns the code of a single overload.
    fn code_of(
        &self,
        function: &Arc<Function>,
        overloads: OverloadSet,
        overload: &ResolvedOverload,
        operands: &[Node],
    ) -> Code {
        let is_certain = self.is_certain(overload, operands);
        match &overload.implementation {
            Implementation::Native(native) if is_certain => Code::Native(*native),
            Implementation::Closure(closure) if is_certain => Code::Prepared(PreparedCall::Call(closure.clone())),
            _ => Code::Guarded(function.clone(), overloads.indices().next().unwrap_or(0)),
        }
    }

    fn plan_list(&mut self, elements: &[ListElement]) -> Result<Kind, PlanError> {
        let mut planned = Vec::with_capacity(elements.len());
        for element in elements {
            planned.push(Element { value: self.plan(element.value)?, optional: element.optional });
        }
        if self.typed.env.options().constant_folding
            && let Some(values) = planned.iter().map(constant_element).collect::<Option<Vec<_>>>()
        {
            return Ok(Kind::Constant(Value::list(values)));
        }
        Ok(Kind::List(planned.into()))
    }

    fn plan_map(&mut self, entries: &[MapEntry]) -> Result<Kind, PlanError> {
        let mut planned = Vec::with_capacity(entries.len());
        for entry in entries {
            let (key, value) = (self.plan(entry.key)?, self.plan(entry.value)?);
            planned.push(Entry { key, value, optional: entry.optional });
        }
        if self.typed.env.options().constant_folding
            && let Some(values) = planned.iter().map(constant_entry).collect::<Option<Vec<_>>>()
            && let Ok(map) = crate::value::Map::from_entries(values)
        {
            return Ok(Kind::Constant(Value::Map(map)));
        }
        Ok(Kind::Map(planned.into()))
    }

    fn plan_struct(&mut self, id: ExprId, type_name: &Name, fields: &[StructField]) -> Result<Kind, PlanError> {
        let mut planned = Vec::with_capacity(fields.len());
        for field in fields {
            let element = Element { value: self.plan(field.value)?, optional: field.optional };
            planned.push((field.name.clone(), element));
        }
        // The checker has resolved the name.
        let type_name = match self.typed.reference(id) {
            Reference::Type { name, .. } => name.clone(),
            _ => type_name.clone(),
        };
        let provider = self.typed.env.shared_provider();
        Ok(Kind::Struct(Box::new(StructNode { type_name, fields: planned.into(), provider })))
    }

    fn new_slot(&mut self) -> usize {
        let slot = self.slot_count;
        self.slot_count = slot.saturating_add(1);
        slot
    }
}

/// Whether cel-go replaces this call by another one, too.
fn is_replaced(overload: Option<&ResolvedOverload>, code: &Code) -> bool {
    matches!(code, Code::Prepared(_)) && overload.is_some_and(|it| matches!(it.plan_time, PlanTime::Replace(_)))
}

/// Code made for this call, if the overload makes any from the operands that are constant.
fn prepare(overload: Option<&ResolvedOverload>, operands: &[Node]) -> Result<Option<Code>, PlanError> {
    let Some(PlanTime::Prepare(prepare) | PlanTime::Replace(prepare)) = overload.map(|overload| overload.plan_time)
    else {
        return Ok(None);
    };
    let constants: Vec<_> = operands.iter().map(Node::constant).collect();
    prepare(&constants).map(|code| code.map(Code::Prepared).map_err(PlanError)).transpose()
}

/// Returns the predicate of a call that tests a text against constants.
fn question(code: &Code, singleton: Option<Singleton>, price: Price, operands: &[Node]) -> Option<Question> {
    let [_, second] = operands else { return None };
    let constant = second.constant()?;
    let fixed_cost = match price {
        Price::Fixed(cost) => Some(cost),
        Price::Traversal { .. } | Price::Sized { .. } => None,
        Price::OfList { .. } => return None,
    };
    let test = match (code, singleton, constant) {
        (Code::Prepared(PreparedCall::Test(test)), ..) => QuestionTest::Prepared(test.clone()),
        (
            Code::Native(_) | Code::Singleton(_),
            Some(Singleton { texts: Some(test), accepts, .. }),
            Value::String(text),
        ) if accepts(constant) => QuestionTest::Texts(test, text.clone()),
        _ => return None,
    };
    Some(Question { test, fixed_cost })
}

fn constant_element(element: &Element) -> Option<Value<'static>> {
    if element.optional { None } else { element.value.constant().cloned() }
}

fn constant_entry(entry: &Entry) -> Option<(Value<'static>, Value<'static>)> {
    if entry.optional { None } else { Some((entry.key.constant()?.clone(), entry.value.constant()?.clone())) }
}

/// Whether the values of this type are all of one kind, which need not be checked at run time.
fn has_certain_kind(value_type: &Type) -> bool {
    !matches!(
        value_type,
        Type::Dyn | Type::Any | Type::Error | Type::Null | Type::Wrapper(_) | Type::Param(_) | Type::Var(_)
    )
}

/// Whether all values of the type match the parameter. At run time the first element of a list is examined,
/// too.
fn is_certainly(value_type: &Type, parameter: &Type) -> bool {
    match (value_type, parameter) {
        (_, Type::Dyn | Type::Any | Type::Param(_)) => true,
        (Type::List(value_type), Type::List(parameter)) => is_certainly(value_type, parameter),
        (value_type, _) => has_certain_kind(value_type),
    }
}

/// Rejects constants that cannot be keys.
fn check_key(name: &Name, operands: &[Node]) -> Result<(), PlanError> {
    if *name != ast::operator::INDEX && *name != ast::operator::OPTIONAL_INDEX {
        return Ok(());
    }
    match operands.last().and_then(Node::constant) {
        None | Some(Value::String(_) | Value::Int(_) | Value::Uint(_) | Value::Bool(_) | Value::Double(_)) => Ok(()),
        Some(other) => Err(PlanError(EvalError::other(format!("invalid qualifier type: {}", other.go_type_name())))),
    }
}

/// Price of a call whose overload is known only at run time: that of the function if it has one, else 1.
fn price_of(function: &Function, overloads: OverloadSet) -> Price {
    if let Some(single) = overloads.single(function) {
        return single.price;
    }
    match overloads.of(function).next().map(|overload| overload.price) {
        Some(price @ (Price::Fixed(_) | Price::Sized { when_dynamic: true, .. })) => price,
        _ => Price::ONE,
    }
}

/// Computes a call whose operands are constant, or were computed themselves.
fn compute(code: &Code, name: &str, price: Price, operands: &[Node]) -> Option<ComputedValue> {
    let mut values = Vec::with_capacity(operands.len());
    let mut cost = 0_u64;
    for operand in operands {
        match &operand.kind {
            Kind::Constant(value) => values.push(value.clone()),
            Kind::Computed(computed) => {
                cost = cost.saturating_add(computed.cost);
                values.push(computed.result.as_ref().ok()?.clone());
            }
            _ => return None,
        }
    }
    let result = call::run(code, name, &values);
    let own = price.actual(&values, result.as_ref());
    Some(ComputedValue { result, cost: cost.saturating_add(own) })
}
