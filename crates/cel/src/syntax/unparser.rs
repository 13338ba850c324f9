//! Tree → text.
//!
//! Follows cel-go's `unparser.go`: parentheses only where they matter, double quotes, octal bytes, macros as they
//! were written if the tree remembers them. Where cel-go's text would not parse into the same tree (`-(-x)`,
//! `(-x).f()`, a field named `true`, an unbalanced chain of `&&`), parentheses or backticks are added.
//! Does not recurse, so that no tree is too deep for the stack.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::ast::{Ast, Comprehension, ExprId, ExprKind, Literal, Name, operator};

/// The text of a tree on one line.
///
/// A comprehension whose macro call the tree does not remember is shown as a call of `@comprehension`, which does
/// not parse.
pub fn unparse(ast: &Ast) -> String {
    unparse_node(ast, ast.root())
}

/// The text of the tree below a node on one line, see [`unparse`].
pub fn unparse_node(ast: &Ast, id: ExprId) -> String {
    Unparser::new(ast, usize::MAX).run(id)
}

/// The text of a tree with line breaks behind `&&` and `||` where a line reaches the column; cel-go's default is 80.
pub fn unparse_wrapped(ast: &Ast, column: usize) -> String {
    Unparser::new(ast, column).run(ast.root())
}

/// Pending output, the next piece last.
enum Piece {
    Text(&'static str),
    Name(Name),
    Field(Name),
    Operator(Operator),
    Node(ExprId),
}

struct Unparser<'a> {
    ast: &'a Ast,
    out: String,
    pending: Vec<Piece>,
    wrap_column: usize,
    line_start: usize,
    /// For each logical operator seen: whether its operands can stand in one chain without parentheses.
    chains: HashMap<ExprId, ChainShape>,
}

#[derive(Clone, Copy)]
struct ChainShape {
    terms: usize,
    balanced: bool,
}

/// An operator that stands between its operands.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Operator {
    text: &'static str,
    /// The smaller, the more strongly it binds.
    precedence: u8,
}

impl Operator {
    fn is_logical(self) -> bool {
        matches!(self.text, "&&" | "||")
    }
}

const CONDITIONAL: Operator = Operator { text: "?", precedence: 8 };

fn binary_operator(function: &str) -> Option<Operator> {
    let (text, precedence) = match function {
        "_||_" => ("||", 7),
        "_&&_" => ("&&", 6),
        "_==_" => ("==", 5),
        "_!=_" => ("!=", 5),
        "_<_" => ("<", 5),
        "_<=_" => ("<=", 5),
        "_>_" => (">", 5),
        "_>=_" => (">=", 5),
        "@in" => ("in", 5),
        "_+_" => ("+", 4),
        "_-_" => ("-", 4),
        "_*_" => ("*", 3),
        "_/_" => ("/", 3),
        "_%_" => ("%", 3),
        _ => return None,
    };
    Some(Operator { text, precedence })
}

/// Syntactic form of a node.
enum Form<'a> {
    Conditional([ExprId; 3]),
    Binary(Operator, ExprId, ExprId),
    Unary(&'static str, ExprId),
    /// Anything else that is a call in cel-go's eyes, with that many arguments.
    Call(&'a Name, Option<ExprId>, &'a [ExprId]),
    Other,
}

impl<'a> Unparser<'a> {
    fn new(ast: &'a Ast, wrap_column: usize) -> Self {
        let chains = HashMap::new();
        Unparser { ast, out: String::new(), pending: Vec::new(), wrap_column, line_start: 0, chains }
    }

    fn run(mut self, id: ExprId) -> String {
        self.pending.push(Piece::Node(id));
        while let Some(piece) = self.pending.pop() {
            match piece {
                Piece::Text(text) => self.out.push_str(text),
                Piece::Name(name) => self.out.push_str(&name),
                Piece::Field(name) => self.write_field(&name),
                Piece::Operator(operator) => self.write_operator(operator),
                Piece::Node(id) => self.node(id),
            }
        }
        self.out
    }

    /// Puts pieces in front of all that is pending.
    fn push(&mut self, pieces: impl IntoIterator<Item = Piece>) {
        let base = self.pending.len();
        self.pending.extend(pieces);
        if let Some(added) = self.pending.get_mut(base..) {
            added.reverse();
        }
    }

