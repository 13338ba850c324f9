//! The direct parser: one pass from tokens to the tree, for text in which nothing is wrong.
//!
//! It gives up at the first thing that is not plainly right (a syntax error, a reserved word, a bad literal or
//! macro argument, nesting close to the limits) and says nothing about it: `recovery` reads the text again.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "counters of nested rules and of nodes; both are bounded by the number of tokens in the text"
)]

use super::ast::{Ast, ExprId, ExprKind, ListElement, Literal, MapEntry, Name, StructField, operator};
use super::builder::{Builder, Term, WrittenCall};
use super::lexer::{Kind, Lexer, Token};
use super::literal::parse_literal;
use super::macros::{MacroError, MacroTable};
use super::{Options, is_reserved};
use crate::source::{Source, Span};

/// The direct parser does not read this text.
#[derive(Debug)]
pub(crate) struct DirectParseFailure;

impl From<MacroError> for DirectParseFailure {
    fn from(_: MacroError) -> Self {
        DirectParseFailure
    }
}

type ParseResult<T> = Result<T, DirectParseFailure>;

/// Returns the tree of a text without errors.
pub(crate) fn parse(source: &Source, macros: &MacroTable, options: &Options) -> ParseResult<Ast> {
    let mut lexer = Lexer::new(source.text());
    let token = lexer.next_token();
    let mut parser = Parser {
        builder: Builder::new(source, macros, options),
        lexer,
        token,
        previous_end: 0,
        nesting: 0,
        nesting_max: options.recursion_limit(),
        height: 0,
        terms: Vec::new(),
        names: [const { None }; NAMES_KEPT],
        names_next: 0,
    };
    let root = parser.expr()?;
    if parser.token.kind != Kind::Eof || parser.height > options.recursion_limit() {
        return Err(DirectParseFailure);
    }
    parser.builder.ast.set_root(root);
    Ok(parser.builder.ast)
}

struct Parser<'a> {
    builder: Builder<'a>,
    lexer: Lexer<'a>,
    /// Current token.
    token: Token,
    /// End of the previous token.
    previous_end: u32,
    /// Number of open rules that can contain themselves; never less than cel-go counts for any one of them.
    nesting: usize,
    nesting_max: usize,
    /// Depth that cel-go's visitor reaches in the expression that was parsed last.
    height: usize,
    /// The terms of the logical chains that are open.
    terms: Vec<Term>,
    /// Names seen lately, because most occur again.
    names: [Option<(&'a str, Name)>; NAMES_KEPT],
    names_next: usize,
}

const NAMES_KEPT: usize = 8;

/// Precedence of a binary operator below `&&`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Binding {
    Relation,
    Sum,
    Product,
}

/// Precedence of a token as a binary operator, and the function that it denotes.
pub(crate) fn binary_operator(kind: Kind) -> Option<(Binding, Name)> {
    Some(match kind {
        Kind::Less => (Binding::Relation, operator::LESS),
        Kind::LessEquals => (Binding::Relation, operator::LESS_EQUALS),
        Kind::GreaterEquals => (Binding::Relation, operator::GREATER_EQUALS),
        Kind::Greater => (Binding::Relation, operator::GREATER),
        Kind::Equals => (Binding::Relation, operator::EQUALS),
        Kind::NotEquals => (Binding::Relation, operator::NOT_EQUALS),
        Kind::In => (Binding::Relation, operator::IN),
        Kind::Plus => (Binding::Sum, operator::ADD),
        Kind::Minus => (Binding::Sum, operator::SUBTRACT),
        Kind::Star => (Binding::Product, operator::MULTIPLY),
        Kind::Slash => (Binding::Product, operator::DIVIDE),
        Kind::Percent => (Binding::Product, operator::MODULO),
        _ => return None,
    })
}

impl<'a> Parser<'a> {
    fn advance(&mut self) -> Token {
        let token = self.token;
        self.previous_end = token.end;
        self.token = self.lexer.next_token();
        token
    }

