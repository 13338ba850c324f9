//! Comprehensions: which of them are `all` and `exists`, `map` and `filter`, so that their accumulator is never a value.

use super::super::node::{
    Attribute, AttributeStrategy, Base, CollectNode, Element, Fold, FoldCondition, FoldStep, Kind, Node, Quantifier,
};
use super::{LocalSlot, PlanError, Planner};
use crate::cost::LIST_CREATION;
use crate::syntax::ast::{Comprehension, ExprId, ExprKind, ListElement, Literal, Name, operator};
use crate::value::Value;

impl<'t> Planner<'t> {
    pub(super) fn plan_comprehension(&mut self, comprehension: &'t Comprehension) -> Result<Kind, PlanError> {
        if let Some((decisive, predicate)) = self.quantified(comprehension) {
            self.plan_quantifier(comprehension, decisive, predicate)
        } else if let Some((condition, list)) = self.collected(comprehension) {
            self.plan_collect(comprehension, condition, list)
        } else {
            Ok(Kind::Fold(Box::new(self.plan_fold(comprehension)?)))
        }
    }

    fn plan_fold(&mut self, comprehension: &'t Comprehension) -> Result<Fold, PlanError> {
        let range = self.plan(comprehension.range)?;
        let init = self.plan(comprehension.init)?;
        // INVARIANT: slots are never reused, because a lazy accumulator may be computed inside any later loop.
        let accumulator = self.new_slot();
        let variable = self.new_slot();
        let second_variable = comprehension.second_variable.as_ref().map(|_| self.new_slot());
        let (init, local) = match init.kind {
            Kind::Constant(value) => (Some(value), LocalSlot::Slot(accumulator)),
            _ => {
                self.lazies.push(init);
                (None, LocalSlot::Lazy { slot: accumulator, init: self.lazies.len().saturating_sub(1) })
            }
        };
        let depth = self.scopes.len();
        self.scopes.push((&comprehension.accumulator, local));
        self.scopes.push((&comprehension.variable, LocalSlot::Slot(variable)));
        if let (Some(name), Some(slot)) = (&comprehension.second_variable, second_variable) {
            self.scopes.push((name, LocalSlot::Slot(slot)));
        }
        let condition = match self.plan(comprehension.condition)? {
            condition if matches!(condition.constant(), Some(Value::Bool(true))) => FoldCondition::Always,
            condition => FoldCondition::While(condition),
        };
        let step = match &init {
            Some(Value::List(_)) => self.plan_list_step(comprehension)?,
            _ => FoldStep::Assign(self.plan(comprehension.step)?),
        };
        self.scopes.truncate(depth.saturating_add(1));
        let result = self.plan(comprehension.result)?;
        self.scopes.truncate(depth);
        let counts = self.counts(comprehension);
        Ok(Fold { range, accumulator, variable, second_variable, init, condition, step, result, counts })
    }

    /// Gives the variables of a loop their slots, and brings them into scope.
    fn declare_variables(&mut self, comprehension: &'t Comprehension) -> (usize, Option<usize>) {
        let variable = self.new_slot();
        let second_variable = comprehension.second_variable.as_ref().map(|_| self.new_slot());
        self.scopes.push((&comprehension.variable, LocalSlot::Slot(variable)));
        if let (Some(name), Some(slot)) = (&comprehension.second_variable, second_variable) {
            self.scopes.push((name, LocalSlot::Slot(slot)));
        }
        (variable, second_variable)
    }

    fn plan_quantifier(
        &mut self,
        comprehension: &'t Comprehension,
        decisive: bool,
        predicate: ExprId,
    ) -> Result<Kind, PlanError> {
        let range = self.plan(comprehension.range)?;
        let depth = self.scopes.len();
        let (variable, second_variable) = self.declare_variables(comprehension);
        let predicate = self.plan(predicate)?;
        self.scopes.truncate(depth);
        let quantifier = Quantifier { range, variable, second_variable, decisive, predicate };
        Ok(Kind::Quantifier(Box::new(quantifier)))
    }

    fn plan_collect(
        &mut self,
        comprehension: &'t Comprehension,
        condition: Option<ExprId>,
        list: ExprId,
    ) -> Result<Kind, PlanError> {
        let range = self.plan(comprehension.range)?;
        let depth = self.scopes.len();
        let (variable, second_variable) = self.declare_variables(comprehension);
        let condition = condition.map(|condition| self.plan(condition)).transpose()?;
        let mut list = self.plan(list)?;
        let mut list_cost = LIST_CREATION;
        if let Some(Value::List(constant)) = list.constant() {
            // Constants cost nothing.
            list_cost = 0;
            let element = Node { id: list.id, kind: Kind::Constant(constant.get(0).unwrap_or(Value::Null)) };
            list.kind = Kind::List([Element { value: element, optional: false }].into());
        }
        self.scopes.truncate(depth);
        let mut collect =
            CollectNode { range, variable, second_variable, condition, list, list_cost, adds_variable: false };
        collect.adds_variable = matches!(collect.element(), Some(Node { kind: Kind::Attribute(element), .. })
            if matches!(**element, Attribute { way: AttributeStrategy::Local, base: Base::Local(slot), .. } if slot == variable));
        Ok(Kind::Collect(Box::new(collect)))
    }

