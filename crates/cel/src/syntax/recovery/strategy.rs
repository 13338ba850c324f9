//! Error recovery of the parser: the choice of repairs, and the reporting of errors.
//!
//! Follows ANTLR 4's default error strategy and the limits that cel-go adds to it.

use super::sets::Set;
use super::stream::Stream;
use super::tree::{Tree, missing_token};
use crate::syntax::Options;
use crate::syntax::lexer::{Kind, Token};

/// Parsing ends here; the reason is reported.
#[derive(Debug)]
pub(super) struct Abort;

/// A rule cannot be continued: because of the failure that the parser holds, or because parsing ends.
// Small on purpose: results of this type are in every frame of the recursion over rules.
pub(super) enum Stop {
    Failed,
    Abort,
}

impl From<Abort> for Stop {
    fn from(_: Abort) -> Self {
        Stop::Abort
    }
}

/// A reason why a rule cannot be continued.
enum Failure {
    /// No alternative of the rule begins like this.
    NoAlternative { first: Token, offending: Token },
    /// Another token is needed here.
    Mismatch { offending: Token, expected: Set },
}

/// The rules of the grammar; each is counted on its own for the limit on recursion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Start,
    Expr,
    Or,
    And,
    Relation,
    Calc,
    Unary,
    Member,
    Primary,
    Arguments,
    List,
    Fields,
    OptionalField,
    Map,
    FieldName,
    OptionalExpr,
    Literal,
}

const RULES: usize = 17;

/// A state of the grammar: the place in a rule at which an error is noticed, as numbered by ANTLR.
pub(super) type State = u16;

/// Behavior at a place in a rule when the next token does not fit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Before alternatives or an optional part: drops a token if the one behind it fits, or else fails.
    Block,
    /// Behind a repetition: skips tokens until one fits or can follow.
    LoopBack,
}

pub(super) struct RecoveringParser<'a> {
    pub(super) stream: Stream<'a>,
    pub(super) tree: Tree,
    options: &'a Options,
    /// For each open rule but the first, what may follow it where it was entered.
    follows: Vec<Set>,
    depths: [usize; RULES],
    state: State,
    in_recovery: bool,
    last_error_index: Option<usize>,
    last_error_states: Vec<State>,
    recoveries: usize,
    failure: Option<Failure>,
}

impl<'a> RecoveringParser<'a> {
    pub(super) fn new(stream: Stream<'a>, options: &'a Options) -> Self {
        RecoveringParser {
            stream,
            tree: Tree::default(),
            options,
            follows: Vec::new(),
            depths: [0; RULES],
            state: 0,
            in_recovery: false,
            last_error_index: None,
            last_error_states: Vec::new(),
            recoveries: 0,
            failure: None,
        }
    }

    pub(super) fn kind(&mut self) -> Result<Kind, Abort> {
        Ok(self.stream.peek(0)?.kind)
    }

    /// Counts a rule that is entered.
    pub(super) fn count_entry(&mut self, rule: Rule) -> Result<(), Abort> {
        let Some(depth) = self.depths.get_mut(rule as usize) else { return Ok(()) };
        *depth = depth.saturating_add(1);
        let limit = self.options.recursion_limit();
        if *depth > limit {
            return Err(self.stream.report_limit(format!("expression recursion limit exceeded: {limit}")));
        }
        Ok(())
    }

    /// Counts a rule that is left.
    pub(super) fn count_exit(&mut self, rule: Rule) {
        if let Some(depth) = self.depths.get_mut(rule as usize) {
            *depth = depth.saturating_sub(1);
        }
    }

    /// Enters the first rule.
    pub(super) fn enter_start(&mut self) -> Result<u32, Abort> {
        self.count_entry(Rule::Start)?;
        Ok(self.stream.peek(0)?.start)
    }

