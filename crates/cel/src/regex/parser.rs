//! Pattern → tree, with Go's flags for Perl syntax.
//!
//! Follows `regexp/syntax/parse.go` of Go 1.26: the accepted patterns, the first error, and its fragment.
//! Alternatives are not factored as in Go; that affects only patterns very close to the size limits.

mod atoms;
mod stack;

use regex_syntax::hir::Look;

use super::error::{Error, ErrorKind};
use super::tree::{NodeId, NodeKind, Tree};
use super::unicode;

/// The largest count of a repetition, alone or multiplied with the counts inside it.
const REPEAT_MAX: u32 = 1000;

/// A parsed pattern: its tree, the root of it, and the names of its groups (without the whole match).
pub(super) struct ParsedPattern {
    pub(super) tree: Tree,
    pub(super) root: NodeId,
    pub(super) group_names: Vec<Option<Box<str>>>,
}

#[derive(Debug, Clone, Copy)]
struct Flags {
    fold: bool,
    dot_matches_newline: bool,
    multi_line: bool,
    swap_greed: bool,
}

struct Parser<'p> {
    pattern: &'p str,
    flags: Flags,
    stack: Vec<stack::Item>,
    tree: Tree,
    group_names: Vec<Option<Box<str>>>,
    budget: stack::Budget,
}

/// Parses a whole pattern. Linear in its length.
pub(super) fn parse(pattern: &str) -> Result<ParsedPattern, Error> {
    let mut parser = Parser {
        pattern,
        flags: Flags { fold: false, dot_matches_newline: false, multi_line: false, swap_greed: false },
        stack: Vec::with_capacity(8),
        tree: Tree { nodes: Vec::with_capacity(pattern.len().min(32)), ..Tree::default() },
        group_names: Vec::new(),
        budget: stack::Budget::default(),
    };
    let mut rest = pattern;
    let mut last_repeat = None;
    while let Some(c) = rest.chars().next() {
        let after = skip(rest, c.len_utf8());
        let mut repeat = None;
        rest = match c {
            '(' if after.starts_with('?') => parser.perl_flags(rest)?,
            '(' => {
                parser.open_capture(None)?;
                after
            }
            '|' => {
                parser.vertical_bar()?;
                after
            }
            ')' => {
                parser.close()?;
                after
            }
            '^' => {
                let look = if parser.flags.multi_line { Look::StartLF } else { Look::Start };
                parser.push_leaf(NodeKind::Look(look))?;
                after
            }
            '$' => {
                let look = if parser.flags.multi_line { Look::EndLF } else { Look::End };
                parser.push_leaf(NodeKind::Look(look))?;
                after
            }
            '.' => {
                let all = parser.flags.dot_matches_newline;
                parser.push_leaf(if all { NodeKind::AnyChar } else { NodeKind::AnyCharNotNewline })?;
                after
            }
            '[' => parser.bracket_class(rest)?,
            '*' | '+' | '?' => {
                repeat = Some(rest);
                parser.repeat(c, (u32::from(c == '+'), (c == '?').then_some(1)), rest, after, last_repeat)?
            }
            '{' => match atoms::counts(rest) {
                Some((counts, after)) => {
                    let fragment = consumed(rest, after);
                    let counts = counts.ok_or_else(|| Error::new(ErrorKind::InvalidRepeatSize, fragment))?;
                    repeat = Some(rest);
                    parser.repeat(c, counts, rest, after, last_repeat)?
                }
                None => {
                    parser.push_literal('{')?;
                    after
                }
            },
            '\\' => parser.escape(rest)?,
            _ => {
                parser.push_literal(c)?;
                after
            }
        };
        last_repeat = repeat;
    }
    parser.finish()
}