    /// Recognizes `map` and `filter`: a loop that adds one element at a time to a list which nothing else sees. Answers the condition
    /// and the list of that element.
    fn collected(&self, comprehension: &Comprehension) -> Option<(Option<ExprId>, ExprId)> {
        let ast = &self.typed.ast;
        let (ExprKind::List(first), ExprKind::Literal(Literal::Bool(true))) =
            (&ast[comprehension.init].kind, &ast[comprehension.condition].kind)
        else {
            return None;
        };
        if !first.is_empty() || !self.is_ident(comprehension.result, &comprehension.accumulator) {
            return None;
        }
        let (condition, list) = self.appended_if(comprehension)?;
        let ExprKind::List(elements) = &ast[list].kind else { return None };
        let [ListElement { value, optional: false }] = elements.as_slice() else { return None };
        let is_seen = self.reads(*value, &comprehension.accumulator)
            || condition.is_some_and(|it_too| self.reads(it_too, &comprehension.accumulator));
        if is_seen { None } else { Some((condition, list)) }
    }

    /// Recognizes `all` and `exists`: a loop that ands or ors a predicate into an accumulator which the
    /// predicate does not read. Returns the value that ends the loop, and the predicate.
    fn quantified(&self, comprehension: &Comprehension) -> Option<(bool, ExprId)> {
        let ast = &self.typed.ast;
        let ExprKind::Literal(Literal::Bool(init)) = ast[comprehension.init].kind else { return None };
        let decisive = !init;
        let joins = if decisive { operator::LOGICAL_OR } else { operator::LOGICAL_AND };
        let [accumulator, predicate] = self.operands_of(comprehension.step, &joins)? else { return None };
        let [mut asked] = *self.operands_of(comprehension.condition, &operator::NOT_STRICTLY_FALSE)? else {
            return None;
        };
        if decisive {
            let [negated] = *self.operands_of(asked, &operator::LOGICAL_NOT)? else { return None };
            asked = negated;
        }
        let is_quantifier = self.is_ident(*accumulator, &comprehension.accumulator)
            && self.is_ident(asked, &comprehension.accumulator)
            && self.is_ident(comprehension.result, &comprehension.accumulator)
            && !self.reads(*predicate, &comprehension.accumulator);
        is_quantifier.then_some((decisive, *predicate))
    }

    /// Recognizes `exists_one`: a loop that counts matches and finally tests for exactly one.
    fn counts(&self, comprehension: &Comprehension) -> bool {
        let is_int = |id: ExprId, number: i64| matches!(self.typed.ast[id].kind, ExprKind::Literal(Literal::Int(literal)) if literal == number);
        let is_step = || {
            let [condition, counted, kept] = self.operands_of(comprehension.step, &operator::CONDITIONAL)? else {
                return None;
            };
            let [count, one] = self.operands_of(*counted, &operator::ADD)? else { return None };
            let [sum, wanted] = self.operands_of(comprehension.result, &operator::EQUALS)? else { return None };
            let is_count = [count, kept, sum].into_iter().all(|id| self.is_ident(*id, &comprehension.accumulator));
            let is_one = is_int(*one, 1) && is_int(*wanted, 1) && is_int(comprehension.init, 0);
            Some(is_count && is_one && !self.reads(*condition, &comprehension.accumulator))
        };
        let goes_on = matches!(self.typed.ast[comprehension.condition].kind, ExprKind::Literal(Literal::Bool(true)));
        goes_on && is_step().unwrap_or(false)
    }

    fn operands_of(&self, id: ExprId, name: &Name) -> Option<&'t [ExprId]> {
        match &self.typed.ast[id].kind {
            ExprKind::Call { function, target: None, args } if function == name => Some(args),
            _ => None,
        }
    }

    /// Whether the name is read below the node, other than as the accumulator of an inner loop.
    fn reads(&self, id: ExprId, name: &Name) -> bool {
        match &self.typed.ast[id].kind {
            ExprKind::Ident(ident) => ident == name,
            ExprKind::Comprehension(it) if it.accumulator == *name => {
                self.reads(it.range, name) || self.reads(it.init, name)
            }
            kind => kind.children().any(|child| self.reads(child, name)),
        }
    }

    /// Recognizes the accumulator steps of `map` and `filter`, so that the list grows in place.
    fn plan_list_step(&mut self, comprehension: &'t Comprehension) -> Result<FoldStep, PlanError> {
        match self.appended_if(comprehension) {
            Some((None, list)) => Ok(FoldStep::Append(self.plan(list)?)),
            Some((Some(condition), list)) => Ok(FoldStep::AppendIf(self.plan(condition)?, self.plan(list)?)),
            None => Ok(FoldStep::Assign(self.plan(comprehension.step)?)),
        }
    }

    /// The condition and the list in `accumulator + list` or `condition ? accumulator + list : accumulator`.
    fn appended_if(&self, comprehension: &Comprehension) -> Option<(Option<ExprId>, ExprId)> {
        if let Some(list) = self.appended(comprehension.step, &comprehension.accumulator) {
            return Some((None, list));
        }
        match &self.typed.ast[comprehension.step].kind {
            ExprKind::Call { function, args, .. } if *function == operator::CONDITIONAL => match args.as_slice() {
                [condition, truthy, falsy] if self.is_ident(*falsy, &comprehension.accumulator) => {
                    Some((Some(*condition), self.appended(*truthy, &comprehension.accumulator)?))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The list in `accumulator + list`.
    fn appended(&self, id: ExprId, accumulator: &Name) -> Option<ExprId> {
        match &self.typed.ast[id].kind {
            ExprKind::Call { function, args, .. } if *function == operator::ADD => match args.as_slice() {
                [left, list] if self.is_ident(*left, accumulator) => Some(*list),
                _ => None,
            },
            _ => None,
        }
    }

    fn is_ident(&self, id: ExprId, name: &Name) -> bool {
        matches!(&self.typed.ast[id].kind, ExprKind::Ident(ident) if ident == name)
    }
}
