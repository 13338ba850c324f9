//! Static analysis of device set expressions: whether they can be evaluated on a partial set.
//!
//! Conditions on one element are evaluated on the element itself. Functions of the whole list must have an
//! implementation for partial lists; the result of other calls is unknown until the list is complete.

use std::collections::BTreeSet;

use cel::checker::{Reference, TypedAst};
use cel::syntax::ast::{Comprehension, ExprId, ExprKind, Name, operator};

use crate::order::is_indifferent_to_order;

/// Properties of an expression that determine how device sets are searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prospect {
    /// Whether the value may differ with the order of the list.
    pub depends_on_order: bool,
    /// Number of conditions, joined by `&&`, that read the list.
    pub conditions: usize,
    /// Number of conditions that can be evaluated on a partial list.
    pub judged_early: usize,
    /// Functions and operators that no part of the list gets past.
    pub opaque: BTreeSet<String>,
}

impl Prospect {
    /// Analyzes an expression over a list variable.
    #[must_use]
    pub fn of(typed: &TypedAst, variable: &str) -> Prospect {
        let mut prospect = Prospect {
            depends_on_order: !is_indifferent_to_order(typed, variable),
            conditions: 0,
            judged_early: 0,
            opaque: BTreeSet::new(),
        };
        let mut conditions = Vec::new();
        conjuncts(typed, typed.ast().root(), &mut conditions);
        for condition in conditions {
            let mut walk = Walk { typed, variable, locals: Vec::new(), opaque: BTreeSet::new() };
            if walk.depends(condition) {
                prospect.conditions = prospect.conditions.saturating_add(1);
                prospect.judged_early = prospect.judged_early.saturating_add(usize::from(walk.opaque.is_empty()));
                prospect.opaque.extend(walk.opaque);
            }
        }
        prospect
    }

    /// Whether every set may have to be tried.
    #[must_use]
    pub fn is_exhaustive(&self) -> bool {
        self.conditions > 0 && self.judged_early == 0
    }
}

fn conjuncts(typed: &TypedAst, id: ExprId, all: &mut Vec<ExprId>) {
    match &typed.ast()[id].kind {
        ExprKind::Call { function, args, .. } if *function == operator::LOGICAL_AND => {
            args.iter().for_each(|arg| conjuncts(typed, *arg, all));
        }
        _ => all.push(id),
    }
}

struct Walk<'t> {
    typed: &'t TypedAst,
    variable: &'t str,
    /// Whether the variables of comprehensions depend on the whole list; innermost last.
    locals: Vec<(&'t Name, bool)>,
    opaque: BTreeSet<String>,
}

impl<'t> Walk<'t> {
    /// Whether a value depends on the whole list.
    fn depends(&mut self, id: ExprId) -> bool {
        let typed = self.typed;
        match &typed.ast()[id].kind {
            ExprKind::Ident(name) => match self.locals.iter().rev().find(|(local, _)| *local == name) {
                Some((_, depends)) => *depends,
                None => matches!(typed.reference(id), Reference::Variable { name, .. } if name == self.variable),
            },
            ExprKind::Call { function, target, args } => {
                let mut depends = false;
                for operand in target.iter().chain(args) {
                    depends |= self.depends(*operand);
                }
                if depends && !is_evaluated_early(typed, id, function) {
                    self.opaque.insert(function.as_str().trim_matches('_').to_owned());
                }
                depends
            }
            ExprKind::Comprehension(it) => self.comprehension(it),
            _ => typed.ast().children(id).fold(false, |all, child| self.depends(child) | all),
        }
    }

    fn comprehension(&mut self, comprehension: &'t Comprehension) -> bool {
        let depth = self.locals.len();
        let (range, init) = (self.depends(comprehension.range), self.depends(comprehension.init));
        // `cel.bind` names a value; the elements of a list are taken one by one.
        self.locals.push((&comprehension.accumulator, init));
        self.locals.push((&comprehension.variable, false));
        self.locals.extend(comprehension.second_variable.as_ref().map(|second| (second, false)));
        let parts = [comprehension.condition, comprehension.step, comprehension.result];
        let parts = parts.into_iter().fold(false, |all, part| self.depends(part) | all);
        self.locals.truncate(depth);
        range | init | parts
    }
}

/// Whether a call can be evaluated on a partial list: logic, equality and lookups are implemented by the
/// evaluator; other functions need an implementation for partial lists.
fn is_evaluated_early(typed: &TypedAst, id: ExprId, function: &Name) -> bool {
    const OWN: &[&str] = &["_&&_", "_||_", "!_", "_==_", "_!=_", "_?_:_", "_[_]", "@in", "@not_strictly_false"];
    OWN.contains(&function.as_str())
        || matches!(typed.reference(id), Reference::Function { function, .. } if function.partial.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environments::{Dialect, devices};

    fn prospect(expression: &str) -> Prospect {
        let environment = devices::environment(Dialect::CELPLANE).unwrap().without_estimate_limit();
        Prospect::of(environment.compile(expression).unwrap().typed(), "devices")
    }

    #[track_caller]
    fn check(expression: &str, conditions: usize, judged_early: usize, opaque: &[&str]) {
        let found = prospect(expression);
        let names: Vec<&str> = found.opaque.iter().map(String::as_str).collect();
        assert_eq!((found.conditions, found.judged_early, names.as_slice()), (conditions, judged_early, opaque));
    }

    const ID: &str = "d.attributes['a'].id";

    #[test]
    fn conditions_on_one_device_are_evaluated_early() {
        check(&format!("devices.all(d, {ID} % 7 == 3 && d.driver.matches('a.*'))"), 1, 1, &[]);
        check(
            &format!("size(devices) == 4 && devices.map(d, {ID}).max() - devices.map(d, {ID}).min() == 3"),
            2,
            2,
            &[],
        );
        check("devices.all(d, devices.filter(e, d != e && e.driver == d.driver).size() >= 2)", 1, 1, &[]);
        check(&format!("cel.bind(ids, devices.map(d, {ID}), ids.max() - ids.min() < 4)"), 1, 1, &[]);
    }

    #[test]
    fn some_functions_need_the_complete_list() {
        check(&format!("devices.map(d, {ID}).sum() % 7 == 3"), 1, 0, &["%"]);
        check(&format!("devices.map(d, {ID}).sum() % 7 == 3 && devices.size() == 2 && 1 == 1"), 2, 1, &["%"]);
        check("devices.map(d, d.driver).join(',').startsWith('a')", 1, 0, &["join", "startsWith"]);
        assert!(prospect(&format!("devices.map(d, {ID}).sum() % 7 == 3")).is_exhaustive());
        assert!(!prospect("true").is_exhaustive());
        assert!(prospect("devices[0].driver == 'a'").depends_on_order);
    }
}
