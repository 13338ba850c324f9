//! From the tree of grammar rules to nodes, reporting what only meaning shows: reserved words, literals out of
//! range, syntax that is not enabled, arguments that a macro does not take.
//!
//! Follows the visitor in cel-go's `parser.go`, with its limit on depth.

use super::strategy::Abort;
use super::tree::{Chain, Entry, Node, NodeId, Shape, Signs, Tree};
use crate::source::{Issues, Location, Source, Span};
use crate::syntax::ast::{Ast, ExprId, ExprKind, ListElement, Literal, MapEntry, Name, StructField, operator};
use crate::syntax::builder::{Builder, Term, WrittenCall};
use crate::syntax::lexer::{Kind, Token};
use crate::syntax::literal::parse_literal;
use crate::syntax::macros::{MacroError, MacroTable};
use crate::syntax::parser::{binary_operator, unquote_field};
use crate::syntax::{Options, is_reserved};

/// The position of a node that stands for something unreadable.
const NOWHERE: u32 = u32::MAX;

/// The nodes, and the issues found on the way to them.
pub(super) fn visit(
    tree: &Tree,
    source: &Source,
    macros: &MacroTable,
    options: &Options,
    issues: &mut Issues,
) -> Result<Ast, Abort> {
    let builder = Builder::new(source, macros, options);
    let mut visitor = Visitor { tree, builder, source, options, issues, depth: 0 };
    let root = visitor.visit(tree.root())?;
    visitor.builder.ast.set_root(root);
    Ok(visitor.builder.ast)
}

struct Visitor<'a> {
    tree: &'a Tree,
    builder: Builder<'a>,
    source: &'a Source,
    options: &'a Options,
    issues: &'a mut Issues,
    depth: usize,
}

type VisitResult = Result<ExprId, Abort>;

fn span(node: &Node) -> Span {
    Span { start: node.start, end: node.end }
}

