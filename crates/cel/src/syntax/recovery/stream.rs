//! The tokens, read when they are first asked for; what is not a token is reported then.

use super::strategy::Abort;
use crate::source::{Issues, Location, Source};
use crate::syntax::lexer::{Kind, Lexer, Token};

pub(super) struct Stream<'a> {
    lexer: Lexer<'a>,
    /// The tokens read so far; the last one may be the end of the text.
    tokens: Vec<Token>,
    /// The pieces of text that are not tokens.
    unrecognized: Vec<Token>,
    /// The token that is looked at.
    pub(super) index: usize,
    issues: &'a mut Issues,
    errors: usize,
    errors_max: usize,
}

impl<'a> Stream<'a> {
    pub(super) fn new(source: &'a Source, errors_max: usize, issues: &'a mut Issues) -> Self {
        let lexer = Lexer::new(source.text());
        Stream { lexer, tokens: Vec::new(), unrecognized: Vec::new(), index: 0, issues, errors: 0, errors_max }
    }

    /// The token `ahead` of the one that is looked at.
    pub(super) fn peek(&mut self, ahead: usize) -> Result<Token, Abort> {
        let wanted = self.index.saturating_add(ahead);
        loop {
            match self.tokens.get(wanted).or_else(|| self.tokens.last().filter(|last| last.kind == Kind::Eof)) {
                Some(token) => return Ok(*token),
                None => self.read()?,
            }
        }
    }

    /// The token before the one that is looked at.
    pub(super) fn previous(&self) -> Option<Token> {
        self.tokens.get(self.index.checked_sub(1)?).copied()
    }

    fn read(&mut self) -> Result<(), Abort> {
        let token = self.lexer.next_token();
        if token.kind != Kind::Error {
            self.tokens.push(token);
            return Ok(());
        }
        self.unrecognized.push(token);
        let message = format!("token recognition error at: '{}'", self.lexer.text(token));
        self.report(token.start, &message)
    }

    /// Advances to the next token and reads it.
    pub(super) fn advance(&mut self) -> Result<(), Abort> {
        if self.peek(0)?.kind != Kind::Eof {
            self.index = self.index.saturating_add(1);
            self.peek(0)?;
        }
        Ok(())
    }

    /// A token's text as messages show it.
    pub(super) fn show(&self, token: Token) -> String {
        let text = if token.kind == Kind::Eof { "<EOF>" } else { self.lexer.text(token) };
        quote(text)
    }

    /// The text from one token to another as messages show it, without what is not a token.
    pub(super) fn show_range(&self, first: Token, last: Token) -> String {
        if first.kind == Kind::Eof {
            return quote("<EOF>");
        }
        let mut text = String::new();
        let mut from = first.start;
        let inside = |token: &&Token| token.start >= first.start && token.end <= last.end;
        for gap in self.unrecognized.iter().filter(inside) {
            text.push_str(self.lexer.text(Token { start: from, end: gap.start, ..first }));
            from = gap.end;
        }
        text.push_str(self.lexer.text(Token { start: from, end: last.end, ..first }));
        quote(&text)
    }

    /// Reports a syntax error; beyond the limit, parsing ends.
    pub(super) fn report(&mut self, position: u32, message: &str) -> Result<(), Abort> {
        if self.errors >= self.errors_max {
            self.report_at(position, format!("Syntax error: More than {} syntax errors", self.errors_max));
            return Err(Abort);
        }
        self.errors = self.errors.saturating_add(1);
        self.report_at(position, format!("Syntax error: {message}"));
        Ok(())
    }

    /// Reports that a limit on the expression as a whole is exceeded; parsing ends.
    pub(super) fn report_limit(&mut self, message: String) -> Abort {
        self.issues.report_at(Location::NONE, message);
        Abort
    }

    fn report_at(&mut self, position: u32, message: String) {
        if self.issues.source().text().is_empty() {
            // cel-go: the end of an empty text is before its first column.
            self.issues.report_at(Location { line: 1, column: -1 }, message);
        } else {
            self.issues.report(position, message);
        }
    }
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r"))
}