    fn accept(&mut self, kind: Kind) -> Option<Token> {
        (self.token.kind == kind).then(|| self.advance())
    }

    fn expect(&mut self, kind: Kind) -> ParseResult<Token> {
        self.accept(kind).ok_or(DirectParseFailure)
    }

    fn name(&mut self, text: &'a str) -> Name {
        for (known, name) in self.names.iter().flatten() {
            if *known == text {
                return name.clone();
            }
        }
        let name = Name::from(text);
        if let Some(slot) = self.names.get_mut(self.names_next % NAMES_KEPT) {
            *slot = Some((text, name.clone()));
            self.names_next += 1;
        }
        name
    }

    /// `?` in front of an element, where the options allow it.
    fn optional_mark(&mut self) -> ParseResult<bool> {
        let found = self.accept(Kind::Question).is_some();
        if found && !self.builder.options.optional_syntax { Err(DirectParseFailure) } else { Ok(found) }
    }

    fn span_from(&self, start: u32) -> Span {
        Span { start, end: self.previous_end }
    }

    fn add(&mut self, kind: ExprKind, position: u32, start: u32) -> ExprId {
        let span = self.span_from(start);
        self.builder.ast.add(kind, position, span)
    }

    fn enter(&mut self) -> ParseResult<()> {
        self.nesting += 1;
        if self.nesting > self.nesting_max { Err(DirectParseFailure) } else { Ok(()) }
    }

    fn operator(&mut self, name: Name, position: u32, start: u32, args: Vec<ExprId>) -> ParseResult<ExprId> {
        let call = WrittenCall { position, span: self.span_from(start), target: None, args };
        Ok(self.builder.operator_or_macro(name, call)?)
    }

    /// `a ? b : c`, or what binds more strongly.
    fn expr(&mut self) -> ParseResult<ExprId> {
        self.enter()?;
        let start = self.token.start;
        let condition = self.chain(Kind::LogicalOr)?;
        let result = match self.accept(Kind::Question) {
            None => condition,
            Some(question) => {
                let mut height = self.height;
                let then = self.chain(Kind::LogicalOr)?;
                height = height.max(self.height);
                self.expect(Kind::Colon)?;
                let otherwise = self.expr()?;
                self.height = height.max(self.height) + 1;
                self.operator(operator::CONDITIONAL, question.start, start, vec![condition, then, otherwise])?
            }
        };
        self.nesting -= 1;
        Ok(result)
    }

    /// A chain of `||`, or of `&&`.
    fn chain(&mut self, kind: Kind) -> ParseResult<ExprId> {
        let start = self.token.start;
        let first = self.chain_term(kind)?;
        if self.token.kind != kind {
            return Ok(first);
        }
        let base = self.terms.len();
        let mut height = self.height;
        self.terms.push(Term { value: first, operator: 0, span: self.span_from(start) });
        while let Some(operator) = self.accept(kind) {
            let start = self.token.start;
            let value = self.chain_term(kind)?;
            height = height.max(self.height);
            self.terms.push(Term { value, operator: operator.start, span: self.span_from(start) });
        }
        self.height = height;
        let function = if kind == Kind::LogicalOr { operator::LOGICAL_OR } else { operator::LOGICAL_AND };
        let result = self.builder.balance(&function, self.terms.get(base..).unwrap_or_default());
        self.terms.truncate(base);
        Ok(result)
    }

    fn chain_term(&mut self, kind: Kind) -> ParseResult<ExprId> {
        if kind == Kind::LogicalOr { self.chain(Kind::LogicalAnd) } else { self.binary(Binding::Relation) }
    }

