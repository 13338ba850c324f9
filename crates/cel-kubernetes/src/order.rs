//! Whether an expression depends on the order of a list in its input.
//!
//! A set of devices is unordered. An expression whose result is the same for every order can be searched in any
//! order; other expressions are legal, but depend on the order of names. If the analysis is undecided, it
//! reports that the order matters.

use cel::checker::{Reference, TypedAst};
use cel::syntax::ast::{Comprehension, ExprId, ExprKind, Literal, Name, operator};
use cel::types::Type;

/// Whether the value is the same for every order of a list variable, unless it is an error.
pub fn is_indifferent_to_order(typed: &TypedAst, variable: &str) -> bool {
    let mut order = Order { typed, variable, locals: Vec::new() };
    order.class(typed.ast().root()) == Class::Same
}

/// Effect of the variable's order on a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// The value is the same.
    Same,
    /// The value is a list of the same elements in another order.
    Shuffled,
    /// The value is different.
    Different,
}

struct Order<'t> {
    typed: &'t TypedAst,
    variable: &'t str,
    /// Innermost last.
    locals: Vec<(&'t Name, Class)>,
}

impl<'t> Order<'t> {
    fn class(&mut self, id: ExprId) -> Class {
        let typed = self.typed;
        match &typed.ast()[id].kind {
            ExprKind::Ident(name) => match self.locals.iter().rev().find(|(local, _)| *local == name) {
                Some((_, class)) => *class,
                None => self.class_of_variable(id),
            },
            ExprKind::Call { function, target, args } => {
                let operands: Vec<ExprId> = target.iter().chain(args).copied().collect();
                self.class_of_call(function, &operands)
            }
            ExprKind::Comprehension(it) => self.class_of_comprehension(it),
            // A literal of lists in another order is another list.
            _ => typed.ast().children(id).map(|child| self.class(child)).fold(Class::Same, without_shuffled),
        }
    }

    fn class_of_variable(&self, id: ExprId) -> Class {
        match self.typed.reference(id) {
            Reference::Variable { name, .. } if name == self.variable => Class::Shuffled,
            _ => Class::Same,
        }
    }

    fn class_of_call(&mut self, function: &Name, operands: &[ExprId]) -> Class {
        let classes: Vec<Class> = operands.iter().map(|operand| self.class(*operand)).collect();
        let worst = classes.iter().copied().max().unwrap_or(Class::Same);
        if worst != Class::Shuffled {
            return worst;
        }
        match function.as_str() {
            "size" | "min" | "max" | "@in" | "includes" | "sort" | "sets.contains" | "sets.equivalent"
            | "sets.intersects" => Class::Same,
            // Rounding depends on the order of adding.
            "sum" if operands.iter().all(|operand| is_whole(self.typed.type_of(*operand))) => Class::Same,
            "contains" | "equivalent" | "intersects" if self.is_of_sets(operands) => Class::Same,
            "distinct" | "reverse" | "_+_" | "dyn" | "@sortByAssociatedKeys" => Class::Shuffled,
            "_?_:_" if classes.first() == Some(&Class::Same) => Class::Shuffled,
            _ => Class::Different,
        }
    }

    /// Whether all operands are lists.
    fn is_of_sets(&self, operands: &[ExprId]) -> bool {
        let lists = operands.iter().filter(|operand| matches!(self.typed.type_of(**operand), Type::List(_)));
        lists.count() >= 2
    }