    fn form(&self, id: ExprId) -> Form<'a> {
        // What a macro call replaced is written as that call, whatever it became.
        let id = self.ast.macro_call(id).unwrap_or(id);
        let ExprKind::Call { function, target, args } = &self.ast[id].kind else { return Form::Other };
        match (function.as_str(), target, args.as_slice()) {
            ("_?_:_", None, [a, b, c]) => Form::Conditional([*a, *b, *c]),
            ("!_", None, [operand]) => Form::Unary("!", *operand),
            ("-_", None, [operand]) => Form::Unary("-", *operand),
            (name, None, [left, right]) => match binary_operator(name) {
                Some(operator) => Form::Binary(operator, *left, *right),
                None => Form::Call(function, *target, args),
            },
            _ => Form::Call(function, *target, args),
        }
    }

    fn node(&mut self, id: ExprId) {
        match self.form(id) {
            Form::Conditional([condition, then, otherwise]) => {
                let mut pieces = self.nested(condition, self.is_complex(condition));
                pieces.push(Piece::Operator(CONDITIONAL));
                pieces.extend(self.nested(then, self.is_complex(then)));
                pieces.push(Piece::Text(" : "));
                pieces.extend(self.nested(otherwise, self.is_complex(otherwise)));
                self.push(pieces);
            }
            Form::Binary(operator, left, right) => {
                let flat = operator.is_logical() && self.chain_shape(id, operator).balanced;
                let same = |side| matches!(self.form(side), Form::Binary(other, ..) if other.precedence == operator.precedence);
                let left_parens = self.binds_less(left, operator) || (operator.is_logical() && !flat && same(left));
                let right_parens = self.binds_less(right, operator) || (!flat && same(right));
                let mut pieces = self.nested(left, left_parens);
                pieces.push(Piece::Operator(operator));
                pieces.extend(self.nested(right, right_parens));
                self.push(pieces);
            }
            Form::Unary(sign, operand) => {
                let parens = self.is_complex(operand)
                    || matches!(self.form(operand), Form::Unary(..))
                    || (sign == "-" && self.begins_with_number(operand));
                let mut pieces = vec![Piece::Text(sign)];
                pieces.extend(self.nested(operand, parens));
                self.push(pieces);
            }
            Form::Call(function, target, args) => self.call(function, target, args),
            Form::Other => self.other(id),
        }
    }

    fn nested(&self, id: ExprId, parens: bool) -> Vec<Piece> {
        if parens { vec![Piece::Text("("), Piece::Node(id), Piece::Text(")")] } else { vec![Piece::Node(id)] }
    }

    /// Whether cel-go puts such an operand of `!`, `-` and `?:` into parentheses: operators and calls with
    /// several arguments.
    fn is_complex(&self, id: ExprId) -> bool {
        match self.form(id) {
            Form::Conditional(_) | Form::Binary(..) => true,
            Form::Call(_, _, args) => self.ast.macro_call(id).is_none() && args.len() >= 2,
            Form::Unary(..) | Form::Other => false,
        }
    }

    fn binds_less(&self, id: ExprId, than: Operator) -> bool {
        match self.form(id) {
            Form::Conditional(_) => true,
            Form::Binary(operator, ..) => operator.precedence > than.precedence,
            _ => false,
        }
    }

    /// Whether a node must be in parentheses where something is selected from it.
    fn is_operator(&self, id: ExprId) -> bool {
        matches!(self.form(id), Form::Conditional(_) | Form::Binary(..) | Form::Unary(..))
    }

    /// Whether the text begins with a number, to which a minus sign in front would belong.
    fn begins_with_number(&self, id: ExprId) -> bool {
        let mut at = id;
        loop {
            at = match (self.form(at), &self.ast[at].kind) {
                (Form::Call(_, Some(target), _), _) => target,
                (Form::Call(function, None, [first, ..]), _) if is_suffix(function) => *first,
                (Form::Other, ExprKind::Select { operand, test_only: false, .. }) => *operand,
                (Form::Other, ExprKind::Literal(Literal::Int(_) | Literal::Double(_))) => return true,
                _ => return false,
            };
        }
    }

    /// Number of terms in the chain below a logical operator, and whether the parser would build the same tree.
    fn chain_shape(&mut self, id: ExprId, operator: Operator) -> ChainShape {
        let mut path = vec![id];
        while let Some(at) = path.last().copied() {
            let Form::Binary(_, left, right) = self.form(at) else { break };
            let is_chain = |side| matches!(self.form(side), Form::Binary(other, ..) if other == operator);
            let known: [Option<ChainShape>; 2] = [left, right].map(|side| {
                if is_chain(side) {
                    self.chains.get(&side).copied()
                } else {
                    Some(ChainShape { terms: 1, balanced: true })
                }
            });
            match known {
                [Some(a), Some(b)] => {
                    let terms = a.terms.saturating_add(b.terms);
                    let balanced = a.balanced && b.balanced && a.terms == terms.div_ceil(2);
                    self.chains.insert(at, ChainShape { terms, balanced });
                    path.pop();
                }
                [None, _] => path.push(left),
                [_, None] => path.push(right),
            }
        }
        self.chains.get(&id).copied().unwrap_or(ChainShape { terms: 1, balanced: false })
    }

    fn call(&mut self, function: &Name, target: Option<ExprId>, args: &[ExprId]) {
        let index = |open| (open, "]");
        let (open, close) = match (function.as_str(), target, args) {
            ("_[_]", None, [_, _]) => index("["),
            ("_[?_]", None, [_, _]) => index("[?"),
            ("_?._", None, [operand, field]) => {
                if let ExprKind::Literal(Literal::String(name)) = &self.ast[*field].kind {
                    let mut pieces = self.nested(*operand, self.is_operator(*operand));
                    pieces.extend([Piece::Text(".?"), Piece::Field(Name::from(&**name))]);
                    return self.push(pieces);
                }
                ("(", ")")
            }
            _ => ("(", ")"),
        };
        if let (true, [operand, index]) = (close == "]", args) {
            let mut pieces = self.nested(*operand, self.is_operator(*operand));
            pieces.extend([Piece::Text(open), Piece::Node(*index), Piece::Text(close)]);
            return self.push(pieces);
        }
        let mut pieces = Vec::with_capacity(args.len().saturating_mul(2).saturating_add(8));
        if let Some(target) = target {
            pieces.extend(self.nested(target, self.is_operator(target)));
            pieces.push(Piece::Text("."));
        }
        pieces.extend([Piece::Name(function.clone()), Piece::Text(open)]);
        for (number, arg) in args.iter().enumerate() {
            pieces.extend([separator(number), Piece::Node(*arg)]);
        }
        pieces.push(Piece::Text(close));
        self.push(pieces);
    }

    fn other(&mut self, id: ExprId) {
        let ast = self.ast;
        match &ast[id].kind {
            ExprKind::Literal(literal) => self.write_literal(literal),
            ExprKind::Ident(name) => self.out.push_str(name),
            ExprKind::Select { operand, field, test_only } => {
                let mut pieces = vec![Piece::Text(if *test_only { "has(" } else { "" })];
                pieces.extend(self.nested(*operand, self.is_operator(*operand)));
                pieces.extend([Piece::Text("."), Piece::Field(field.clone())]);
                pieces.push(Piece::Text(if *test_only { ")" } else { "" }));
                self.push(pieces);
            }
            ExprKind::List(elements) => {
                let mut pieces = vec![Piece::Text("[")];
                for (number, element) in elements.iter().enumerate() {
                    pieces.extend([separator(number), optional_mark(element.optional), Piece::Node(element.value)]);
                }
                pieces.push(Piece::Text("]"));
                self.push(pieces);
            }
            ExprKind::Map(entries) => {
                let mut pieces = vec![Piece::Text("{")];
                for (number, entry) in entries.iter().enumerate() {
                    pieces.extend([separator(number), optional_mark(entry.optional)]);
                    pieces.extend([Piece::Node(entry.key), Piece::Text(": "), Piece::Node(entry.value)]);
                }
                pieces.push(Piece::Text("}"));
                self.push(pieces);
            }
            ExprKind::Struct { type_name, fields } => {
                let mut pieces = vec![Piece::Name(type_name.clone()), Piece::Text("{")];
                for (number, field) in fields.iter().enumerate() {
                    pieces.extend([separator(number), optional_mark(field.optional)]);
                    pieces.extend([Piece::Field(field.name.clone()), Piece::Text(": "), Piece::Node(field.value)]);
                }
                pieces.push(Piece::Text("}"));
                self.push(pieces);
            }
            ExprKind::Comprehension(comprehension) => self.comprehension(comprehension),
            ExprKind::Call { .. } => {}
        }
    }

    fn comprehension(&mut self, comprehension: &Comprehension) {
        let mut pieces = vec![Piece::Text("@comprehension("), Piece::Node(comprehension.range)];
        pieces.extend([Piece::Text(", "), Piece::Name(comprehension.variable.clone())]);
        if let Some(second) = &comprehension.second_variable {
            pieces.extend([Piece::Text(", "), Piece::Name(second.clone())]);
        }
        pieces.extend([Piece::Text(", "), Piece::Name(comprehension.accumulator.clone())]);
        for id in [comprehension.init, comprehension.condition, comprehension.step, comprehension.result] {
            pieces.extend([Piece::Text(", "), Piece::Node(id)]);
        }
        pieces.push(Piece::Text(")"));
        self.push(pieces);
    }

    fn write_operator(&mut self, operator: Operator) {
        self.out.push(' ');
        self.out.push_str(operator.text);
        // cel-go counts the length of the operator's mangled name.
        let line = self.out.len().saturating_sub(1).saturating_sub(self.line_start).saturating_add(2);
        if operator.is_logical() && line >= self.wrap_column {
            self.line_start = self.out.len().saturating_sub(operator.text.len().saturating_add(1));
            self.out.push('\n');
        } else {
            self.out.push(' ');
        }
    }

    fn write_field(&mut self, name: &str) {
        let mut letters = name.bytes();
        let is_name = letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
            && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_');
        if is_name && !matches!(name, "in" | "true" | "false" | "null") {
            self.out.push_str(name);
        } else {
            self.out.push('`');
            self.out.push_str(name);
            self.out.push('`');
        }
    }

    fn write_literal(&mut self, literal: &Literal) {
        // Writing to a string does not fail.
        let _ = match literal {
            Literal::Null => write!(self.out, "null"),
            Literal::Bool(value) => write!(self.out, "{value}"),
            Literal::Int(value) => write!(self.out, "{value}"),
            Literal::Uint(value) => write!(self.out, "{value}u"),
            Literal::Double(value) => write!(self.out, "{}", format_double(*value)),
            Literal::String(value) => {
                write_quoted(&mut self.out, value);
                Ok(())
            }
            Literal::Bytes(value) => {
                self.out.push_str("b\"");
                let written = value.iter().try_for_each(|byte| write!(self.out, "\\{byte:03o}"));
                self.out.push('"');
                written
            }
        };
    }
}

