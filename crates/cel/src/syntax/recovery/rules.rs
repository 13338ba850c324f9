//! The rules of the CEL grammar, each as cel-go's generated parser goes through it.
//!
//! The numbers are ANTLR's for the places in its grammar: an error at the same place twice skips a token.
//! Where the generated parser predicts with any number of tokens, this one looks at those that decide.

use super::sets::{
    CALC_OPERATORS, EXPR, FIELD_NAME, LITERAL, MEMBER_OPERATORS, OPTIONAL_EXPR, OPTIONAL_FIELD, PRIMARY,
    PRODUCT_OPERATORS, RELATION_OPERATORS, SUM_OPERATORS, Set,
};
use super::strategy::{Abort, Place, RecoveringParser, Rule, Stop};
use super::stream::Stream;
use super::tree::{Binary, Chain, Entry, NodeId, Shape, Signs, Tree};
use crate::source::{Issues, Source};
use crate::syntax::Options;
use crate::syntax::lexer::{Kind, Token};

type ReadResult = Result<NodeId, Abort>;
type Step = Result<(), Stop>;

const fn one(kind: Kind) -> Set {
    Set::of(&[kind])
}

/// Reads the text into a tree; what is wrong is reported.
pub(super) fn read(source: &Source, options: &Options, issues: &mut Issues) -> Result<Tree, Abort> {
    let mut rules = RecoveringParser::new(Stream::new(source, options.errors_max, issues), options);
    let start = rules.enter_start()?;
    let mut expr = None;
    let outcome = rules.start(&mut expr);
    rules.leave_start(outcome)?;
    rules.add(start, Shape::Nested(expr));
    Ok(rules.tree)
}