    /// Operands joined by operators that bind at least as strongly; all of them bind to the left.
    fn binary(&mut self, weakest: Binding) -> ParseResult<ExprId> {
        let start = self.token.start;
        let mut left = self.unary()?;
        while let Some((binding, name)) = binary_operator(self.token.kind) {
            if binding < weakest {
                break;
            }
            let operator = self.advance();
            let height = self.height;
            self.enter()?;
            let right = match binding {
                Binding::Relation => self.binary(Binding::Sum)?,
                Binding::Sum => self.binary(Binding::Product)?,
                Binding::Product => self.unary()?,
            };
            self.nesting -= 1;
            self.height = height.max(self.height) + 1;
            left = self.operator(name, operator.start, start, vec![left, right])?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> ParseResult<ExprId> {
        let first = self.token;
        let name = match first.kind {
            Kind::Exclamation => operator::LOGICAL_NOT,
            Kind::Minus if !self.is_signed_number() => operator::NEGATE,
            _ => return self.member(),
        };
        let mut odd = false;
        while self.accept(first.kind).is_some() {
            odd = !odd;
        }
        let operand = self.member()?;
        // Pairs of the operator vanish.
        if odd { self.operator(name, first.start, first.start, vec![operand]) } else { Ok(operand) }
    }

    /// Whether the minus sign that is looked at belongs to a number.
    fn is_signed_number(&self) -> bool {
        let mut lexer = self.lexer;
        matches!(lexer.next_token().kind, Kind::Int | Kind::Float)
    }

    /// A primary expression with selections, member calls and indexes behind it.
    fn member(&mut self) -> ParseResult<ExprId> {
        let start = self.token.start;
        let (mut result, mut is_name) = self.primary()?;
        loop {
            match self.token.kind {
                Kind::Dot => {
                    (result, is_name) = self.selection(result, is_name, start)?;
                    self.height += 1;
                }
                Kind::LeftBracket => {
                    let open = self.advance();
                    let height = self.height;
                    let optional = self.optional_mark()?;
                    let index = self.expr()?;
                    self.expect(Kind::RightBracket)?;
                    self.height = height.max(self.height) + 1;
                    let name = if optional { operator::OPTIONAL_INDEX } else { operator::INDEX };
                    result = self.operator(name, open.start, start, vec![result, index])?;
                    is_name = false;
                }
                Kind::LeftBrace if is_name => {
                    result = self.message(result, start)?;
                    is_name = false;
                }
                _ => return Ok(result),
            }
        }
    }

    /// `.field`, `.?field` or `.function(…)` behind an operand.
    fn selection(&mut self, operand: ExprId, is_name: bool, start: u32) -> ParseResult<(ExprId, bool)> {
        let dot = self.advance();
        let optional = self.optional_mark()?;
        let token = self.advance();
        let text = self.lexer.text(token);
        let field = match token.kind {
            Kind::Identifier => text,
            Kind::QuotedIdentifier if self.builder.options.quoted_fields => unquote_field(text),
            _ => return Err(DirectParseFailure),
        };
        if optional {
            let literal = ExprKind::Literal(Literal::String(field.into()));
            let name = self.add(literal, token.start, token.start);
            let kind = ExprKind::Call { function: operator::OPTIONAL_SELECT, target: None, args: vec![operand, name] };
            return Ok((self.add(kind, dot.start, start), false));
        }
        let is_plain = token.kind == Kind::Identifier;
        match self.token.kind {
            Kind::LeftParen if is_plain => {
                let open = self.advance();
                let height = self.height;
                let args = self.arguments()?;
                self.height = height.max(self.height);
                let call =
                    WrittenCall { position: open.start, span: self.span_from(start), target: Some(operand), args };
                Ok((self.builder.call_or_macro(field, call)?, false))
            }
            _ => {
                let kind = ExprKind::Select { operand, field: self.name(field), test_only: false };
                Ok((self.add(kind, dot.start, start), is_name && is_plain))
            }
        }
    }

    /// The arguments of a call and its closing parenthesis.
    fn arguments(&mut self) -> ParseResult<Vec<ExprId>> {
        let mut args = Vec::new();
        let mut height = 0;
        if self.accept(Kind::RightParen).is_none() {
            loop {
                args.push(self.expr()?);
                height = height.max(self.height);
                if self.accept(Kind::Comma).is_none() {
                    break;
                }
            }
            self.expect(Kind::RightParen)?;
        }
        self.height = height;
        Ok(args)
    }

    /// The expression, and whether it is a name that a `{` makes a message's type.
    fn primary(&mut self) -> ParseResult<(ExprId, bool)> {
        self.height = 0;
        let token = self.token;
        match token.kind {
            Kind::Identifier | Kind::Dot => self.identifier(),
            Kind::LeftParen => {
                self.advance();
                let inner = self.expr()?;
                self.expect(Kind::RightParen)?;
                Ok((inner, false))
            }
            Kind::LeftBracket => Ok((self.list()?, false)),
            Kind::LeftBrace => Ok((self.map()?, false)),
            Kind::Minus if self.is_signed_number() => {
                self.advance();
                Ok((self.literal(true, token.start)?, false))
            }
            _ => Ok((self.literal(false, token.start)?, false)),
        }
    }

    fn literal(&mut self, negative: bool, start: u32) -> ParseResult<ExprId> {
        let token = self.advance();
        let literal = parse_literal(token.kind, self.lexer.text(token), negative).map_err(|_| DirectParseFailure)?;
        Ok(self.add(ExprKind::Literal(literal), start, start))
    }

    /// `name`, `.name`, `name(…)` or `.name(…)`.
    fn identifier(&mut self) -> ParseResult<(ExprId, bool)> {
        let start = self.token.start;
        let leading_dot = self.accept(Kind::Dot).is_some();
        let token = self.expect(Kind::Identifier)?;
        let text = self.lexer.text(token);
        // A reserved word can still begin a message's type.
        if is_reserved(text) {
            return Err(DirectParseFailure);
        }
        let name = if leading_dot { Name::from(format!(".{text}")) } else { self.name(text) };
        if self.token.kind == Kind::LeftParen {
            let open = self.advance();
            let args = self.arguments()?;
            let call = WrittenCall { position: open.start, span: self.span_from(start), target: None, args };
            return Ok((self.builder.operator_or_macro(name, call)?, false));
        }
        Ok((self.add(ExprKind::Ident(name), token.start, start), true))
    }

    fn list(&mut self) -> ParseResult<ExprId> {
        let open = self.advance();
        let mut elements = Vec::new();
        let mut height = 0;
        while !matches!(self.token.kind, Kind::RightBracket | Kind::Comma) {
            let optional = self.optional_mark()?;
            let value = self.expr()?;
            height = height.max(self.height);
            elements.push(ListElement { value, optional });
            if self.token.kind == Kind::RightBracket {
                break;
            }
            self.expect(Kind::Comma)?;
            if self.token.kind == Kind::Comma {
                return Err(DirectParseFailure);
            }
        }
        if elements.is_empty() {
            self.accept(Kind::Comma);
        }
        self.expect(Kind::RightBracket)?;
        self.height = height;
        Ok(self.add(ExprKind::List(elements), open.start, open.start))
    }

    fn map(&mut self) -> ParseResult<ExprId> {
        let open = self.advance();
        let mut entries = Vec::new();
        let mut height = 0;
        while !matches!(self.token.kind, Kind::RightBrace | Kind::Comma) {
            let optional = self.optional_mark()?;
            let key = self.expr()?;
            height = height.max(self.height);
            let colon = self.expect(Kind::Colon)?;
            let value = self.expr()?;
            height = height.max(self.height);
            entries.push(MapEntry { position: colon.start, key, value, optional });
            if self.token.kind == Kind::RightBrace {
                break;
            }
            self.expect(Kind::Comma)?;
            if self.token.kind == Kind::Comma {
                return Err(DirectParseFailure);
            }
        }
        if entries.is_empty() {
            self.accept(Kind::Comma);
        }
        self.expect(Kind::RightBrace)?;
        self.height = height;
        Ok(self.add(ExprKind::Map(entries), open.start, open.start))
    }

    /// `{field: value, …}` behind the name of a type.
    fn message(&mut self, name: ExprId, start: u32) -> ParseResult<ExprId> {
        let type_name = self.type_name(name);
        let open = self.advance();
        let mut fields = Vec::new();
        let mut height = 0;
        while !matches!(self.token.kind, Kind::RightBrace | Kind::Comma) {
            let optional = self.optional_mark()?;
            let token = self.advance();
            let text = self.lexer.text(token);
            let name = match token.kind {
                Kind::Identifier => text,
                Kind::QuotedIdentifier if self.builder.options.quoted_fields => unquote_field(text),
                _ => return Err(DirectParseFailure),
            };
            let colon = self.expect(Kind::Colon)?;
            let value = self.expr()?;
            height = height.max(self.height);
            fields.push(StructField { position: colon.start, name: name.into(), value, optional });
            if self.token.kind == Kind::RightBrace {
                break;
            }
            self.expect(Kind::Comma)?;
            if self.token.kind == Kind::Comma {
                return Err(DirectParseFailure);
            }
        }
        if fields.is_empty() {
            self.accept(Kind::Comma);
        }
        self.expect(Kind::RightBrace)?;
        self.height = height;
        Ok(self.add(ExprKind::Struct { type_name, fields }, open.start, start))
    }

    /// The dotted name that a chain of selections on a variable spells.
    fn type_name(&self, id: ExprId) -> Name {
        let mut parts = Vec::new();
        let mut at = id;
        loop {
            match &self.builder.ast[at].kind {
                ExprKind::Select { operand, field, .. } => {
                    parts.push(field.as_str());
                    at = *operand;
                }
                ExprKind::Ident(name) => {
                    parts.push(name.as_str());
                    break;
                }
                _ => break,
            }
        }
        parts.reverse();
        parts.join(".").into()
    }
}

/// A field's name without its backticks.
pub(crate) fn unquote_field(text: &str) -> &str {
    text.strip_prefix('`').and_then(|text| text.strip_suffix('`')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::macros::STANDARD;

    #[track_caller]
    fn parse_text(text: &str) -> Ast {
        let options = Options { optional_syntax: true, ..Options::default() };
        parse(&Source::new(text), &MacroTable::new(STANDARD), &options).unwrap()
    }

    #[track_caller]
    fn check_same(text: &str, other: &str) {
        assert!(parse_text(text).same_tree(&parse_text(other)), "`{text}` is not `{other}`");
    }

    #[test]
    fn operators_bind_as_they_should() {
        check_same("1 + 2 * 3 - 4 < 5 == true", "((((1 + (2 * 3)) - 4) < 5) == true)");
        check_same("a ? b : c ? d : e", "a ? b : (c ? d : e)");
        check_same("a && b || c && d", "(a && b) || (c && d)");
        check_same("a && b && c && d && e", "((a && b) && c) && (d && e)");
        check_same("--x + ---x", "x + -x");
        check_same("!!!a.b", "!(a.b)");
        check_same("- 1.size()", "(-1).size()");
    }

    #[test]
    fn names_in_front_of_braces_are_types() {
        let ast = parse_text(".a . b{c: 1, ?`d-e`: 2,}.f");
        let ExprKind::Select { operand, .. } = &ast[ast.root()].kind else { panic!("not a selection") };
        let ExprKind::Struct { type_name, fields } = &ast[*operand].kind else { panic!("not a message") };
        assert_eq!(*type_name, ".a.b");
        assert_eq!(fields[1].name, "d-e");
        assert!(fields[1].optional);
    }

    #[test]
    fn nodes_stand_where_issues_are_shown() {
        let text = "a.b + f(c)[?d] == x.map(i, i)";
        let ast = parse_text(text);
        let mut shown: Vec<_> = ast.preorder(ast.root()).map(|id| ast[id].position).collect();
        shown.dedup();
        assert_eq!(shown, [15, 4, 1, 0, 10, 7, 8, 12, 23, 18, 23, 27, 23]);
    }
}
