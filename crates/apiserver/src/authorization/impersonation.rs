//! Impersonation: authorization and the resulting identity.
//!
//! Each mode requires its own permissions. The constrained ones require two: to use this verb while
//! impersonating (`impersonate-on:MODE:VERB`), and to impersonate that user (`impersonate:MODE`); the oldest
//! one requires only the second, with the verb `impersonate`. The first mode that allows it wins; if none does,
//! the first rejection is returned. Follows Kubernetes' `endpoints/filters/impersonation` (KEP-5284).

use locks::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use api::go_text::quote;
use api::well_known::{GROUP_AUTHENTICATED, GROUP_MASTERS, GROUP_NODES, GROUP_UNAUTHENTICATED, USER_ANONYMOUS};
use http::{HeaderMap, HeaderValue};
use percent_encoding::percent_decode_str;

use super::{Authorizer, Request};
use crate::identity::User;
use crate::identity::service_accounts::{account_user, split_user};
use crate::wire::request::Target;
use crate::wire::status::{Failure, Result};

const AUTHENTICATION: &str = "authentication.k8s.io";
const EXTRA_PREFIX: &str = "impersonate-extra-";

/// This many checks of one kind are worth asking for all of them at once first.
const MANY: usize = 4;

/// Returns the user that the headers of a request impersonate; groups are as given.
///
/// # Errors
/// 400 if they name something but no user.
pub(crate) fn wanted(headers: &HeaderMap) -> Result<Option<User>> {
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(None);
    }
    let first = |name: &str| headers.get(name).map(|value| text(name, value)).transpose();
    let mut user = User {
        name: first("impersonate-user")?.unwrap_or_default(),
        uid: first("impersonate-uid")?.unwrap_or_default(),
        ..User::default()
    };
    let groups = headers.get_all("impersonate-group").iter();
    user.groups = groups.map(|value| text("impersonate-group", value)).collect::<Result<_>>()?;
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix(EXTRA_PREFIX) else { continue };
        let key = unescape(key).ok_or_else(|| unreadable(name.as_str()))?;
        user.extra.entry(key).or_default().push(text(name.as_str(), value)?);
    }
    if !user.name.is_empty() {
        return Ok(Some(user));
    }
    if user.uid.is_empty() && user.groups.is_empty() && user.extra.is_empty() {
        return Ok(None);
    }
    Err(Failure::bad_request(format!("requested {} without impersonating a user name", go_syntax(&user))))
}

/// Returns a header's value. An unreadable one is rejected: treating it as absent would run the request as its
/// sender.
fn text(name: &str, value: &HeaderValue) -> Result<String> {
    String::from_utf8(value.as_bytes().to_vec()).map_err(|_| unreadable(name))
}

fn unreadable(name: &str) -> Box<Failure> {
    Failure::bad_request(format!("the header {name} is not UTF-8"))
}

/// The key of an extra value; one with a broken escape stands for itself. None if it is not UTF-8.
fn unescape(key: &str) -> Option<String> {
    let broken = |(at, _): (usize, &str)| {
        let digits = key.get(at.saturating_add(1)..at.saturating_add(3));
        !digits.is_some_and(|digits| digits.bytes().all(|it| it.is_ascii_hexdigit()))
    };
    if key.match_indices('%').any(broken) {
        return Some(key.to_owned());
    }
    Some(percent_decode_str(key).decode_utf8().ok()?.into_owned())
}

/// The user as Go prints its struct.
fn go_syntax(user: &User) -> String {
    let list = |list: &[String]| {
        let items: Vec<String> = list.iter().map(|it| quote(it)).collect();
        format!("[]string{{{}}}", items.join(", "))
    };
    let groups = if user.groups.is_empty() { "[]string(nil)".to_owned() } else { list(&user.groups) };
    let mut extra = String::from("map[string][]string");
    if user.extra.is_empty() {
        extra.push_str("(nil)");
    } else {
        let entries: Vec<String> =
            user.extra.iter().map(|(key, values)| format!("{}:{}", quote(key), list(values))).collect();
        // Writing to a string does not fail.
        let _ = write!(extra, "{{{}}}", entries.join(", "));
    }
    let (name, uid) = (quote(&user.name), quote(&user.uid));
    format!("&user.DefaultInfo{{Name:{name}, UID:{uid}, Groups:{groups}, Extra:{extra}}}")
}

/// A way of acting as someone else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A service account as the node that it runs on.
    AssociatedNode,
    /// Any node.
    ArbitraryNode,
    /// A service account.
    ServiceAccount,
    /// Anyone else.
    UserInfo,
    /// Any user, group or account: the mode of Kubernetes before constrained impersonation.
    Legacy,
}