/// Whether a call is written behind its first argument, as `a[b]`.
fn is_suffix(function: &Name) -> bool {
    [operator::INDEX, operator::OPTIONAL_INDEX, operator::OPTIONAL_SELECT].contains(function)
}

fn separator(number: usize) -> Piece {
    Piece::Text(if number == 0 { "" } else { ", " })
}

fn optional_mark(optional: bool) -> Piece {
    Piece::Text(if optional { "?" } else { "" })
}

/// A double with as few digits as it takes, as Go's `%g` has it, and always recognizable as one.
fn format_double(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() { "NaN".into() } else { format!("{}Inf", if value < 0.0 { '-' } else { '+' }) };
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent @ ..-4) => format!("{mantissa}e-{:02}", exponent.unsigned_abs()),
        Ok(exponent @ 6..) => format!("{mantissa}e+{exponent:02}"),
        // Rust's `{:?}` adds the `.0`.
        _ => format!("{value:?}"),
    }
}

/// Text in double quotes, what cannot be printed escaped.
fn write_quoted(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        let escape = match character {
            '\u{7}' => "\\a",
            '\u{8}' => "\\b",
            '\u{c}' => "\\f",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\u{b}' => "\\v",
            '\\' => "\\\\",
            '"' => "\\\"",
            '\'' => "'",
            _ => "",
        };
        if !escape.is_empty() {
            out.push_str(escape);
        } else if character.escape_debug().len() == 1 {
            out.push(character);
        } else {
            let code = u32::from(character);
            // Writing to a string does not fail.
            let _ = match code {
                ..0x80 => write!(out, "\\x{code:02x}"),
                0x80..0x10000 => write!(out, "\\u{code:04x}"),
                _ => write!(out, "\\U{code:08x}"),
            };
        }
    }
    out.push('"');
}
