//! Trees are built by hand: the tests cover the walk, not the checker and not the libraries' prices.

use super::*;
use crate::cost::{NoHints, Price};
use crate::env::{Env, Implementation};
use crate::source::{Source, Span};
use crate::syntax::ast::{ACCUMULATOR, Ast, ListElement};

/// A tree under construction.
struct Tree {
    env: Env,
    ast: Ast,
    types: Vec<Type>,
    references: Vec<Reference>,
}

impl Tree {
    fn new() -> Tree {
        let sized = |estimate| Price::Sized { estimate, actual: |_, _| 1, when_dynamic: false };
        let prefix = sized(|call| call.size(1).times_factor(0.1).into());
        let concatenated: fn(&dyn CallSite) -> CallEstimate =
            |call| CallEstimate { cost: Cost::exactly(1), result_size: Some(call.size(0).plus(call.size(1))) };
        let each = sized(|call| {
            call.size(0).times_cost(call.known_element_size(0).unwrap_or(Size::exactly(1)).as_cost()).into()
        });
        let env = Env::builder()
            .overload("starts_with_string", "string.startsWith(string) -> bool", prefix, Implementation::Builtin)
            .overload("logical_and", "_&&_(bool, bool) -> bool", Price::ONE, Implementation::Builtin)
            .overload("conditional", "_?_:_(bool, T, T) -> T", Price::ONE, Implementation::Builtin)
            .overload("add_list", "_+_(list(T), list(T)) -> list(T)", sized(concatenated), Implementation::Builtin)
            .overload("index_list", "_[_](list(T), int) -> T", Price::ONE, Implementation::Builtin)
            .overload("index_map", "_[_](map(K, V), K) -> V", Price::ONE, Implementation::Builtin)
            .overload("list_sum", "list(T).sum() -> T", each, Implementation::Builtin)
            .overload(
                "size_string",
                "size(string) -> int",
                sized(|call| call.size(0).as_cost().into()),
                Implementation::Builtin,
            )
            .options(|options| options.presence_test_has_cost = false)
            .build()
            .unwrap();
        Tree { env, ast: Ast::new(Source::new("")), types: Vec::new(), references: Vec::new() }
    }

    fn add(&mut self, kind: ExprKind, of: &str, reference: Reference) -> ExprId {
        self.types.push(Type::parse(of).unwrap());
        self.references.push(reference);
        self.ast.add(kind, 0, Span::default())
    }

    fn variable(&mut self, name: &'static str, of: &str) -> ExprId {
        let name = Name::from_static(name);
        self.add(ExprKind::Ident(name.clone()), of, Reference::Variable { name, global: false })
    }

    fn select(&mut self, operand: ExprId, field: &'static str, of: &str) -> ExprId {
        let field = Name::from_static(field);
        self.add(ExprKind::Select { operand, field, test_only: false }, of, Reference::None)
    }

    fn text(&mut self, text: &str) -> ExprId {
        self.add(ExprKind::Literal(Literal::String(text.into())), "string", Reference::None)
    }

    fn truth(&mut self, truth: bool) -> ExprId {
        self.add(ExprKind::Literal(Literal::Bool(truth)), "bool", Reference::None)
    }

    fn number(&mut self, number: i64) -> ExprId {
        self.add(ExprKind::Literal(Literal::Int(number)), "int", Reference::None)
    }

    fn list(&mut self, values: &[ExprId], of: &str) -> ExprId {
        let elements = values.iter().map(|value| ListElement { value: *value, optional: false }).collect();
        self.add(ExprKind::List(elements), of, Reference::None)
    }

    /// A call that can mean every overload of the function.
    fn call(&mut self, function: &'static str, target: Option<ExprId>, args: &[ExprId], of: &str) -> ExprId {
        let declared = self.env.function(function).unwrap().clone();
        let mut overloads = OverloadSet::default();
        (0..declared.overloads.len()).for_each(|index| overloads.insert(index));
        let kind = ExprKind::Call { function: Name::from_static(function), target, args: args.to_vec() };
        self.add(kind, of, Reference::Function { function: declared, overloads, qualified: false })
    }

    fn fold(&mut self, fold: Comprehension, of: &str) -> ExprId {
        self.add(ExprKind::Comprehension(Box::new(fold)), of, Reference::None)
    }

    #[track_caller]
    fn check(mut self, root: ExprId, hints: &dyn SizeHints, min: u64, max: u64) {
        self.ast.set_root(root);
        let typed = TypedAst { env: self.env, ast: self.ast, types: self.types, references: self.references };
        assert_eq!(estimate(&typed, hints), Cost { min, max });
    }
}