const MODES: [Mode; 5] =
    [Mode::AssociatedNode, Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy];

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "associated-node",
            Mode::ArbitraryNode => "arbitrary-node",
            Mode::ServiceAccount => "serviceaccount",
            Mode::UserInfo => "user-info",
            Mode::Legacy => "",
        }
    }

    /// The verb of the right to act as a user.
    fn verb(self) -> String {
        match self {
            Mode::Legacy => "impersonate".to_owned(),
            mode => format!("impersonate:{}", mode.name()),
        }
    }

    fn is_constrained(self) -> bool {
        self != Mode::Legacy
    }

    /// Whether the mode is about such a user at all.
    fn applies(self, requester: &User, wanted: &User) -> bool {
        let only_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = node_of(&wanted.name);
        match self {
            Mode::AssociatedNode => {
                let own = requester.extra.get("authentication.kubernetes.io/node-name").map(Vec::as_slice);
                let is_own = matches!((own, node), (Some([own]), Some(node)) if own == node);
                only_name && is_own && split_user(&requester.name).is_some()
            }
            Mode::ArbitraryNode => only_name && node.is_some(),
            Mode::ServiceAccount => only_name && split_user(&wanted.name).is_some(),
            Mode::UserInfo => node.is_none() && split_user(&wanted.name).is_none(),
            Mode::Legacy => true,
        }
    }
}

fn node_of(user: &str) -> Option<&str> {
    user.strip_prefix("system:node:").filter(|name| api::names::is_dns_subdomain(name))
}

/// Maximum number of cached users.
const REMEMBERED_MAX: usize = 10_000;

/// The mode that last allowed each user to impersonate. It is tried first, and if all modes reject, its error is returned.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<HashMap<String, Mode>>);

impl Memory {
    fn of(&self, requester: &User) -> Option<Mode> {
        self.0.lock().get(&requester.name).copied()
    }

    fn remember(&self, requester: &User, mode: Mode) {
        let mut modes = self.0.lock();
        if modes.len() >= REMEMBERED_MAX {
            modes.clear();
        }
        modes.insert(requester.name.clone(), mode);
    }
}

/// The user that `requester` acts as for one request.
///
/// # Errors
/// 403 if they may not.
pub(crate) fn impersonate(
    authorizer: &Authorizer,
    memory: &Memory,
    requester: &User,
    wanted: &User,
    request: Request<'_>,
) -> Result<User> {
    let last = memory.of(requester);
    let others = MODES.into_iter().filter(|mode| Some(*mode) != last);
    let mut refusal = None;
    for mode in last.into_iter().chain(others).filter(|mode| mode.applies(requester, wanted)) {
        match (Check { authorizer, requester, mode }).run(wanted, request) {
            Ok(user) => {
                if Some(mode) != last {
                    memory.remember(requester, mode);
                }
                return Ok(user);
            }
            Err(failure) => refusal = refusal.or(Some(failure)),
        }
    }
    Err(refusal.unwrap_or_else(|| Failure::internal("all impersonation modes failed")))
}

struct Check<'a> {
    authorizer: &'a Authorizer,
    requester: &'a User,
    mode: Mode,
}

impl Check<'_> {
    fn run(&self, wanted: &User, request: Request<'_>) -> Result<User> {
        if self.mode.is_constrained() {
            let on = |verb: &str| format!("impersonate-on:{}:{verb}", self.mode.name());
            match request {
                Request::Resource { verb, target } => {
                    self.authorizer.authorize(self.requester, Request::Resource { verb: &on(verb), target })?;
                }
                Request::Path { verb, path } => {
                    self.authorizer.authorize(self.requester, Request::Path { verb: &on(verb), path })?;
                }
            }
        }
        let mut user = wanted.clone();
        self.check_name(&mut user)?;
        if !wanted.uid.is_empty() {
            self.check(AUTHENTICATION, "uids", "", &wanted.uid)?;
        }
        self.check_groups(&wanted.groups)?;
        self.check_extra(&wanted.extra)?;
        let group = if user.name == USER_ANONYMOUS {
            Some(GROUP_UNAUTHENTICATED)
        } else if user.is_in(GROUP_UNAUTHENTICATED) {
            None
        } else {
            Some(GROUP_AUTHENTICATED)
        };
        if let Some(group) = group.filter(|group| !user.is_in(group)) {
            user.groups.push(group.to_owned());
        }
        Ok(user)
    }

    /// The group in which names and groups stand.
    fn group(&self) -> &'static str {
        if self.mode.is_constrained() { AUTHENTICATION } else { "" }
    }

    fn check(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Result<()> {
        self.check_target(&Target::of_check(group, resource, namespace, name))
    }

    fn check_target(&self, target: &Target) -> Result<()> {
        self.authorizer.authorize(self.requester, Request::Resource { verb: &self.mode.verb(), target })
    }

    fn check_name(&self, user: &mut User) -> Result<()> {
        if let (Some(node), true) = (node_of(&user.name), self.mode.is_constrained()) {
            // A rule for the associated node covers all nodes, because each is the associated one of some user.
            let name = if self.mode == Mode::AssociatedNode { "*" } else { node };
            self.check(self.group(), "nodes", "", name)?;
            user.groups = vec![GROUP_NODES.to_owned()];
            return Ok(());
        }
        if let Some((namespace, name)) = split_user(&user.name) {
            self.check(self.group(), "serviceaccounts", namespace, name)?;
            if user.groups.is_empty() {
                let mut groups = account_user(namespace, name).groups;
                groups.retain(|group| group != GROUP_AUTHENTICATED);
                user.groups = groups;
            }
            return Ok(());
        }
        self.check(self.group(), "users", "", &user.name)
    }

    /// A rejection that does not depend on permissions.
    fn never(&self, group: &str, resource: &str, name: &str, why: &str) -> Box<Failure> {
        let target = Target::of_check(group, resource, "", name);
        let verb = self.mode.verb();
        super::refusal(self.requester, &Request::Resource { verb: &verb, target: &target }, why)
    }

    fn check_groups(&self, groups: &[String]) -> Result<()> {
        if self.mode.is_constrained() {
            if groups.iter().any(String::is_empty) {
                let why = "impersonating the empty string group is not allowed";
                return Err(self.never(self.group(), "groups", "", why));
            }
            if groups.iter().any(|group| group == GROUP_MASTERS) {
                let why = "impersonating the system:masters group is not allowed";
                return Err(self.never(self.group(), "groups", GROUP_MASTERS, why));
            }
            if groups.len() >= MANY && self.check(self.group(), "groups", "", "*").is_ok() {
                return Ok(());
            }
        }
        groups.iter().try_for_each(|group| self.check(self.group(), "groups", "", group))
    }

    fn check_extra(&self, extra: &BTreeMap<String, Vec<String>>) -> Result<()> {
        if self.mode.is_constrained() && !extra.is_empty() {
            if let Some(why) = extra.iter().find_map(|(key, values)| wrong_extra(key, values)) {
                return Err(self.never(AUTHENTICATION, "userextras", "", &why));
            }
            let count = extra.values().map(Vec::len).fold(0, usize::saturating_add);
            let many = extra.len() >= MANY || count >= MANY;
            if many && self.check_extra_value("*", "*").is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            for value in values {
                self.check_extra_value(key, value)?;
            }
        }
        Ok(())
    }

    fn check_extra_value(&self, key: &str, value: &str) -> Result<()> {
        let mut target = Target::of_check(AUTHENTICATION, "userextras", "", value);
        key.clone_into(&mut target.subresource);
        self.check_target(&target)
    }
}

