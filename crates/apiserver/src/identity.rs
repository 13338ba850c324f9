//! Who asks: client certificates, bearer tokens, or nobody in particular.
//!
//! A certificate's common name is the user and its organizations are the groups. Tokens are those of a table, which can
//! be replaced while the server runs, and those of service accounts ([`keys`], [`jwt`]). Who may act as someone else is
//! decided in `impersonation`; what a user may do, in [`authorization`](crate::authorization).

mod certificate;
pub(crate) mod impersonation;
pub mod jwt;
pub mod keys;
pub mod legacy_tokens;
pub(crate) mod service_accounts;
mod token_file;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use api::json::{Object, Value};
use http::HeaderMap;
use http::header::AUTHORIZATION;

pub use self::certificate::{UnreadableCertificate, subject};
use self::service_accounts::{Refused, ServiceAccounts, Verified};
pub use self::token_file::TokenFileError;
use crate::clock;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    /// The name.
    pub name: String,
    /// What tells two users of one name apart, may be empty.
    pub uid: String,
    /// The groups, `system:authenticated` or `system:unauthenticated` last.
    pub groups: Vec<String>,
    /// More about the user.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A user who has shown who they are.
    #[must_use]
    pub fn authenticated(name: impl Into<String>, groups: &[&str]) -> Self {
        let mut groups: Vec<String> = groups.iter().map(|&group| group.to_owned()).collect();
        groups.push("system:authenticated".to_owned());
        Self { name: name.into(), groups, ..Self::default() }
    }

    /// One who has not.
    #[must_use]
    pub fn anonymous() -> Self {
        let groups = vec!["system:unauthenticated".to_owned()];
        Self { name: "system:anonymous".to_owned(), groups, ..Self::default() }
    }

    /// Whether the user is in a group.
    #[must_use]
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|it| it == group)
    }

    /// The user as reviews show them.
    #[must_use]
    pub(crate) fn to_value(&self) -> Value {
        let texts = |list: &[String]| Value::Array(list.iter().map(|it| it.as_str().into()).collect());
        let extra: Object = self.extra.iter().map(|(key, values)| (key.as_str(), texts(values))).collect();
        let mut user = Object::new();
        user.insert("username", self.name.as_str());
        user.insert("uid", self.uid.as_str());
        user.insert("groups", texts(&self.groups));
        if !extra.is_empty() {
            user.insert("extra", extra);
        }
        Value::Object(user)
    }
}

/// Why a token is not accepted. Clients that use it are only told that they are not authorized.
pub(crate) const INVALID_TOKEN: &str = "invalid bearer token";

/// What who puts too many spaces before a token should know.
pub(crate) const SPACED_TOKEN: &str =
    "the provided Authorization header contains extra space before the bearer token, and is ignored";

/// The words of the first header of authorization, three at most; none if there is no such header.
fn words(headers: &HeaderMap) -> Result<Vec<&str>, Refused> {
    let Some(header) = headers.get(AUTHORIZATION) else { return Ok(Vec::new()) };
    let header = header.to_str().map_err(|_| Refused::for_good(INVALID_TOKEN))?;
    Ok(header.trim().splitn(3, ' ').collect())
}

/// The token of a request; none if it has no header for it, or one of another scheme. What follows the token is not read.
fn bearer_token(headers: &HeaderMap) -> Result<Option<&str>, Refused> {
    Ok(match words(headers)?.as_slice() {
        [scheme, token, ..] if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() => Some(*token),
        _ => None,
    })
}

/// Whether a token is not read because of the spaces before it.
pub(crate) fn has_spaced_token(headers: &HeaderMap) -> bool {
    let words = words(headers).unwrap_or_default();
    matches!(words.as_slice(), [scheme, "", _] if scheme.eq_ignore_ascii_case("bearer"))
}

/// Tells users apart.
pub struct Authenticator {
    tokens: RwLock<Arc<HashMap<String, User>>>,
    pub(crate) service_accounts: ServiceAccounts,
}

impl Authenticator {
    pub(crate) fn new(tokens: HashMap<String, User>, service_accounts: ServiceAccounts) -> Self {
        Self { tokens: RwLock::new(Arc::new(tokens)), service_accounts }
    }

    /// Replaces the table of tokens.
    pub(crate) fn set_tokens(&self, tokens: HashMap<String, User>) {
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tokens);
    }

    /// Reads lines of `token,user,uid,"group,group"`.
    ///
    /// # Errors
    /// [`TokenFileError`] with the first line that cannot be read.
    pub fn parse_tokens(text: &str) -> Result<HashMap<String, User>, TokenFileError> {
        token_file::parse(text)
    }

    /// Who sent a request. `certificate` is the user that the connection's certificate names.
    ///
    /// # Errors
    /// Why a token is not accepted. A header that cannot be read is not the same as none; one of another scheme is.
    pub(crate) fn authenticate<'a>(
        &self,
        headers: &HeaderMap,
        certificate: Option<&'a User>,
    ) -> Result<Cow<'a, User>, Refused> {
        if let Some(user) = certificate {
            return Ok(Cow::Borrowed(user));
        }
        let Some(token) = bearer_token(headers)? else { return Ok(Cow::Owned(User::anonymous())) };
        self.verify(token, self.service_accounts.audiences()).map(|verified| Cow::Owned(verified.user))
    }

    /// Who a token is, and for which of the wanted audiences it is good.
    ///
    /// # Errors
    /// Why it is not accepted, as a review says it.
    pub(crate) fn verify(&self, token: &str, wanted: &[String]) -> Result<Verified, Refused> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(user) = tokens.get(token) {
            // A token of the table is for the server itself.
            let own = self.service_accounts.audiences().iter();
            let audiences: Vec<String> = own.filter(|it| wanted.contains(it)).cloned().collect();
            if !audiences.is_empty() {
                return Ok(Verified { user: user.clone(), audiences });
            }
        }
        let verified = self.service_accounts.verify(token, wanted, clock::now())?;
        verified.ok_or_else(|| Refused::for_good(INVALID_TOKEN))
    }
}