impl Parser<'_> {
    /// Repeats the item on top of the stack; `before` starts at the operator, `after` behind it.
    fn repeat<'r>(
        &mut self,
        operator: char,
        (min, max): (u32, Option<u32>),
        before: &'r str,
        after: &'r str,
        last_repeat: Option<&str>,
    ) -> Result<&'r str, Error> {
        let lazy = after.strip_prefix('?');
        let after = lazy.unwrap_or(after);
        if let Some(last) = last_repeat {
            return Err(Error::new(ErrorKind::InvalidRepeatOperator, consumed(last, after)));
        }
        let greedy = lazy.is_some() == self.flags.swap_greed;
        let fragment = consumed(before, after);
        let counted = operator == '{';
        let repeats = self.push_repeat(operator, min, max, greedy, fragment)?;
        if counted && (min >= 2 || max.is_some_and(|max| max >= 2)) && repeats > REPEAT_MAX {
            return Err(Error::new(ErrorKind::InvalidRepeatSize, fragment));
        }
        Ok(after)
    }

    /// Parses text that starts with `(?`: a named group, a group with flags, or flags alone.
    fn perl_flags<'r>(&mut self, text: &'r str) -> Result<&'r str, Error> {
        // Like Go, look for a name only when something follows the bracket.
        let named = |open: &str| text.strip_prefix(open).filter(|name| !name.is_empty());
        if let Some(name) = named("(?P<").or_else(|| named("(?<")) {
            let Some((name, rest)) = name.split_once('>') else {
                return Err(Error::new(ErrorKind::InvalidNamedCapture, text));
            };
            if name.is_empty() || !name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric()) {
                return Err(Error::new(ErrorKind::InvalidNamedCapture, consumed(text, rest)));
            }
            self.open_capture(Some(name))?;
            return Ok(rest);
        }

        let mut rest = skip(text, "(?".len());
        let mut flags = self.flags;
        let mut negative = false;
        let mut any_flag = false;
        while let Some(c) = rest.chars().next() {
            rest = skip(rest, c.len_utf8());
            match c {
                'i' => flags.fold = !negative,
                'm' => flags.multi_line = !negative,
                's' => flags.dot_matches_newline = !negative,
                'U' => flags.swap_greed = !negative,
                '-' if !negative => {
                    negative = true;
                    any_flag = false;
                    continue;
                }
                ':' | ')' if any_flag || !negative => {
                    if c == ':' {
                        self.open_group()?;
                    }
                    self.flags = flags;
                    return Ok(rest);
                }
                _ => break,
            }
            any_flag = true;
        }
        Err(Error::new(ErrorKind::InvalidPerlOperator, consumed(text, rest)))
    }

    /// Parses text that starts with `\`, outside of brackets.
    fn escape<'r>(&mut self, text: &'r str) -> Result<&'r str, Error> {
        let escaped = skip(text, "\\".len());
        let c = escaped.chars().next();
        let rest = skip(escaped, c.map_or(0, char::len_utf8));
        let kind = match c {
            Some('A') => NodeKind::Look(Look::Start),
            Some('z') => NodeKind::Look(Look::End),
            Some('b') => NodeKind::Look(Look::WordAscii),
            Some('B') => NodeKind::Look(Look::WordAsciiNegate),
            Some('C') => return Err(Error::new(ErrorKind::InvalidEscape, consumed(text, rest))),
            Some('Q') => {
                let (literal, rest) = rest.split_once("\\E").unwrap_or((rest, ""));
                for c in literal.chars() {
                    self.push_literal(c)?;
                }
                return Ok(rest);
            }
            _ => {
                if let Some((item, rest)) = atoms::class_escape(text)? {
                    let start = self.tree.items.len();
                    self.tree.items.push(item);
                    self.push_class(start, false)?;
                    return Ok(rest);
                }
                let (code, rest) = atoms::character_escape(text)?;
                self.push_code_point(code)?;
                return Ok(rest);
            }
        };
        self.push_leaf(kind)?;
        Ok(rest)
    }

    /// Parses text that starts with `[`.
    fn bracket_class<'r>(&mut self, text: &'r str) -> Result<&'r str, Error> {
        let mut rest = skip(text, "[".len());
        let negated = rest.starts_with('^');
        rest = rest.strip_prefix('^').unwrap_or(rest);
        let start = self.tree.items.len();
        let mut first = true;
        loop {
            // A leading `]` is an ordinary character.
            if let Some(after) = rest.strip_prefix(']').filter(|_| !first) {
                self.push_class(start, negated)?;
                return Ok(after);
            }
            first = false;
            let (item, after) = match atoms::named_class(rest)? {
                Some(found) => found,
                None => match atoms::class_escape(rest)? {
                    Some(found) => found,
                    None => atoms::class_range(rest, text)?,
                },
            };
            self.tree.items.push(item);
            rest = after;
        }
    }

    /// Pushes a class of the items from `start` on.
    fn push_class(&mut self, start: usize, negated: bool) -> Result<(), Error> {
        let end = self.tree.items.len();
        self.push_leaf(NodeKind::Class { start, end, negated, fold: self.flags.fold })
    }

    /// Pushes the character with the given number; surrogates are characters to Go, but occur in no text.
    fn push_code_point(&mut self, code: u32) -> Result<(), Error> {
        match char::from_u32(code) {
            Some(c) => self.push_literal(c),
            None => self.push_leaf(NodeKind::Never),
        }
    }
}

/// Returns the part of `before` that precedes `after`, its tail.
fn consumed<'a>(before: &'a str, after: &str) -> &'a str {
    before.get(..before.len().saturating_sub(after.len())).unwrap_or(before)
}

/// `text` without its first `bytes`.
fn skip(text: &str, bytes: usize) -> &str {
    text.get(bytes..).unwrap_or_default()
}
