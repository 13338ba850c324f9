//! The file of static tokens: comma-separated lines of token, user, uid and, as one quoted field, groups.
//!
//! A line that cannot be read is an error: half of a line may name someone else. Follows Kubernetes'
//! `authentication/token/tokenfile`; lines that start with `#` are left out.

use std::collections::HashMap;

use super::User;

/// A reason to reject a token file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenFileError {
    /// A line has too few columns.
    #[error("line {line} must have at least 3 columns (token, user name, user uid), found {found}")]
    TooShort {
        /// Counted from 1.
        line: usize,
        /// Number of columns.
        found: usize,
    },
    /// A quote stands where it cannot, or has no end.
    #[error("line {line} has a quote that is not closed or not at the end of its field")]
    Quote {
        /// Counted from 1.
        line: usize,
    },
    /// A line without a user name.
    #[error("line {line} has an empty token or user name")]
    Nobody {
        /// Counted from 1.
        line: usize,
    },
}

pub(super) fn parse(text: &str) -> Result<HashMap<String, User>, TokenFileError> {
    let mut tokens = HashMap::new();
    for (index, text) in text.lines().enumerate() {
        let line = index.saturating_add(1);
        if text.trim().is_empty() || text.trim_start().starts_with('#') {
            continue;
        }
        let fields = split(text).ok_or(TokenFileError::Quote { line })?;
        let [token, name, uid, rest @ ..] = fields.as_slice() else {
            return Err(TokenFileError::TooShort { line, found: fields.len() });
        };
        if token.is_empty() || name.is_empty() {
            return Err(TokenFileError::Nobody { line });
        }
        let groups = rest.first().map(String::as_str).unwrap_or_default();
        let groups: Vec<&str> = groups.split(',').map(str::trim).filter(|group| !group.is_empty()).collect();
        tokens.insert(token.clone(), User { uid: uid.clone(), ..User::authenticated(name.as_str(), &groups) });
    }
    Ok(tokens)
}

/// The fields of a line; none if its quotes make no sense.
fn split(line: &str) -> Option<Vec<String>> {
    let mut fields = Vec::new();
    let mut rest = line.trim();
    loop {
        rest = rest.trim_start();
        let (field, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_field(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (field, after) = rest.split_at_checked(end)?;
                if field.contains('"') {
                    return None;
                }
                (field.trim().to_owned(), after)
            }
        };
        fields.push(field);
        let after = after.trim_start();
        match after.strip_prefix(',') {
            Some(after) => rest = after,
            None => return after.is_empty().then_some(fields),
        }
    }
}

/// A field up to its closing quote, and what follows it. Two quotes in a row stand for one.
fn quoted_field(text: &str) -> Option<(String, &str)> {
    let mut field = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once('"')?;
        field.push_str(before);
        match after.strip_prefix('"') {
            Some(after) => {
                field.push('"');
                rest = after;
            }
            None => return Some((field, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_users() {
        let tokens = parse("t1,alice,1,\"dev,ops\"\n# no\n\nt2,bob,,\nt3,\"a, b\",3\n").unwrap();
        assert_eq!(tokens["t1"].groups, ["dev", "ops", "system:authenticated"]);
        assert_eq!(tokens["t1"].uid, "1");
        assert_eq!((tokens["t2"].name.as_str(), tokens["t2"].uid.as_str()), ("bob", ""));
        assert_eq!(tokens["t3"].name, "a, b");
        assert_eq!(tokens.len(), 3);
    }

    #[test]
    fn invalid_token_file_is_rejected() {
        assert_eq!(parse("t,bob\n"), Err(TokenFileError::TooShort { line: 1, found: 2 }));
        assert_eq!(parse("\nt,\"bob,1\n"), Err(TokenFileError::Quote { line: 2 }));
        assert_eq!(parse("t,bo\"b\",1\n"), Err(TokenFileError::Quote { line: 1 }));
        assert_eq!(parse("t,\"bob\"x,1\n"), Err(TokenFileError::Quote { line: 1 }));
        assert_eq!(parse(",bob,1\n"), Err(TokenFileError::Nobody { line: 1 }));
        assert_eq!(parse("t,,1\n"), Err(TokenFileError::Nobody { line: 1 }));
    }
}
