//! Who asks: client certificates, bearer tokens, or nobody in particular.
//!
//! A certificate's common name is the user and its organizations are the groups; tokens are a fixed table. What a user
//! may do is decided in [`authorization`](crate::authorization).

mod certificate;

use std::collections::HashMap;

use http::HeaderMap;
use http::header::AUTHORIZATION;

pub use self::certificate::subject;
use crate::status::{Failure, Result};

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    /// The name.
    pub name: String,
    /// The groups, `system:authenticated` or `system:unauthenticated` last.
    pub groups: Vec<String>,
}

impl User {
    /// A user who has shown who they are.
    #[must_use]
    pub fn authenticated(name: impl Into<String>, groups: &[&str]) -> Self {
        let mut groups: Vec<String> = groups.iter().map(|&group| group.to_owned()).collect();
        groups.push("system:authenticated".to_owned());
        Self { name: name.into(), groups }
    }

    /// One who has not.
    #[must_use]
    pub fn anonymous() -> Self {
        Self { name: "system:anonymous".to_owned(), groups: vec!["system:unauthenticated".to_owned()] }
    }

    /// Whether the user is in a group.
    #[must_use]
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|it| it == group)
    }
}

/// Tells users apart.
#[derive(Debug, Default)]
pub struct Authenticator {
    tokens: HashMap<String, User>,
}

impl Authenticator {
    /// Knows these tokens.
    #[must_use]
    pub fn new(tokens: HashMap<String, User>) -> Self {
        Self { tokens }
    }

    /// Reads lines of `token,user,uid,"group,group"`.
    #[must_use]
    pub fn parse_tokens(text: &str) -> HashMap<String, User> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines
            .filter_map(|line| {
                let (token, rest) = line.split_once(',')?;
                let (name, rest) = rest.split_once(',').unwrap_or((rest, ""));
                let groups = rest.split_once(',').map_or("", |(_, groups)| groups).trim_matches('"');
                let groups: Vec<&str> = groups.split(',').map(str::trim).filter(|it| !it.is_empty()).collect();
                Some((token.to_owned(), User::authenticated(name, &groups)))
            })
            .collect()
    }

    /// Who sent a request. `certificate` is the user that the connection's certificate names.
    ///
    /// # Errors
    /// 401 for an unknown token.
    pub fn authenticate(&self, headers: &HeaderMap, certificate: Option<&User>) -> Result<User> {
        if let Some(user) = certificate {
            return Ok(user.clone());
        }
        let Some(header) = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()) else {
            return Ok(User::anonymous());
        };
        let token = header.strip_prefix("Bearer ").map(str::trim);
        token.and_then(|token| self.tokens.get(token)).cloned().ok_or_else(Failure::unauthorized)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_users() {
        let authenticator = Authenticator::new(Authenticator::parse_tokens("t1,alice,1,\"dev,ops\"\n# no\nt2,bob\n"));
        let ask = |header: Option<&str>| {
            let mut headers = HeaderMap::new();
            header.map(|header| headers.insert(AUTHORIZATION, header.parse().unwrap()));
            authenticator.authenticate(&headers, None)
        };
        assert_eq!(ask(Some("Bearer t1")).unwrap().groups, ["dev", "ops", "system:authenticated"]);
        assert_eq!(ask(Some("Bearer t2")).unwrap().name, "bob");
        assert_eq!(ask(Some("Bearer no")).unwrap_err().code, 401);
        assert_eq!(ask(None).unwrap(), User::anonymous());
    }
}