impl RecoveringParser<'_> {
    fn add(&mut self, start: u32, shape: Shape) -> NodeId {
        let end = self.stream.previous().map_or(start, |token| token.end);
        self.tree.add(start, end, shape)
    }

    fn start(&mut self, expr: &mut Option<NodeId>) -> Step {
        *expr = Some(self.expr(one(Kind::Eof))?);
        self.match_token(35, Kind::Eof, Set::END)?;
        Ok(())
    }

    /// `a ? b : c`
    fn expr(&mut self, follow: Set) -> ReadResult {
        let start = self.enter(Rule::Expr, follow)?;
        let condition = self.or(one(Kind::Question).or(Set::END))?;
        let (mut question, mut then, mut otherwise) = (None, None, None);
        let outcome = self.conditional(&mut question, &mut then, &mut otherwise);
        self.leave(Rule::Expr, outcome)?;
        Ok(self.add(start, Shape::Conditional { condition, question, then, otherwise }))
    }

    fn conditional(
        &mut self,
        question: &mut Option<u32>,
        then: &mut Option<NodeId>,
        otherwise: &mut Option<NodeId>,
    ) -> Step {
        if self.kind()? == Kind::Question {
            *question = Some(self.match_token(38, Kind::Question, EXPR)?.start);
            *then = Some(self.or(one(Kind::Colon))?);
            self.match_token(40, Kind::Colon, EXPR)?;
            *otherwise = Some(self.expr(Set::END)?);
        }
        Ok(())
    }

    fn or(&mut self, follow: Set) -> ReadResult {
        let start = self.enter(Rule::Or, follow)?;
        let next = one(Kind::LogicalOr).or(Set::END);
        let mut chain = Chain { first: self.and(next)?, rest: Vec::new() };
        while self.kind()? == Kind::LogicalOr {
            let operator = self.matched()?;
            let term = self.and(next)?;
            chain.rest.push((operator.start, term));
        }
        self.leave(Rule::Or, Ok(()))?;
        Ok(self.add(start, Shape::Or(chain)))
    }

    fn and(&mut self, follow: Set) -> ReadResult {
        let start = self.enter(Rule::And, follow)?;
        let next = one(Kind::LogicalAnd).or(Set::END);
        let mut chain = Chain { first: self.relation(next, 0)?, rest: Vec::new() };
        while self.kind()? == Kind::LogicalAnd {
            let operator = self.matched()?;
            let term = self.relation(next, 0)?;
            chain.rest.push((operator.start, term));
        }
        self.leave(Rule::And, Ok(()))?;
        Ok(self.add(start, Shape::And(chain)))
    }

    /// Reads the next token, which is known to fit.
    fn matched(&mut self) -> Result<Token, Abort> {
        let kind = self.kind()?;
        self.match_token(0, kind, Set::EMPTY).map_err(|_| Abort)
    }

    fn relation(&mut self, follow: Set, precedence: u8) -> ReadResult {
        let start = self.enter(Rule::Relation, follow)?;
        let next = RELATION_OPERATORS.or(Set::END);
        let left = self.calc(next, 0)?;
        let mut relation = self.add(start, Shape::Nested(Some(left)));
        while precedence <= 1 && RELATION_OPERATORS.contains(self.kind()?) {
            self.count_exit(Rule::Relation);
            self.count_entry(Rule::Relation)?;
            let operator = Some(self.matched()?);
            let right = Some(self.relation(next, 2)?);
            relation = self.add(start, Shape::Binary(Binary { left: relation, operator, right }));
        }
        self.leave(Rule::Relation, Ok(()))?;
        Ok(relation)
    }

    fn calc(&mut self, follow: Set, precedence: u8) -> ReadResult {
        let start = self.enter(Rule::Calc, follow)?;
        let next = CALC_OPERATORS.or(Set::END);
        let left = self.unary(next)?;
        let mut calc = self.add(start, Shape::Nested(Some(left)));
        loop {
            let kind = self.kind()?;
            let inner = if precedence <= 2 && PRODUCT_OPERATORS.contains(kind) {
                3
            } else if precedence <= 1 && SUM_OPERATORS.contains(kind) {
                2
            } else {
                break;
            };
            self.count_exit(Rule::Calc);
            self.count_entry(Rule::Calc)?;
            let operator = Some(self.matched()?);
            let right = Some(self.calc(next, inner)?);
            calc = self.add(start, Shape::Binary(Binary { left: calc, operator, right }));
        }
        self.leave(Rule::Calc, Ok(()))?;
        Ok(calc)
    }

    fn unary(&mut self, follow: Set) -> ReadResult {
        let start = self.enter(Rule::Unary, follow)?;
        let mut shape = Shape::UnknownUnary;
        let outcome = self.unary_alternative(&mut shape);
        self.leave(Rule::Unary, outcome)?;
        Ok(self.add(start, shape))
    }

    fn unary_alternative(&mut self, shape: &mut Shape) -> Step {
        self.sync(99, EXPR, Place::Block)?;
        let token = self.stream.peek(0)?;
        match token.kind {
            Kind::Exclamation => {
                let mut signs = Signs { position: token.start, count: 0, operand: None };
                let outcome = self.exclamations(&mut signs);
                *shape = Shape::Not(signs);
                outcome
            }
            Kind::Minus if !matches!(self.stream.peek(1)?.kind, Kind::Int | Kind::Float) => {
                if !PRIMARY.contains(self.stream.peek(1)?.kind) {
                    return Err(self.no_alternative(1));
                }
                let mut signs = Signs { position: token.start, count: 0, operand: None };
                let outcome = self.minuses(&mut signs);
                *shape = Shape::Negate(signs);
                outcome
            }
            kind if PRIMARY.contains(kind) => {
                *shape = Shape::Nested(Some(self.member(Set::END)?));
                Ok(())
            }
            _ => Err(self.no_alternative(0)),
        }
    }

    fn exclamations(&mut self, signs: &mut Signs) -> Step {
        while self.kind()? == Kind::Exclamation {
            self.matched()?;
            signs.count = signs.count.saturating_add(1);
            self.sync(90, EXPR, Place::LoopBack)?;
        }
        signs.operand = Some(self.member(Set::END)?);
        Ok(())
    }

    fn minuses(&mut self, signs: &mut Signs) -> Step {
        loop {
            self.matched()?;
            signs.count = signs.count.saturating_add(1);
            self.sync(96, PRIMARY, Place::LoopBack)?;
            let kind = self.kind()?;
            if kind == Kind::Minus {
                if !PRIMARY.contains(self.stream.peek(1)?.kind) {
                    return Err(self.no_alternative(1));
                }
            } else if PRIMARY.contains(kind) {
                break;
            } else {
                return Err(self.no_alternative(0));
            }
        }
        signs.operand = Some(self.member(Set::END)?);
        Ok(())
    }

    fn member(&mut self, follow: Set) -> ReadResult {
        let start = self.enter(Rule::Member, follow)?;
        let primary = self.primary(MEMBER_OPERATORS.or(Set::END))?;
        let mut member = self.add(start, Shape::Nested(Some(primary)));
        let outcome = loop {
            if !MEMBER_OPERATORS.contains(self.kind()?) {
                break Ok(());
            }
            self.count_exit(Rule::Member);
            let mut shape = None;
            let outcome = self.member_alternative(member, &mut shape);
            if let Some(shape) = shape {
                member = self.add(start, shape);
            }
            if outcome.is_err() {
                break outcome;
            }
        };
        self.leave(Rule::Member, outcome)?;
        Ok(member)
    }

    fn member_alternative(&mut self, operand: NodeId, shape: &mut Option<Shape>) -> Step {
        self.sync(126, MEMBER_OPERATORS, Place::Block)?;
        let token = self.stream.peek(0)?;
        if token.kind == Kind::LeftBracket {
            self.count_entry(Rule::Member)?;
            return self.index(operand, shape);
        }
        let (second, third) = (self.stream.peek(1)?.kind, |rules: &mut Self| rules.stream.peek(2));
        if second == Kind::Identifier && third(self)?.kind == Kind::LeftParen {
            self.count_entry(Rule::Member)?;
            return self.member_call(operand, shape);
        }
        if !OPTIONAL_FIELD.contains(second) {
            return Err(self.no_alternative(1));
        }
        self.count_entry(Rule::Member)?;
        let dot = Some(self.matched()?.start);
        let optional = second == Kind::Question;
        if optional {
            self.matched()?;
        }
        let field = Some(self.field_name(MEMBER_OPERATORS.or(Set::END))?);
        *shape = Some(Shape::Select { operand, dot, optional, field });
        Ok(())
    }

    fn member_call(&mut self, operand: NodeId, shape: &mut Option<Shape>) -> Step {
        self.matched()?;
        let name = self.matched()?;
        let open = self.matched()?.start;
        let mut args = Vec::new();
        let outcome = self.arguments([115, 117], MEMBER_OPERATORS.or(Set::END), &mut args);
        *shape = Some(Shape::MemberCall { operand, name, open, args });
        outcome
    }

    /// The arguments of a call and its closing parenthesis.
    fn arguments(&mut self, states: [u16; 2], after: Set, args: &mut Vec<NodeId>) -> Step {
        let [first, last] = states;
        self.sync(first, EXPR.or(one(Kind::RightParen)), Place::Block)?;
        if EXPR.contains(self.kind()?) {
            self.enter(Rule::Arguments, one(Kind::RightParen))?;
            let next = one(Kind::Comma).or(Set::END);
            args.push(self.expr(next)?);
            while self.kind()? == Kind::Comma {
                self.matched()?;
                args.push(self.expr(next)?);
            }
            self.leave(Rule::Arguments, Ok(()))?;
        }
        self.match_token(last, Kind::RightParen, after)?;
        Ok(())
    }

    fn index(&mut self, operand: NodeId, shape: &mut Option<Shape>) -> Step {
        let open = self.matched()?.start;
        let (mut optional, mut index) = (false, None);
        let outcome = self.index_content(&mut optional, &mut index);
        *shape = Some(Shape::Index { operand, open, optional, index });
        outcome
    }

    fn index_content(&mut self, optional: &mut bool, index: &mut Option<NodeId>) -> Step {
        self.sync(121, OPTIONAL_EXPR, Place::Block)?;
        if self.kind()? == Kind::Question {
            self.matched()?;
            *optional = true;
        }
        *index = Some(self.expr(one(Kind::RightBracket))?);
        self.match_token(124, Kind::RightBracket, MEMBER_OPERATORS.or(Set::END))?;
        Ok(())
    }

    fn primary(&mut self, follow: Set) -> ReadResult {
        let start = self.enter(Rule::Primary, follow)?;
        let mut shape = Shape::Unknown;
        let outcome = self.primary_alternative(&mut shape);
        self.leave(Rule::Primary, outcome)?;
        Ok(self.add(start, shape))
    }

    fn primary_alternative(&mut self, shape: &mut Shape) -> Step {
        self.sync(184, PRIMARY, Place::Block)?;
        match self.kind()? {
            Kind::Identifier => self.name(false, shape),
            Kind::Dot => match self.stream.peek(1)?.kind {
                Kind::Identifier => self.name(true, shape),
                _ => Err(self.no_alternative(1)),
            },
            Kind::LeftParen => {
                self.matched()?;
                *shape = Shape::Nested(Some(self.expr(one(Kind::RightParen))?));
                self.match_token(146, Kind::RightParen, Set::END)?;
                Ok(())
            }
            Kind::LeftBracket => {
                let open = self.matched()?.start;
                let mut elements = Vec::new();
                let outcome = self.list_content(&mut elements);
                *shape = Shape::List { open, elements };
                outcome
            }
            Kind::LeftBrace => {
                let open = self.matched()?.start;
                let mut entries = Vec::new();
                let outcome = self.map_content(&mut entries);
                *shape = Shape::Map { open, entries };
                outcome
            }
            kind if LITERAL.contains(kind) => {
                *shape = Shape::Nested(Some(self.literal(Set::END)?));
                Ok(())
            }
            _ => Err(self.no_alternative(0)),
        }
    }

    /// A variable, a call or a message, each perhaps with a leading dot.
    fn name(&mut self, leading_dot: bool, shape: &mut Shape) -> Step {
        let mut ahead = usize::from(leading_dot).saturating_add(1);
        let is_call = self.stream.peek(ahead)?.kind == Kind::LeftParen;
        while self.stream.peek(ahead)?.kind == Kind::Dot
            && self.stream.peek(ahead.saturating_add(1))?.kind == Kind::Identifier
        {
            ahead = ahead.saturating_add(2);
        }
        let is_message = self.stream.peek(ahead)?.kind == Kind::LeftBrace;
        if leading_dot {
            self.matched()?;
        }
        let name = self.matched()?;
        if is_call {
            let open = self.matched()?.start;
            let mut args = Vec::new();
            let outcome = self.arguments([141, 143], Set::END, &mut args);
            *shape = Shape::GlobalCall { leading_dot, name, open, args };
            return outcome;
        }
        if !is_message {
            *shape = Shape::Ident { leading_dot, name };
            return Ok(());
        }
        let mut names = vec![name];
        while self.kind()? == Kind::Dot {
            self.matched()?;
            names.push(self.matched()?);
        }
        let open = self.matched()?.start;
        let mut fields = None;
        let outcome = self.message_content(&mut fields);
        *shape = Shape::Message { leading_dot, names, open, fields };
        outcome
    }

    /// A comma before the closing token, and that token.
    fn close(&mut self, state: u16, kind: Kind) -> Step {
        self.sync(state, one(Kind::Comma).or(one(kind)), Place::Block)?;
        if self.kind()? == Kind::Comma {
            self.matched()?;
        }
        self.match_token(state.saturating_add(2), kind, Set::END)?;
        Ok(())
    }

    fn list_content(&mut self, elements: &mut Vec<NodeId>) -> Step {
        let end = one(Kind::Comma).or(one(Kind::RightBracket));
        self.sync(150, OPTIONAL_EXPR.or(end), Place::Block)?;
        if OPTIONAL_EXPR.contains(self.kind()?) {
            self.enter(Rule::List, end)?;
            let next = one(Kind::Comma).or(Set::END);
            elements.push(self.optional_expr(next)?);
            while self.kind()? == Kind::Comma && OPTIONAL_EXPR.contains(self.stream.peek(1)?.kind) {
                self.matched()?;
                elements.push(self.optional_expr(next)?);
            }
            self.leave(Rule::List, Ok(()))?;
        }
        self.close(153, Kind::RightBracket)
    }

    fn map_content(&mut self, entries: &mut Vec<Entry>) -> Step {
        let end = one(Kind::Comma).or(one(Kind::RightBrace));
        self.sync(158, OPTIONAL_EXPR.or(end), Place::Block)?;
        if OPTIONAL_EXPR.contains(self.kind()?) {
            self.enter(Rule::Map, end)?;
            let outcome = self.entries(entries, OPTIONAL_EXPR, [221, 225], RecoveringParser::optional_expr);
            self.leave(Rule::Map, outcome)?;
        }
        self.close(161, Kind::RightBrace)
    }

    fn message_content(&mut self, fields: &mut Option<NodeId>) -> Step {
        let end = one(Kind::Comma).or(one(Kind::RightBrace));
        self.sync(177, OPTIONAL_FIELD.or(end), Place::Block)?;
        if OPTIONAL_FIELD.contains(self.kind()?) {
            let start = self.enter(Rule::Fields, end)?;
            let mut entries = Vec::new();
            let outcome = self.entries(&mut entries, OPTIONAL_FIELD, [203, 207], RecoveringParser::optional_field);
            self.leave(Rule::Fields, outcome)?;
            *fields = Some(self.add(start, Shape::Fields(entries)));
        }
        self.close(180, Kind::RightBrace)
    }

    /// `key: value, key: value`, the keys read by a rule that begins with one of `first`.
    fn entries(
        &mut self,
        entries: &mut Vec<Entry>,
        first: Set,
        states: [u16; 2],
        key: fn(&mut Self, Set) -> ReadResult,
    ) -> Step {
        let [mut state, later] = states;
        loop {
            let key = key(self, one(Kind::Colon))?;
            entries.push(Entry { colon: None, key, value: None });
            let colon = self.match_token(state, Kind::Colon, EXPR)?.start;
            let value = self.expr(one(Kind::Comma).or(Set::END))?;
            if let Some(entry) = entries.last_mut() {
                (entry.colon, entry.value) = (Some(colon), Some(value));
            }
            if self.kind()? != Kind::Comma || !first.contains(self.stream.peek(1)?.kind) {
                return Ok(());
            }
            self.matched()?;
            state = later;
        }
    }

    fn optional_field(&mut self, follow: Set) -> ReadResult {
        let start = self.enter(Rule::OptionalField, follow)?;
        let (mut optional, mut name) = (false, None);
        let outcome = self.optional_field_content(&mut optional, &mut name);
        self.leave(Rule::OptionalField, outcome)?;
        Ok(self.add(start, Shape::OptionalField { optional, name }))
    }

    fn optional_field_content(&mut self, optional: &mut bool, name: &mut Option<NodeId>) -> Step {
        self.sync(216, OPTIONAL_FIELD, Place::Block)?;
        if self.kind()? == Kind::Question {
            self.matched()?;
            *optional = true;
        }
        *name = Some(self.field_name(Set::END)?);
        Ok(())
    }

    fn field_name(&mut self, follow: Set) -> ReadResult {
        let start = self.enter(Rule::FieldName, follow)?;
        let mut shape = Shape::Unknown;
        let outcome = self.field_name_alternative(&mut shape);
        self.leave(Rule::FieldName, outcome)?;
        Ok(self.add(start, shape))
    }

    fn field_name_alternative(&mut self, shape: &mut Shape) -> Step {
        self.sync(235, FIELD_NAME, Place::Block)?;
        if !FIELD_NAME.contains(self.kind()?) {
            return Err(self.no_alternative(0));
        }
        *shape = Shape::FieldName(self.matched()?);
        Ok(())
    }

    fn optional_expr(&mut self, follow: Set) -> ReadResult {
        let start = self.enter(Rule::OptionalExpr, follow)?;
        let (mut question, mut value) = (None, None);
        let outcome = self.optional_expr_content(&mut question, &mut value);
        self.leave(Rule::OptionalExpr, outcome)?;
        Ok(self.add(start, Shape::OptionalExpr { question, value }))
    }

    fn optional_expr_content(&mut self, question: &mut Option<u32>, value: &mut Option<NodeId>) -> Step {
        self.sync(238, OPTIONAL_EXPR, Place::Block)?;
        if self.kind()? == Kind::Question {
            *question = Some(self.matched()?.start);
        }
        *value = Some(self.expr(Set::END)?);
        Ok(())
    }

    fn literal(&mut self, follow: Set) -> ReadResult {
        let start = self.enter(Rule::Literal, follow)?;
        let mut shape = Shape::Unknown;
        let outcome = self.literal_alternative(&mut shape);
        self.leave(Rule::Literal, outcome)?;
        Ok(self.add(start, shape))
    }

    fn literal_alternative(&mut self, shape: &mut Shape) -> Step {
        self.sync(256, LITERAL, Place::Block)?;
        let kind = self.kind()?;
        let negative = kind == Kind::Minus;
        if negative {
            if !matches!(self.stream.peek(1)?.kind, Kind::Int | Kind::Float) {
                return Err(self.no_alternative(1));
            }
            self.matched()?;
        } else if !LITERAL.contains(kind) {
            return Err(self.no_alternative(0));
        }
        *shape = Shape::Literal { negative, token: self.matched()? };
        Ok(())
    }
}