/// Size hints at some paths.
struct Hints(&'static [(&'static [PathStep<'static>], u64)]);

impl SizeHints for Hints {
    fn size(&self, path: &[PathStep<'_>], _of: &Type) -> Option<Size> {
        self.0.iter().find(|(known, _)| *known == path).map(|(_, max)| Size::at_most(*max))
    }
}

const SELF: PathStep<'_> = PathStep::Variable("self");
const SPEC: PathStep<'_> = PathStep::Field("spec");

#[test]
fn a_call_costs_its_operands_and_its_price() {
    let mut tree = Tree::new();
    let taint = tree.variable("taint", "kubernetes.Taint");
    let key = tree.select(taint, "key", "string");
    let prefix = tree.text("env.example.com/");
    let root = tree.call("startsWith", Some(key), &[prefix], "bool");
    tree.check(root, &NoHints, 4, 4);
}

#[test]
fn selecting_from_dyn_is_free_and_so_is_has() {
    let mut tree = Tree::new();
    let operand = tree.variable("a", "dyn");
    let root = tree.select(operand, "b", "dyn");
    tree.check(root, &NoHints, 1, 1);
    let mut tree = Tree::new();
    let operand = tree.variable("m", "map(string, int)");
    let field = Name::from_static("k");
    let root = tree.add(ExprKind::Select { operand, field, test_only: true }, "bool", Reference::None);
    tree.check(root, &NoHints, 1, 1);
}

#[test]
fn branches_cost_between_the_cheapest_and_the_dearest() {
    let mut tree = Tree::new();
    let (left, right) = (tree.variable("a", "bool"), tree.variable("b", "bool"));
    let condition = tree.call("_&&_", None, &[left, right], "bool");
    let (short, long) = (tree.text("four"), tree.text("twelve chars"));
    let root = tree.call("_?_:_", None, &[condition, short, long], "string");
    let root = tree.call("size", None, &[root], "int");
    tree.check(root, &NoHints, 5, 14);
}

#[test]
fn concatenated_lists_know_how_large_their_elements_are() {
    let mut tree = Tree::new();
    let (short, long) = (tree.text("four"), tree.text("twelve chars"));
    let (left, right) = (tree.list(&[short], "list(string)"), tree.list(&[long], "list(string)"));
    let both = tree.call("_+_", None, &[left, right], "list(string)");
    let index = tree.number(1);
    let root = tree.call("_[_]", None, &[both, index], "string");
    let root = tree.call("size", None, &[root], "int");
    tree.check(root, &NoHints, 26, 34);
}

#[test]
fn an_index_into_dyn_follows_the_path_of_a_map_after_that_of_a_list() {
    const HINTS: Hints = Hints(&[(&[SELF, PathStep::Values], 7)]);
    let mut tree = Tree::new();
    let (container, index) = (tree.variable("self", "dyn"), tree.number(0));
    let root = tree.call("_[_]", None, &[container, index], "dyn");
    let root = tree.call("size", None, &[root], "int");
    tree.check(root, &HINTS, 2, 9);
}

/// `self.spec.labels.all(k, v, size(k))`, as far as costs are concerned, or over `self.spec`.
fn for_each_key(deep: bool) -> (Tree, ExprId) {
    let mut tree = Tree::new();
    let mut range = tree.variable("self", "selfType");
    range = tree.select(range, "spec", "map(string, string)");
    if deep {
        range = tree.select(range, "labels", "map(string, string)");
    }
    let (init, condition) = (tree.truth(true), tree.variable("@result", "bool"));
    let key = tree.variable("k", "string");
    let step = tree.call("size", None, &[key], "int");
    let result = tree.variable("@result", "bool");
    let (variable, second_variable) = (Name::from_static("k"), Some(Name::from_static("v")));
    let accumulator = ACCUMULATOR;
    let fold = Comprehension { range, variable, second_variable, accumulator, init, condition, step, result };
    let root = tree.fold(fold, "bool");
    (tree, root)
}

#[test]
fn a_comprehension_costs_each_step_as_often_as_its_range_is_long() {
    const HINTS: Hints =
        Hints(&[(&[SELF, SPEC], 10), (&[SELF, SPEC, PathStep::Keys], 5), (&[SELF, SPEC, PathStep::Values], 50)]);
    let (tree, root) = for_each_key(false);
    tree.check(root, &HINTS, 3, 3 + 10 * (1 + 1 + 5));
}

#[test]
fn keys_and_values_share_a_path_of_three_steps_as_in_the_reference() {
    const LABELS: PathStep<'_> = PathStep::Field("labels");
    const HINTS: Hints = Hints(&[
        (&[SELF, SPEC, LABELS], 10),
        (&[SELF, SPEC, LABELS, PathStep::Keys], 5),
        (&[SELF, SPEC, LABELS, PathStep::Values], 50),
    ]);
    let (tree, root) = for_each_key(true);
    tree.check(root, &HINTS, 4, 4 + 10 * (1 + 1 + 50));
}

#[test]
fn bound_variable_has_the_size_of_its_value() {
    let mut tree = Tree::new();
    let (range, init) = (tree.list(&[], "list(dyn)"), tree.text("four"));
    let (condition, step) = (tree.truth(false), tree.variable("x", "string"));
    let bound = tree.variable("x", "string");
    let result = tree.call("size", None, &[bound], "int");
    let (variable, accumulator) = (Name::from_static("#unused"), Name::from_static("x"));
    let fold = Comprehension { range, variable, second_variable: None, accumulator, init, condition, step, result };
    let root = tree.fold(fold, "int");
    tree.check(root, &NoHints, 10 + 1 + 4, 10 + 1 + 4);
}

#[test]
fn prices_may_ask_for_the_size_of_elements() {
    const HINTS: Hints = Hints(&[(&[SELF], 10), (&[SELF, PathStep::Items], 5)]);
    let mut tree = Tree::new();
    let list = tree.variable("self", "list(string)");
    let root = tree.call("sum", Some(list), &[], "string");
    tree.check(root, &HINTS, 1, 51);
}
