//! Replacing matches by text with `\0` to `\9` in it, as cel-go's `regex.replace` does.

use crate::value::bounds::TEXT_BYTES_MAX;

use super::{Captures, Error, Regex};

/// A reason why a replacement failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplaceError {
    /// The pattern is too large.
    #[error(transparent)]
    Pattern(#[from] Error),
    /// The result is too long.
    #[error("result too long")]
    TooLong,
    /// The replacement ends in a lone backslash.
    #[error("invalid replacement string: '{0}' \\ not allowed at end")]
    TrailingBackslash(Box<str>),
    /// A backslash before something that is neither a digit nor a backslash.
    #[error("invalid replacement string: '{0}' \\ must be followed by a digit or \\")]
    InvalidEscape(Box<str>),
    /// A group that the pattern does not have.
    #[error("replacement string references group {group} but regex has only {groups} group(s)")]
    UnknownGroup {
        /// The number in the replacement.
        group: u32,
        /// The groups of the pattern.
        groups: usize,
    },
}

impl Regex {
    /// Replaces the first `limit` matches, or all of them.
    ///
    /// In the replacement, `\1` is the text of group 1, `\0` the whole match, `\\` a backslash. A faulty
    /// replacement is reported only when there is a match.
    pub fn replace(&self, text: &str, replacement: &str, limit: Option<usize>) -> Result<String, ReplaceError> {
        let mut replaced = String::with_capacity(text.len());
        let mut copied = 0;
        for captures in self.captures_iter(text)?.take(limit.unwrap_or(usize::MAX)) {
            let matched = captures.range();
            replaced.push_str(text.get(copied..matched.start).unwrap_or_default());
            self.expand(replacement, &captures, &mut replaced)?;
            copied = matched.end;
            if replaced.len() > TEXT_BYTES_MAX {
                return Err(ReplaceError::TooLong);
            }
        }
        replaced.push_str(text.get(copied..).unwrap_or_default());
        Ok(replaced)
    }

    fn expand(&self, replacement: &str, captures: &Captures<'_>, output: &mut String) -> Result<(), ReplaceError> {
        let mut chars = replacement.chars();
        while let Some(c) = chars.next() {
            if c != '\\' {
                output.push(c);
                continue;
            }
            match chars.next() {
                None => return Err(ReplaceError::TrailingBackslash(replacement.into())),
                Some('\\') => output.push('\\'),
                Some(escaped) => {
                    let group = escaped.to_digit(10).ok_or_else(|| ReplaceError::InvalidEscape(replacement.into()))?;
                    let groups = self.group_count();
                    let index = usize::try_from(group).unwrap_or(usize::MAX);
                    if index > groups {
                        return Err(ReplaceError::UnknownGroup { group, groups });
                    }
                    output.push_str(captures.get(index).unwrap_or_default());
                }
            }
        }
        Ok(())
    }
}