fn wrong_extra(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".to_owned());
    }
    let (domain, path) = key.split_once('/').unwrap_or((key, ""));
    if path.is_empty() || !api::names::is_dns_subdomain(domain) {
        return Some(format!(
            "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {}: must be a domain-prefixed path (such as \"acme.io/foo\")",
            quote(key)
        ));
    }
    if key != key.to_lowercase() {
        return Some(format!("impersonating a non-lowercase key in extra is not allowed: {}", quote(key)));
    }
    if values.iter().any(String::is_empty) {
        return Some("impersonating the empty string value in extra is not allowed".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let parse = |(name, value): &(&str, &str)| {
            (name.parse::<http::HeaderName>().unwrap(), value.parse::<http::HeaderValue>().unwrap())
        };
        lines.iter().map(parse).collect()
    }

    #[test]
    fn unreadable_headers_are_not_treated_as_absent() {
        let umlaut = headers(&[("Impersonate-User", "jürgen")]);
        assert_eq!(wanted(&umlaut).unwrap().unwrap().name, "jürgen");
        for name in ["Impersonate-User", "Impersonate-Uid", "Impersonate-Group", "Impersonate-Extra-a"] {
            let mut all = headers(&[("Impersonate-User", "jane")]);
            let name = name.parse::<http::HeaderName>().unwrap();
            all.insert(name, HeaderValue::from_bytes(b"j\xfcrgen").unwrap());
            assert_eq!(wanted(&all).unwrap_err().code, 400);
        }
        let key = headers(&[("Impersonate-User", "jane"), ("Impersonate-Extra-%ff", "v")]);
        assert_eq!(wanted(&key).unwrap_err().code, 400);
    }

    #[test]
    fn keys_with_broken_escapes_stand_for_themselves() {
        for (key, expected) in
            [("a%20b", "a b"), ("a%2fb", "a/b"), ("a%20b%zz", "a%20b%zz"), ("a%2", "a%2"), ("%", "%")]
        {
            assert_eq!(unescape(key).as_deref(), Some(expected));
        }
    }

    #[test]
    fn headers_name_a_user() {
        assert_eq!(wanted(&headers(&[("Accept", "x")])), Ok(None));
        let user = wanted(&headers(&[
            ("Impersonate-User", "jane"),
            ("Impersonate-Group", "a"),
            ("Impersonate-Group", "b"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Extra-Acme.com%2Fproject", "p"),
            ("Impersonate-Extra-Acme.com%2Fproject", "q"),
        ]));
        let user = user.unwrap().unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "7"));
        assert_eq!(user.groups, ["a", "b"]);
        assert_eq!(user.extra["acme.com/project"], ["p", "q"]);
        let failure = wanted(&headers(&[("Impersonate-Group", "g"), ("Impersonate-Extra-k", "v")])).unwrap_err();
        assert_eq!(
            failure.message,
            r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, Extra:map[string][]string{"k":[]string{"v"}}} without impersonating a user name"#
        );
    }
}