    /// Enters a rule where `follow` may come behind it; returns where its text begins.
    pub(super) fn enter(&mut self, rule: Rule, follow: Set) -> Result<u32, Abort> {
        let start = self.stream.peek(0)?.start;
        self.follows.push(follow);
        self.count_entry(rule)?;
        Ok(start)
    }

    /// Leaves the first rule: reports its failure and recovers from it.
    pub(super) fn leave_start(&mut self, outcome: Result<(), Stop>) -> Result<(), Abort> {
        self.get_over(outcome)?;
        self.count_exit(Rule::Start);
        Ok(())
    }

    /// Leaves a rule; what made it fail is reported and got over.
    pub(super) fn leave(&mut self, rule: Rule, outcome: Result<(), Stop>) -> Result<(), Abort> {
        self.get_over(outcome)?;
        self.count_exit(rule);
        self.follows.pop();
        Ok(())
    }

    fn get_over(&mut self, outcome: Result<(), Stop>) -> Result<(), Abort> {
        match outcome {
            Ok(()) => Ok(()),
            Err(Stop::Abort) => Err(Abort),
            Err(Stop::Failed) => {
                if let Some(failure) = self.failure.take() {
                    self.report_failure(failure)?;
                }
                self.recover()
            }
        }
    }

    /// The tokens that may come: those of the place, and what follows the rules that may end there.
    fn expected(&self, next: Set) -> Set {
        let mut expected = next.without_end();
        let mut may_end = next.has_end();
        for follow in self.follows.iter().rev() {
            if !may_end {
                break;
            }
            expected = expected.or(follow.without_end());
            may_end = follow.has_end();
        }
        if may_end { expected.or(Set::of(&[Kind::Eof])) } else { expected }
    }

    /// Makes sure, at a decision, that the next token fits.
    pub(super) fn sync(&mut self, state: State, next: Set, place: Place) -> Result<(), Stop> {
        self.state = state;
        if self.in_recovery || next.has_end() || next.contains(self.kind()?) {
            return Ok(());
        }
        let expected = self.expected(next);
        match place {
            Place::Block => {
                if self.drop_token(expected)? {
                    return Ok(());
                }
                let offending = self.stream.peek(0)?;
                Err(self.fail(Failure::Mismatch { offending, expected }))
            }
            Place::LoopBack => {
                self.report_unwanted(expected)?;
                let stop = expected.or(self.recovery_set());
                while !stop.contains(self.kind()?) && self.kind()? != Kind::Eof {
                    self.stream.advance()?;
                }
                Ok(())
            }
        }
    }

    /// Reads a token of that kind; `after` is what may come behind it in the rule.
    pub(super) fn match_token(&mut self, state: State, kind: Kind, after: Set) -> Result<Token, Stop> {
        self.state = state;
        let token = self.stream.peek(0)?;
        if token.kind == kind {
            self.end_recovery();
            self.stream.advance()?;
            return Ok(token);
        }
        self.count_recovery()?;
        let expected = Set::of(&[kind]);
        if self.drop_token(expected)? {
            let token = self.stream.peek(0)?;
            self.stream.advance()?;
            return Ok(token);
        }
        if self.expected(after).contains(token.kind) {
            self.report_missing(expected)?;
            // The token is supposed to stand here; at the end, where the last one stands.
            let previous = self.stream.previous().filter(|_| token.kind == Kind::Eof);
            return Ok(missing_token(kind, previous.unwrap_or(token).start));
        }
        Err(self.fail(Failure::Mismatch { offending: token, expected }))
    }

    /// Drops the next token if the one behind it is expected.
    fn drop_token(&mut self, expected: Set) -> Result<bool, Abort> {
        if !expected.contains(self.stream.peek(1)?.kind) {
            return Ok(false);
        }
        self.report_unwanted(expected)?;
        self.stream.advance()?;
        self.end_recovery();
        Ok(true)
    }

    fn end_recovery(&mut self) {
        self.in_recovery = false;
        self.last_error_index = None;
        self.last_error_states.clear();
    }

