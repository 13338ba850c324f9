//! Authentication: client certificates, bearer tokens, or anonymous.
//!
//! A certificate's common name is the user and its organizations are the groups. Tokens come from a table,
//! which can be replaced while the server runs, and from service accounts ([`keys`], [`jwt`]). Impersonation is
//! implemented in `authorization::impersonation`; permissions in [`authorization`](crate::authorization).

mod bootstrap_tokens;
mod certificate;
pub mod jwt;
pub mod keys;
pub mod legacy_tokens;
pub(crate) mod service_accounts;
mod token_file;

use locks::RwLock;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ::clock::Clock;
use api::json::{Object, Value};
use api::well_known::{GROUP_AUTHENTICATED, GROUP_UNAUTHENTICATED, NAMESPACE_SYSTEM, USER_ANONYMOUS};
use http::HeaderMap;
use http::header::AUTHORIZATION;

pub use self::certificate::{UnreadableCertificate, subject};
use self::service_accounts::{ServiceAccounts, TokenRejection, VerifiedToken};
pub use self::token_file::TokenFileError;
use crate::resources;

/// Identity of a client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    /// The name.
    pub name: String,
    /// Distinguishes two users of the same name; may be empty.
    pub uid: String,
    /// The groups, `system:authenticated` or `system:unauthenticated` last.
    pub groups: Vec<String>,
    /// More about the user.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// An authenticated user.
    #[must_use]
    pub fn authenticated(name: impl Into<String>, groups: &[&str]) -> Self {
        let mut groups: Vec<String> = groups.iter().map(|&group| group.to_owned()).collect();
        groups.push(GROUP_AUTHENTICATED.to_owned());
        Self { name: name.into(), groups, ..Self::default() }
    }

    /// An unauthenticated user.
    #[must_use]
    pub fn anonymous() -> Self {
        let groups = vec![GROUP_UNAUTHENTICATED.to_owned()];
        Self { name: USER_ANONYMOUS.to_owned(), groups, ..Self::default() }
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

/// Reason to reject a token. Clients that use it receive only a 401.
pub(crate) const INVALID_TOKEN: &str = "invalid bearer token";

/// Warning for a token with too many spaces before it.
pub(crate) const SPACED_TOKEN: &str =
    "the provided Authorization header contains extra space before the bearer token, and is ignored";

/// The words of the first header of authorization, three at most; none if there is no such header.
fn words(headers: &HeaderMap) -> Result<Vec<&str>, TokenRejection> {
    let Some(header) = headers.get(AUTHORIZATION) else { return Ok(Vec::new()) };
    let header = header.to_str().map_err(|_| TokenRejection::for_good(INVALID_TOKEN))?;
    Ok(header.trim().splitn(3, ' ').collect())
}

/// The token of a request; none if it has no header for it, or one of another scheme. What follows the token is not read.
fn bearer_token(headers: &HeaderMap) -> Result<Option<&str>, TokenRejection> {
    Ok(match words(headers)?.as_slice() {
        [scheme, token, ..] if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() => Some(*token),
        _ => None,
    })
}

/// Whether the token in the header is ignored because of the spaces before it.
pub(crate) fn has_spaced_token(headers: &HeaderMap) -> bool {
    let words = words(headers).unwrap_or_default();
    matches!(words.as_slice(), [scheme, "", _] if scheme.eq_ignore_ascii_case("bearer"))
}

/// Authenticates clients.
pub struct Authenticator {
    tokens: RwLock<Arc<HashMap<String, User>>>,
    pub(crate) service_accounts: ServiceAccounts,
    /// Whether bootstrap tokens are accepted.
    accepts_bootstrap_tokens: bool,
    clock: Clock,
}

impl Authenticator {
    pub(crate) fn new(
        tokens: HashMap<String, User>,
        service_accounts: ServiceAccounts,
        accepts_bootstrap_tokens: bool,
        clock: Clock,
    ) -> Self {
        Self { tokens: RwLock::new(Arc::new(tokens)), service_accounts, accepts_bootstrap_tokens, clock }
    }

    /// The wanted audiences for which tokens of this server itself are good.
    fn own_audiences(&self, wanted: &[String]) -> Vec<String> {
        self.service_accounts.audiences().iter().filter(|it| wanted.contains(it)).cloned().collect()
    }

    fn bootstrap_user(&self, token: (&str, &str)) -> Option<User> {
        let name = format!("{}{}", bootstrap_tokens::NAME_PREFIX, token.0);
        let secret = self.service_accounts.object(resources::SECRETS, NAMESPACE_SYSTEM, &name)?;
        bootstrap_tokens::user(&secret, token, self.clock.now_seconds())
    }

    /// Replaces the table of tokens.
    pub(crate) fn set_tokens(&self, tokens: HashMap<String, User>) {
        *self.tokens.write() = Arc::new(tokens);
    }

    /// Reads lines of `token,user,uid,"group,group"`.
    ///
    /// # Errors
    /// [`TokenFileError`] with the first line that cannot be read.
    pub fn parse_tokens(text: &str) -> Result<HashMap<String, User>, TokenFileError> {
        token_file::parse(text)
    }

    /// Authenticates a request. `certificate` is the user of the connection's certificate.
    ///
    /// # Errors
    /// Why a token is not accepted. A header that cannot be read is not the same as none; one of another scheme is.
    pub(crate) fn authenticate<'a>(
        &self,
        headers: &HeaderMap,
        certificate: Option<&'a User>,
    ) -> Result<Cow<'a, User>, TokenRejection> {
        if let Some(user) = certificate {
            return Ok(Cow::Borrowed(user));
        }
        let Some(token) = bearer_token(headers)? else { return Ok(Cow::Owned(User::anonymous())) };
        self.verify(token, self.service_accounts.audiences()).map(|verified| Cow::Owned(verified.user))
    }

    /// Authenticates a token; returns the matching audiences of the wanted ones.
    ///
    /// # Errors
    /// The reason of the rejection, as in a review.
    pub(crate) fn verify(&self, token: &str, wanted: &[String]) -> Result<VerifiedToken, TokenRejection> {
        let tokens = self.tokens.read().clone();
        if let Some(user) = tokens.get(token) {
            // A token of the table is for the server itself.
            let audiences = self.own_audiences(wanted);
            if !audiences.is_empty() {
                return Ok(VerifiedToken { user: user.clone(), audiences });
            }
        }
        if self.accepts_bootstrap_tokens
            && let Some(token) = bootstrap_tokens::parse(token)
        {
            // The secret may have been created a moment ago.
            let refused = || TokenRejection { message: INVALID_TOKEN.to_owned(), by_objects: true };
            let (user, audiences) = (self.bootstrap_user(token), self.own_audiences(wanted));
            let user = user.filter(|_| !audiences.is_empty()).ok_or_else(refused)?;
            return Ok(VerifiedToken { user, audiences });
        }
        let verified = self.service_accounts.verify(token, wanted, self.clock.now_seconds())?;
        verified.ok_or_else(|| TokenRejection::for_good(INVALID_TOKEN))
    }
}
