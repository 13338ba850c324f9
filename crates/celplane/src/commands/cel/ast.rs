//! `celplane cel ast`: the tree that an expression becomes, macros expanded.

use std::fmt::Write;
use std::process::ExitCode;

use api::json;
use cel::checker::TypedAst;
use cel::syntax::ast::{Ast, ExprId, ExprKind, Literal};
use cel::value::Value;

use super::expression::Expression;
use crate::output::Output;

/// Print the syntax tree of an expression after macro expansion, one node per line.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    expression: Expression,

    #[command(flatten)]
    output: Output,

    /// Also type-check the expression and print the type of each node.
    #[arg(long)]
    types: bool,
}

impl Arguments {
    /// Fails, in the sense of the exit code, when the expression does not parse, or with `--types` does not check.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let env = self.expression.scene()?.environment.env;
        let source = self.expression.source();
        let outcome = if self.types {
            env.compile_source(&source).map(|typed| self.print(&Tree { ast: typed.ast(), typed: Some(&typed) }))
        } else {
            env.parse(&source).map(|ast| self.print(&Tree { ast: &ast, typed: None }))
        };
        match outcome {
            Ok(printed) => printed?,
            Err(issues) => return Ok(self.output.fail(&issues.to_string())?),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn print(&self, tree: &Tree<'_>) -> std::io::Result<()> {
        self.output.print(tree.text().trim_end_matches('\n'), || tree.document("", "", tree.ast.root()))
    }
}

/// A tree to print.
struct Tree<'t> {
    ast: &'t Ast,
    typed: Option<&'t TypedAst>,
}

/// A node that is still to be printed, with its role in its parent and its depth.
struct PendingNode<'t> {
    role: &'t str,
    name: &'t str,
    id: ExprId,
    depth: usize,
}

impl<'t> Tree<'t> {
    fn text(&self) -> String {
        let mut out = String::new();
        let mut pending = vec![PendingNode { role: "", name: "", id: self.ast.root(), depth: 0 }];
        while let Some(node) = pending.pop() {
            let _ = write!(out, "{:indent$}{}{}", "", node.role, node.name, indent = node.depth.saturating_mul(2));
            if !node.role.is_empty() || !node.name.is_empty() {
                out.push_str(": ");
            }
            out.push_str(&self.label(node.id));
            if let Some(typed) = self.typed {
                let _ = write!(out, "  ({})", typed.type_of(node.id));
            }
            out.push('\n');
            let first = pending.len();
            let depth = node.depth.saturating_add(1);
            self.children(node.id, |role, name, id| pending.push(PendingNode { role, name, id, depth }));
            // The last one pushed is printed first.
            if let Some(children) = pending.get_mut(first..) {
                children.reverse();
            }
        }
        out
    }

    /// A node of the tree and its descendants, as JSON. Recursion is safe: the checker limits the depth.
    fn document(&self, role: &str, name: &str, id: ExprId) -> json::Value {
        let mut node = json::Object::new();
        if !role.is_empty() || !name.is_empty() {
            node.insert("role", format!("{role}{name}"));
        }
        let label = self.label(id);
        let (kind, name) = label.split_once(' ').unwrap_or((&label, ""));
        node.insert("kind", kind);
        if !name.is_empty() {
            node.insert("name", name);
        }
        if let Some(typed) = self.typed {
            node.insert("type", typed.type_of(id).to_string());
        }
        let mut children = Vec::new();
        self.children(id, |role, name, child| children.push(self.document(role, name, child)));
        if !children.is_empty() {
            node.insert("children", children);
        }
        json::Value::Object(node)
    }

    /// The node itself, without what is below it.
    fn label(&self, id: ExprId) -> String {
        match &self.ast[id].kind {
            ExprKind::Literal(literal) => format!("literal {}", literal_text(literal)),
            ExprKind::Ident(name) => format!("ident {name}"),
            ExprKind::Select { field, test_only: false, .. } => format!("select {field}"),
            ExprKind::Select { field, test_only: true, .. } => format!("has {field}"),
            ExprKind::Call { function, .. } => format!("call {function}"),
            ExprKind::List(_) => "list".to_owned(),
            ExprKind::Map(_) => "map".to_owned(),
            ExprKind::Struct { type_name, .. } => format!("struct {type_name}"),
            ExprKind::Comprehension(fold) => match &fold.second_variable {
                Some(second) => format!("comprehension {}, {second} into {}", fold.variable, fold.accumulator),
                None => format!("comprehension {} into {}", fold.variable, fold.accumulator),
            },
        }
    }

    fn children(&self, id: ExprId, mut show: impl FnMut(&'t str, &'t str, ExprId)) {
        let optional = |optional: bool| if optional { "?" } else { "" };
        match &self.ast[id].kind {
            ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select { operand, .. } => show("", "", *operand),
            ExprKind::Call { target, args, .. } => {
                target.iter().for_each(|target| show("target", "", *target));
                args.iter().for_each(|arg| show("", "", *arg));
            }
            ExprKind::List(elements) => {
                elements.iter().for_each(|element| show(optional(element.optional), "", element.value));
            }
            ExprKind::Map(entries) => {
                for entry in entries {
                    show(optional(entry.optional), "key", entry.key);
                    show("", "value", entry.value);
                }
            }
            ExprKind::Struct { fields, .. } => {
                fields.iter().for_each(|field| show(optional(field.optional), &field.name, field.value));
            }
            ExprKind::Comprehension(fold) => {
                show("range", "", fold.range);
                show("init", "", fold.init);
                show("condition", "", fold.condition);
                show("step", "", fold.step);
                show("result", "", fold.result);
            }
        }
    }
}

fn literal_text(literal: &Literal) -> String {
    let value = match literal {
        Literal::Null => Value::Null,
        Literal::Bool(truth) => Value::Bool(*truth),
        Literal::Int(number) => Value::Int(*number),
        Literal::Uint(number) => Value::Uint(*number),
        Literal::Double(number) => Value::Double(*number),
        Literal::String(text) => Value::str(text),
        Literal::Bytes(bytes) => Value::Bytes(cel::value::Bytes::Borrowed(bytes)),
    };
    crate::literal::text(&value)
}