    fn class_of_comprehension(&mut self, comprehension: &'t Comprehension) -> Class {
        let ast = self.typed.ast();
        let depth = self.locals.len();
        if matches!(&ast[comprehension.range].kind, ExprKind::List(elements) if elements.is_empty()) {
            // `cel.bind`
            let class = self.class(comprehension.init);
            self.locals.push((&comprehension.accumulator, class));
            let class = self.class(comprehension.result);
            self.locals.truncate(depth);
            return class;
        }
        let range = self.class(comprehension.range);
        if range == Class::Different || self.class(comprehension.init) != Class::Same {
            return Class::Different;
        }
        self.locals.push((&comprehension.accumulator, Class::Same));
        let is_shuffled = range == Class::Shuffled;
        match &comprehension.second_variable {
            Some(second) => {
                self.locals.push((&comprehension.variable, if is_shuffled { Class::Different } else { Class::Same }));
                self.locals.push((second, Class::Same));
            }
            None => self.locals.push((&comprehension.variable, Class::Same)),
        }
        let parts = [comprehension.condition, comprehension.step, comprehension.result]
            .into_iter()
            .map(|part| self.class(part))
            .max();
        self.locals.truncate(depth);
        match (&ast[comprehension.init].kind, parts) {
            (_, Some(Class::Same)) if !is_shuffled => Class::Same,
            (ExprKind::Literal(Literal::Bool(_) | Literal::Int(_)), Some(Class::Same)) => Class::Same,
            (ExprKind::List(elements), Some(Class::Same)) if elements.is_empty() && self.adds(comprehension) => {
                Class::Shuffled
            }
            _ => Class::Different,
        }
    }

    /// Whether the loop adds elements to a list: `map`, `filter`.
    fn adds(&self, comprehension: &Comprehension) -> bool {
        let ast = self.typed.ast();
        let is_sum =
            |id: ExprId| matches!(&ast[id].kind, ExprKind::Call { function, .. } if *function == operator::ADD);
        match &ast[comprehension.step].kind {
            ExprKind::Call { function, args, .. } if *function == operator::CONDITIONAL => {
                args.get(1).is_some_and(|added| is_sum(*added))
            }
            _ => is_sum(comprehension.step),
        }
    }
}

/// Combines the parts of a whole: shuffled parts form a different whole.
fn without_shuffled(all: Class, part: Class) -> Class {
    if part == Class::Same { all } else { Class::Different }
}

/// Whether the sum of a list is independent of the order; numeric attributes of devices are whole numbers.
fn is_whole(value_type: &Type) -> bool {
    match value_type {
        Type::List(element) => matches!(**element, Type::Int | Type::Uint | Type::Duration | Type::Any),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environments::{Dialect, devices};

    #[track_caller]
    fn check(expression: &str, indifferent: bool) {
        let environment = devices::environment(Dialect::CELPLANE).unwrap().without_estimate_limit();
        let compiled = environment.compile(expression).unwrap();
        assert_eq!(is_indifferent_to_order(compiled.typed(), "devices"), indifferent, "{expression}");
    }

    #[test]
    fn sets_are_distinguished_from_sequences() {
        let id = "d.attributes['a'].id";
        check(&format!("devices.map(d, {id}).max() - devices.map(d, {id}).min() == 3"), true);
        check(&format!("devices.all(d, devices.filter(e, d != e).size() >= 2 && {id} > 1)"), true);
        check(&format!("devices.exists_one(d, {id} == 1) && devices.map(d, {id}).sum() > 3"), true);
        check(&format!("cel.bind(ids, devices.map(d, {id}), ids.max() - ids.min() < 4)"), true);
        check(&format!("sets.equivalent(devices.map(d, {id}), [1, 2]) && 1 in devices.map(d, {id})"), true);
        check(&format!("devices.map(d, {id}).sort()[0] == 1"), true);
        check(&format!("devices.map(d, {id}).distinct().size() == 1"), true);
        check("devices[0].driver == 'a'", false);
        check(&format!("devices.map(d, {id}).isSorted()"), false);
        check(&format!("devices.map(d, {id}) == [1, 2]"), false);
        check(&format!("devices.all(i, d, i < {id})"), false);
        check("devices.map(d, d.capacity['a'].m.asApproximateFloat()).sum() > 1.0", false);
        check("devices.map(d, d.driver).join(',') == 'a,b'", false);
        check("cel.bind(first, devices[0], devices.all(d, d.driver == first.driver))", false);
    }
}