    /// Whether errors are to be reported; from then on, not until a token fits again.
    fn begin_report(&mut self) -> bool {
        !std::mem::replace(&mut self.in_recovery, true)
    }

    fn report_unwanted(&mut self, expected: Set) -> Result<(), Abort> {
        if !self.begin_report() {
            return Ok(());
        }
        let token = self.stream.peek(0)?;
        let message = format!("extraneous input {} expecting {expected}", self.stream.show(token));
        self.stream.report(token.start, &message)
    }

    fn report_missing(&mut self, expected: Set) -> Result<(), Abort> {
        if !self.begin_report() {
            return Ok(());
        }
        let token = self.stream.peek(0)?;
        let message = format!("missing {expected} at {}", self.stream.show(token));
        self.stream.report(token.start, &message)
    }

    fn report_failure(&mut self, failure: Failure) -> Result<(), Abort> {
        if !self.begin_report() {
            return Ok(());
        }
        match failure {
            Failure::NoAlternative { first, offending } => {
                let shown = self.stream.show_range(first, offending);
                // cel-go says it like this where one character and a constant are in the way, as in `a.true`.
                let mut inner = shown.trim_matches('\'').chars();
                inner.next();
                let message = match inner.as_str() {
                    constant @ ("true" | "false" | "null") => {
                        format!("mismatched input '{constant}' expecting IDENTIFIER")
                    }
                    _ => format!("no viable alternative at input {shown}"),
                };
                self.stream.report(offending.start, &message)
            }
            Failure::Mismatch { offending, expected } => {
                let message = format!("mismatched input {} expecting {expected}", self.stream.show(offending));
                self.stream.report(offending.start, &message)
            }
        }
    }

    fn count_recovery(&mut self) -> Result<(), Abort> {
        let limit = self.options.recoveries_max;
        if self.recoveries >= limit {
            let position = self.stream.peek(0)?.start;
            self.stream.report(position, &format!("error recovery attempt limit exceeded: {limit}"))?;
            return Err(Abort);
        }
        self.recoveries = self.recoveries.saturating_add(1);
        Ok(())
    }

    /// Skips tokens until one can follow an open rule.
    fn recover(&mut self) -> Result<(), Abort> {
        self.count_recovery()?;
        let mut skipped = 0usize;
        if self.last_error_index == Some(self.stream.index) && self.last_error_states.contains(&self.state) {
            // Nothing was read since the same error at the same place.
            self.skip_token(&mut skipped)?;
        }
        self.last_error_index = Some(self.stream.index);
        self.last_error_states.push(self.state);
        let stop = self.recovery_set();
        while !stop.contains(self.kind()?) && self.kind()? != Kind::Eof {
            self.skip_token(&mut skipped)?;
        }
        Ok(())
    }

    fn skip_token(&mut self, skipped: &mut usize) -> Result<(), Abort> {
        let limit = self.options.recovery_tokens_max;
        if *skipped >= limit {
            return Err(self.stream.report_limit(format!("error recovery token lookahead limit exceeded: {limit}")));
        }
        *skipped = skipped.saturating_add(1);
        self.stream.advance()
    }

    /// Tokens that can follow any open rule.
    fn recovery_set(&self) -> Set {
        self.follows.iter().fold(Set::EMPTY, |set, follow| set.or(follow.without_end()))
    }

    /// No alternative fits the tokens from the next one to the one `ahead`.
    pub(super) fn no_alternative(&mut self, ahead: usize) -> Stop {
        match (self.stream.peek(0), self.stream.peek(ahead)) {
            (Ok(first), Ok(offending)) => self.fail(Failure::NoAlternative { first, offending }),
            _ => Stop::Abort,
        }
    }

    fn fail(&mut self, failure: Failure) -> Stop {
        self.failure = Some(failure);
        Stop::Failed
    }
}