impl<'a> Visitor<'a> {
    fn text(&self, token: Token) -> &'a str {
        self.source.snippet(Span { start: token.start, end: token.end })
    }

    fn add(&mut self, kind: ExprKind, position: u32, span: Span) -> ExprId {
        self.builder.ast.add(kind, position, span)
    }

    /// A node that stands for what could not be read.
    fn unreadable(&mut self, position: u32) -> ExprId {
        self.add(ExprKind::Literal(Literal::Null), position, Span { start: position, end: position })
    }

    fn report(&mut self, position: u32, message: impl Into<String>) -> ExprId {
        if position == NOWHERE {
            // cel-go: what stands nowhere is shown before the first column.
            self.issues.report_at(Location { line: 1, column: -1 }, message);
        } else {
            self.issues.report(position, message);
        }
        self.unreadable(position)
    }

    fn or_report(&mut self, result: Result<ExprId, MacroError>) -> ExprId {
        match result {
            Ok(id) => id,
            Err(error) => self.report(error.position, error.message),
        }
    }

    fn operator(&mut self, name: Name, position: u32, node: &Node, args: Vec<ExprId>) -> ExprId {
        let call = WrittenCall { position, span: span(node), target: None, args };
        let result = self.builder.operator_or_macro(name, call);
        self.or_report(result)
    }

    fn call(&mut self, name: &str, position: u32, node: &Node, target: Option<ExprId>, args: Vec<ExprId>) -> ExprId {
        let call = WrittenCall { position, span: span(node), target, args };
        let result = self.builder.call_or_macro(name, call);
        self.or_report(result)
    }

    /// Counts a rule that adds to the depth while `visit` goes into it.
    fn deeper(&mut self, visit: impl FnOnce(&mut Self) -> VisitResult) -> VisitResult {
        self.depth = self.depth.saturating_add(1);
        if self.depth > self.options.recursion_limit() {
            self.issues.report_at(Location::NONE, "max recursion depth exceeded");
            return Err(Abort);
        }
        let result = visit(self)?;
        self.depth = self.depth.saturating_sub(1);
        Ok(result)
    }

    fn visit_all(&mut self, ids: &[NodeId]) -> Result<Vec<ExprId>, Abort> {
        ids.iter().map(|id| self.visit(Some(*id))).collect()
    }

    fn visit(&mut self, id: Option<NodeId>) -> VisitResult {
        let mut at = id;
        // Rules that only stand for another one are passed without counting.
        let node = loop {
            let Some(node) = at.and_then(|id| self.tree.get(id)) else { return Ok(self.unreadable(NOWHERE)) };
            at = match &node.shape {
                Shape::Nested(inner) => *inner,
                Shape::Conditional { condition, question: None, .. } => Some(*condition),
                Shape::Or(chain) | Shape::And(chain) if chain.rest.is_empty() => Some(chain.first),
                _ => break node,
            };
        };
        self.visit_node(node)
    }

    fn visit_node(&mut self, node: &'a Node) -> VisitResult {
        match &node.shape {
            Shape::Conditional { condition, question, then, otherwise } => {
                let position = question.unwrap_or(node.start);
                self.deeper(|it| {
                    let args = vec![it.visit(Some(*condition))?, it.visit(*then)?, it.visit(*otherwise)?];
                    Ok(it.operator(operator::CONDITIONAL, position, node, args))
                })
            }
            Shape::Or(chain) => self.chain(&operator::LOGICAL_OR, chain),
            Shape::And(chain) => self.chain(&operator::LOGICAL_AND, chain),
            Shape::Binary(binary) => {
                let Some((token, (_, name))) =
                    binary.operator.and_then(|token| Some((token, binary_operator(token.kind)?)))
                else {
                    return self.visit(Some(binary.left));
                };
                self.deeper(|it| {
                    let args = vec![it.visit(Some(binary.left))?, it.visit(binary.right)?];
                    Ok(it.operator(name, token.start, node, args))
                })
            }
            Shape::Not(signs) => self.signs(operator::LOGICAL_NOT, signs, node),
            Shape::Negate(signs) => self.signs(operator::NEGATE, signs, node),
            Shape::Select { operand, dot, optional, field } => {
                self.deeper(|it| it.select(node, *operand, dot.unwrap_or(node.start), *optional, *field))
            }
            Shape::MemberCall { operand, name, open, args } => self.deeper(|it| {
                let target = it.visit(Some(*operand))?;
                let args = it.visit_all(args)?;
                Ok(it.call(it.text(*name), *open, node, Some(target), args))
            }),
            Shape::Index { operand, open, optional, index } => self.deeper(|it| {
                let args = vec![it.visit(Some(*operand))?, it.visit(*index)?];
                if *optional && !it.options.optional_syntax {
                    return Ok(it.report(*open, "unsupported syntax '[?'"));
                }
                let name = if *optional { operator::OPTIONAL_INDEX } else { operator::INDEX };
                Ok(it.operator(name, *open, node, args))
            }),
            Shape::Ident { leading_dot, name } => {
                let text = self.text(*name);
                if is_reserved(text) {
                    return Ok(self.report(node.start, format!("reserved identifier: {text}")));
                }
                Ok(self.add(ExprKind::Ident(dotted(*leading_dot, text).into()), name.start, span(node)))
            }
            Shape::GlobalCall { leading_dot, name, open, args } => {
                let text = self.text(*name);
                if is_reserved(text) {
                    return Ok(self.report(node.start, format!("reserved identifier: {text}")));
                }
                let args = self.visit_all(args)?;
                Ok(self.call(&dotted(*leading_dot, text), *open, node, None, args))
            }
            Shape::List { open, elements } => {
                let elements = elements.iter().map(|id| self.list_element(*id)).collect::<Result<_, _>>()?;
                Ok(self.add(ExprKind::List(elements), *open, span(node)))
            }
            Shape::Map { open, entries } => {
                let entries = self.map_entries(entries)?;
                Ok(self.add(ExprKind::Map(entries), *open, span(node)))
            }
            Shape::Message { leading_dot, names, open, fields } => {
                let names: Vec<&str> = names.iter().map(|name| self.text(*name)).collect();
                let type_name = dotted(*leading_dot, &names.join(".")).into();
                let fields = self.fields(*fields)?;
                Ok(self.add(ExprKind::Struct { type_name, fields }, *open, span(node)))
            }
            Shape::Literal { negative, token } => match parse_literal(token.kind, self.text(*token), *negative) {
                Ok(literal) => Ok(self.add(ExprKind::Literal(literal), node.start, span(node))),
                Err(message) => Ok(self.report(node.start, message)),
            },
            Shape::UnknownUnary => Ok(self.unreadable(node.start)),
            Shape::Unknown
            | Shape::Nested(_)
            | Shape::Fields(_)
            | Shape::FieldName(_)
            | Shape::OptionalField { .. }
            | Shape::OptionalExpr { .. } => Ok(self.unreadable(NOWHERE)),
        }
    }

    fn chain(&mut self, function: &Name, chain: &Chain) -> VisitResult {
        let mut terms = Vec::with_capacity(chain.rest.len().saturating_add(1));
        for (operator, id) in std::iter::once(&(0, chain.first)).chain(&chain.rest) {
            let value = self.visit(Some(*id))?;
            let span = self.tree.get(*id).map_or(Span::default(), span);
            terms.push(Term { value, operator: *operator, span });
        }
        Ok(self.builder.balance(function, &terms))
    }

    fn signs(&mut self, name: Name, signs: &Signs, node: &Node) -> VisitResult {
        let operand = self.visit(signs.operand)?;
        if signs.count.is_multiple_of(2) {
            return Ok(operand);
        }
        Ok(self.operator(name, signs.position, node, vec![operand]))
    }

    /// A field's name, or what is wrong with it.
    fn field_name(&self, id: Option<NodeId>) -> Result<&'a str, &'static str> {
        match id.and_then(|id| self.tree.get(id)).map(|node| &node.shape) {
            Some(Shape::FieldName(token)) if token.kind == Kind::Identifier => Ok(self.text(*token)),
            Some(Shape::FieldName(_)) if !self.options.quoted_fields => Err("unsupported syntax: '`'"),
            Some(Shape::FieldName(token)) => Ok(unquote_field(self.text(*token))),
            _ => Err("unsupported ident kind"),
        }
    }

    fn select(&mut self, node: &Node, operand: NodeId, dot: u32, optional: bool, field: Option<NodeId>) -> VisitResult {
        let operand = self.visit(Some(operand))?;
        let Some(field_node) = field.and_then(|id| self.tree.get(id)) else {
            return Ok(self.unreadable(node.start));
        };
        let name = match self.field_name(field) {
            Ok(name) => name,
            Err(message) => {
                self.report(field_node.start, message);
                ""
            }
        };
        if !optional {
            return Ok(self.add(ExprKind::Select { operand, field: name.into(), test_only: false }, dot, span(node)));
        }
        if !self.options.optional_syntax {
            return Ok(self.report(dot, "unsupported syntax '.?'"));
        }
        let literal = ExprKind::Literal(Literal::String(name.into()));
        let name = self.add(literal, field_node.start, span(field_node));
        let kind = ExprKind::Call { function: operator::OPTIONAL_SELECT, target: None, args: vec![operand, name] };
        Ok(self.add(kind, dot, span(node)))
    }

    fn list_element(&mut self, id: NodeId) -> Result<ListElement, Abort> {
        let Some(Node { shape: Shape::OptionalExpr { question, value }, .. }) = self.tree.get(id) else {
            return Ok(ListElement { value: self.unreadable(NOWHERE), optional: false });
        };
        let value = self.visit(*value)?;
        if let Some(position) = question.filter(|_| !self.options.optional_syntax) {
            self.report(position, "unsupported syntax '?'");
        }
        Ok(ListElement { value, optional: question.is_some() })
    }

    fn map_entries(&mut self, entries: &[Entry]) -> Result<Vec<MapEntry>, Abort> {
        let mut result = Vec::with_capacity(entries.len());
        for entry in entries {
            // An entry without its colon or value is the trace of a syntax error.
            let (Some(position), Some(value)) = (entry.colon, entry.value) else { break };
            let Some(Node { start, shape: Shape::OptionalExpr { question, value: key }, .. }) =
                self.tree.get(entry.key)
            else {
                break;
            };
            let optional = question.is_some();
            if optional && !self.options.optional_syntax {
                self.report(*start, "unsupported syntax '?'");
                continue;
            }
            let (key, value) = (self.visit(*key)?, self.visit(Some(value))?);
            result.push(MapEntry { position, key, value, optional });
        }
        Ok(result)
    }

    fn fields(&mut self, id: Option<NodeId>) -> Result<Vec<StructField>, Abort> {
        let Some(Node { start, shape: Shape::Fields(entries), .. }) = id.and_then(|id| self.tree.get(id)) else {
            return Ok(Vec::new());
        };
        let mut result = Vec::with_capacity(entries.len());
        for entry in entries {
            let (Some(position), Some(value)) = (entry.colon, entry.value) else { break };
            let Some(Node { start: field_start, shape: Shape::OptionalField { optional, name }, .. }) =
                self.tree.get(entry.key)
            else {
                break;
            };
            if *optional && !self.options.optional_syntax {
                self.report(*field_start, "unsupported syntax '?'");
                continue;
            }
            let name = match self.field_name(*name) {
                Ok(name) => name.into(),
                Err(message) => {
                    self.report(*start, message);
                    continue;
                }
            };
            let value = self.visit(Some(value))?;
            result.push(StructField { position, name, value, optional: *optional });
        }
        Ok(result)
    }
}

fn dotted(leading_dot: bool, name: &str) -> String {
    if leading_dot { format!(".{name}") } else { name.to_owned() }
}
