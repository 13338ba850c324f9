//! Trees made by hand, as deep as the checker takes them and deeper: none exhausts the stack.

use cel::checker;
use cel::cost;
use cel::env::Env;
use cel::library;
use cel::program::{EmptyActivation, Limits, Program};
use cel::source::{Source, Span};
use cel::syntax::ast::{Ast, ExprId, ExprKind, ListElement, Literal, Name, operator};
use cel::syntax::unparse;

fn env() -> Env {
    Env::builder().library(&library::standard()).build().unwrap()
}

fn call(function: Name, args: Vec<ExprId>) -> ExprKind {
    ExprKind::Call { function, target: None, args }
}

/// Stack size of threads; unoptimized code needs more.
const STACK_BYTES: usize = if cfg!(debug_assertions) { 16 << 20 } else { 2 << 20 };

/// Puts the tree through all phases.
fn survives(ast: Ast) {
    let run = move || {
        let _ = unparse(&ast);
        if let Ok(typed) = checker::check(&env(), ast) {
            let _ = cost::estimate(&typed, &cost::NoHints);
            if let Ok(program) = Program::new(&typed) {
                let _ = program
                    .eval_within(&EmptyActivation, Limits::cost(1_000_000))
                    .result
                    .map(|value| value.to_string());
            }
        }
    };
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run).unwrap().join().unwrap();
}

#[test]
fn deep_trees_end() {
    let steps: [fn(ExprId) -> ExprKind; 5] = [
        |below| call(operator::LOGICAL_NOT, vec![below]),
        |below| ExprKind::List(vec![ListElement { value: below, optional: false }]),
        |below| call(operator::EQUALS, vec![below, below]),
        |below| ExprKind::Select { operand: below, field: Name::from_static("f"), test_only: false },
        |below| call(operator::CONDITIONAL, vec![below, below, below]),
    ];
    for step in steps {
        for height in [200, 990, 100_000] {
            let mut ast = Ast::new(Source::new(""));
            let mut root = ast.add(ExprKind::Literal(Literal::Bool(true)), 0, Span::default());
            for _ in 0..height {
                let mut kind = step(root);
                // A tree, not a graph: only one of the operands is deep.
                if let ExprKind::Call { args, .. } = &mut kind {
                    for arg in args.iter_mut().skip(1) {
                        *arg = ast.add(ExprKind::Literal(Literal::Bool(true)), 0, Span::default());
                    }
                }
                root = ast.add(kind, 0, Span::default());
            }
            ast.set_root(root);
            survives(ast);
        }
    }
}
