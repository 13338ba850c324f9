//! Regular expressions as CEL and Kubernetes mean them: the syntax, errors and matches of Go's `regexp` package.
//!
//! [`Regex::new`] only parses, in microseconds; automata are built at first use and shared by all clones.
//! Follows Go 1.26. Which functions CEL offers on top of this is left to the libraries.
//!
//! ```
//! use celplane_cel::regex::Regex;
//!
//! let version = Regex::new(r"^v([0-9]+)\.([0-9]+)")?;
//! assert!(version.is_match("v1.37.2")?);
//! let captures = version.captures("v1.37.2")?.unwrap();
//! assert_eq!(captures.get(2), Some("37"));
//! assert_eq!(version.replace("v1.37.2", r"\2 of \1", None)?, "37 of 1.2");
//!
//! let error = Regex::new("(?=a)").unwrap_err();
//! assert_eq!(error.to_string(), "error parsing regexp: invalid or unsupported Perl syntax: `(?=`");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod engine;
mod error;
mod hir;
mod parser;
mod program;
mod replace;
mod tree;
mod unicode;
mod weight;

use std::fmt;
use std::iter::FusedIterator;
use std::ops::Range;
use std::sync::Arc;

pub use error::{Error, ErrorKind};
pub use replace::ReplaceError;

use engine::{Engine, Engines, Slots, TooLarge};

/// A checked pattern, ready to search with. Clones share their automata.
///
/// Searches fail only when there are absurdly many groups or repeated characters, with an error of kind
/// [`ErrorKind::TooLarge`]. The same pattern then fails on every text.
#[derive(Clone)]
pub struct Regex {
    inner: Arc<Inner>,
}

struct Inner {
    pattern: Box<str>,
    engines: Engines,
}

impl Regex {
    /// Parses a pattern. Cheap: linear in the pattern, and nothing is built yet.
    pub fn new(pattern: &str) -> Result<Self, Error> {
        let engines = Engines::new(parser::parse(pattern)?);
        Ok(Self { inner: Arc::new(Inner { pattern: pattern.into(), engines }) })
    }

    /// The pattern as it was given.
    pub fn pattern(&self) -> &str {
        &self.inner.pattern
    }

    /// The number of capturing groups, without the whole match.
    pub fn group_count(&self) -> usize {
        self.inner.engines.parsed().group_names.len()
    }

    /// The names of the groups from 1 on. A name may occur twice.
    pub fn group_names(&self) -> impl ExactSizeIterator<Item = Option<&str>> {
        self.inner.engines.parsed().group_names.iter().map(Option::as_deref)
    }

    /// Whether there is a match anywhere in the text.
    pub fn is_match(&self, text: &str) -> Result<bool, Error> {
        self.inner.engines.is_match(text).map_err(|TooLarge| self.too_large())
    }

    /// The bytes of the leftmost match; among those that start there, the one that a backtracking search finds first.
    pub fn find(&self, text: &str) -> Result<Option<Range<usize>>, Error> {
        let engine = self.inner.engines.finder().map_err(|TooLarge| self.too_large())?;
        Ok(engine.find_at(text, 0).map(|(start, end)| start..end))
    }

    /// All matches that do not overlap. An empty match right behind the previous match does not count.
    pub fn find_iter<'t>(&self, text: &'t str) -> Result<FindIter<'_, 't>, Error> {
        let engine = self.inner.engines.finder().map_err(|TooLarge| self.too_large())?;
        Ok(FindIter { engine, text, position: Position::default() })
    }

    /// The groups of the leftmost match.
    pub fn captures<'t>(&self, text: &'t str) -> Result<Option<Captures<'t>>, Error> {
        let engine = self.inner.engines.capturer().map_err(|TooLarge| self.too_large())?;
        Ok(engine.captures_at(text, 0).map(|slots| Captures { text, slots }))
    }

    /// The groups of all matches that do not overlap. An empty match right behind the previous match does not count.
    pub fn captures_iter<'t>(&self, text: &'t str) -> Result<CapturesIter<'_, 't>, Error> {
        let engine = self.inner.engines.capturer().map_err(|TooLarge| self.too_large())?;
        Ok(CapturesIter { engine, text, position: Position::default() })
    }

    fn too_large(&self) -> Error {
        Error::new(ErrorKind::TooLarge, self.pattern())
    }
}

impl fmt::Debug for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Regex").field(&self.pattern()).finish()
    }
}

impl fmt::Display for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.pattern())
    }
}

/// One match with its groups.
#[derive(Clone, Debug)]
pub struct Captures<'t> {
    text: &'t str,
    slots: Slots,
}

impl<'t> Captures<'t> {
    /// The bytes of the whole match.
    pub fn range(&self) -> Range<usize> {
        self.group_range(0).unwrap_or_default()
    }

    /// The bytes of a group; 0 is the whole match. `None` when the group took no part in the match, or does not exist.
    pub fn group_range(&self, index: usize) -> Option<Range<usize>> {
        let start = index.checked_mul(2)?;
        Some((*self.slots.get(start)?)?..(*self.slots.get(start.checked_add(1)?)?)?)
    }

    /// The text of a group; 0 is the whole match. `None` when the group took no part in the match, or does not exist.
    pub fn get(&self, index: usize) -> Option<&'t str> {
        self.text.get(self.group_range(index)?)
    }
}

/// The iterator of [`Regex::find_iter`].
#[derive(Clone, Debug)]
pub struct FindIter<'r, 't> {
    engine: &'r Engine,
    text: &'t str,
    position: Position,
}

impl Iterator for FindIter<'_, '_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        loop {
            let (start, end) = self.engine.find_at(self.text, self.position.next)?;
            if self.position.advance(self.text, start, end) {
                return Some(start..end);
            }
        }
    }
}

impl FusedIterator for FindIter<'_, '_> {}

/// The iterator of [`Regex::captures_iter`].
#[derive(Clone, Debug)]
pub struct CapturesIter<'r, 't> {
    engine: &'r Engine,
    text: &'t str,
    position: Position,
}

impl<'t> Iterator for CapturesIter<'_, 't> {
    type Item = Captures<'t>;

    fn next(&mut self) -> Option<Captures<'t>> {
        loop {
            let slots = self.engine.captures_at(self.text, self.position.next)?;
            let captures = Captures { text: self.text, slots };
            let Range { start, end } = captures.range();
            if self.position.advance(self.text, start, end) {
                return Some(captures);
            }
        }
    }
}

impl FusedIterator for CapturesIter<'_, '_> {}

/// Position of a search for all matches.
#[derive(Clone, Debug, Default)]
struct Position {
    next: usize,
    last_end: Option<usize>,
}

impl Position {
    /// Moves behind the match from `start` to `end`, and returns whether the match counts.
    fn advance(&mut self, text: &str, start: usize, end: usize) -> bool {
        let counts = start < end || self.last_end != Some(start);
        self.last_end = Some(end);
        self.next = end;
        if start == end {
            // One character on; behind the end of the text there is nothing to find.
            let c = text.get(end..).and_then(|rest| rest.chars().next());
            self.next = end.saturating_add(c.map_or(1, char::len_utf8));
        }
        counts
    }
}

#[cfg(test)]
mod tests;
