//! Trees that no text leads to, through the checker, the planner and the evaluator.

use cel::checker;
use cel::cost;
use cel::program::{EmptyActivation, Program};
use cel::source::{Source, Span};
use cel::syntax::ast::{Ast, Comprehension, ExprId, ExprKind, ListElement, Literal, MapEntry, Name, StructField};
use cel::syntax::unparse;

use crate::bindings::bindings;
use crate::bytes::{Choices, text};
use crate::cel_text::{BASE, evaluate_on};

/// Any tree can be written, checked, estimated, planned and evaluated, or there is a reason why not.
pub fn cel_tree(data: &[u8]) {
    let mut choices = Choices::new(data);
    let seed = choices.byte();
    let ast = tree(&mut choices);
    let _ = unparse(&ast);
    if let Ok(typed) = checker::check(&BASE.env, ast) {
        let _ = cost::estimate(&typed, &cost::NoHints);
        if let Ok(program) = Program::new(&typed) {
            evaluate_on(&program, &EmptyActivation);
            evaluate_on(&program, &bindings(seed));
        }
    }
}

/// Each byte takes the operands that it needs from a stack and puts a node there; the last one is the root.
fn tree(choices: &mut Choices<'_>) -> Ast {
    let mut builder = Stack { ast: Ast::new(Source::new("0123456789")), operands: Vec::new() };
    while !choices.is_over() {
        let kind = builder.node(choices);
        let position = u32::from(choices.byte());
        let id = builder.ast.add(kind, position, Span { start: position, end: position.saturating_add(3) });
        builder.operands.push(id);
    }
    let root = builder.pop();
    builder.ast.set_root(root);
    builder.ast
}

struct Stack {
    ast: Ast,
    operands: Vec<ExprId>,
}

const NAMES: &[&str] = &[
    "x",
    "s",
    "b",
    "l",
    "m",
    "a",
    "i",
    "@result",
    "",
    ".x",
    "optional",
    "cel",
    "@x",
    "in",
    "é.é",
    "int",
    "kubernetes.URL",
    "google.protobuf.Timestamp",
    "google.protobuf.Int64Value",
    "value",
];

const FUNCTIONS: &[&str] = &[
    "_?_:_",
    "_&&_",
    "_||_",
    "!_",
    "_==_",
    "_!=_",
    "_<_",
    "_+_",
    "_-_",
    "-_",
    "_*_",
    "_/_",
    "_%_",
    "_[_]",
    "_?._",
    "_[?_]",
    "@in",
    "@not_strictly_false",
    "size",
    "string",
    "int",
    "dyn",
    "type",
    "matches",
    "contains",
    "join",
    "format",
    "split",
    "replace",
    "cel.@block",
    "cel.@mapInsert",
    "optional.of",
    "or",
    "orValue",
    "optMap",
    "find",
    "sort",
    "@sortByAssociatedKeys",
    "flatten",
    "lists.range",
    "sets.contains",
    "quantity",
    "semver",
    "getHours",
    "duration",
    "timestamp",
    "",
    "no.such",
    "index",
];

impl Stack {
    fn pop(&mut self) -> ExprId {
        match self.operands.pop() {
            Some(id) => id,
            None => self.ast.add(ExprKind::Literal(Literal::Null), 0, Span::default()),
        }
    }

    fn pop_many(&mut self, count: usize) -> Vec<ExprId> {
        (0..count).map(|_| self.pop()).collect()
    }

    fn node(&mut self, choices: &mut Choices<'_>) -> ExprKind {
        match choices.below(20) {
            0 => ExprKind::Literal(Literal::Bool(choices.is_odd())),
            1 => ExprKind::Literal(Literal::Int(i64::from_le_bytes(choices.number().to_le_bytes()))),
            2 => ExprKind::Literal(Literal::Int(i64::from(choices.byte()))),
            3 => ExprKind::Literal(Literal::Uint(choices.number())),
            4 => ExprKind::Literal(Literal::Double(f64::from_bits(choices.number()))),
            5 => {
                let length = choices.below(16);
                ExprKind::Literal(Literal::String(text(choices.take(length)).into()))
            }
            6 => {
                let length = choices.below(16);
                ExprKind::Literal(Literal::Bytes(choices.take(length).into()))
            }
            7..=9 => ExprKind::Ident(name(choices)),
            10 => ExprKind::Select { operand: self.pop(), field: name(choices), test_only: choices.is_odd() },
            11..=13 => {
                let function = Name::from_static(choices.pick(FUNCTIONS));
                let target = choices.is_odd().then(|| self.pop());
                let count = choices.below(4);
                ExprKind::Call { function, target, args: self.pop_many(count) }
            }
            14 => {
                let count = choices.below(5);
                let elements = self.pop_many(count);
                ExprKind::List(
                    elements.into_iter().map(|value| ListElement { value, optional: choices.below(8) == 1 }).collect(),
                )
            }
            15 => {
                let count = choices.below(4);
                let entry = |choices: &mut Choices<'_>, stack: &mut Stack| MapEntry {
                    position: u32::from(choices.byte()),
                    key: stack.pop(),
                    value: stack.pop(),
                    optional: choices.below(8) == 1,
                };
                ExprKind::Map((0..count).map(|_| entry(choices, self)).collect())
            }
            16 => {
                let type_name = name(choices);
                let count = choices.below(3);
                let field = |choices: &mut Choices<'_>, stack: &mut Stack| StructField {
                    position: 0,
                    name: name(choices),
                    value: stack.pop(),
                    optional: choices.below(8) == 1,
                };
                ExprKind::Struct { type_name, fields: (0..count).map(|_| field(choices, self)).collect() }
            }
            17 => ExprKind::Literal(Literal::Null),
            _ => ExprKind::Comprehension(Box::new(Comprehension {
                range: self.pop(),
                variable: name(choices),
                second_variable: choices.is_odd().then(|| name(choices)),
                accumulator: name(choices),
                init: self.pop(),
                condition: self.pop(),
                step: self.pop(),
                result: self.pop(),
            })),
        }
    }
}

fn name(choices: &mut Choices<'_>) -> Name {
    Name::from_static(choices.pick(NAMES))
}
