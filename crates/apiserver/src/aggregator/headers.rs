//! Heads of requests and answers that are passed on: the user, and what stays on one connection.
//!
//! Follows `SetAuthProxyHeaders` in client-go, and Go's `ReverseProxy` under Kubernetes' `UpgradeAwareHandler`.

use std::net::IpAddr;

use http::header::{
    AUTHORIZATION, CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};

use crate::identity::User;

/// Header with the name of the user.
const USER: HeaderName = HeaderName::from_static("x-remote-user");
/// Header with the uid of the user.
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
/// Header with a group of the user.
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
/// Prefix of headers with extra attributes of the user.
const EXTRA: &str = "x-remote-extra-";

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// Headers that are about one connection.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Headers of answers for scripts of other origins: those are up to this server.
const CORS: [HeaderName; 4] = [
    http::header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    http::header::ACCESS_CONTROL_ALLOW_HEADERS,
    http::header::ACCESS_CONTROL_ALLOW_METHODS,
    http::header::ACCESS_CONTROL_ALLOW_ORIGIN,
];

/// The value of a header.
///
/// # Errors
/// Go's text for one that cannot be sent.
pub(crate) fn value(name: &HeaderName, text: &[u8]) -> Result<HeaderValue, String> {
    let shown = || {
        let words = name.as_str().split('-').map(|word| {
            let (first, rest) = word.split_at_checked(1).unwrap_or((word, ""));
            format!("{}{rest}", first.to_uppercase())
        });
        format!("net/http: invalid header field value for \"{}\"", words.collect::<Vec<_>>().join("-"))
    };
    HeaderValue::from_bytes(text).map_err(|_| shown())
}

/// Names the user of a request, in place of all that the client sent to that end.
///
/// # Errors
/// Go's text for a user whose name cannot be sent.
pub(crate) fn set_user(headers: &mut HeaderMap, user: &User) -> Result<(), String> {
    remove_identity(headers);
    headers.insert(USER, value(&USER, user.name.as_bytes())?);
    if !user.uid.is_empty() {
        headers.insert(UID, value(&UID, user.uid.as_bytes())?);
    }
    for group in &user.groups {
        headers.append(GROUP, value(&GROUP, group.as_bytes())?);
    }
    for (key, values) in &user.extra {
        let name = HeaderName::try_from(format!("{EXTRA}{}", escaped(key)));
        let name = name.map_err(|_| format!("net/http: invalid header field name {}", api::go_text::quote(key)))?;
        for text in values {
            headers.append(&name, value(&name, text.as_bytes())?);
        }
    }
    Ok(())
}

/// Removes all headers that name a user, or prove who it is.
pub(crate) fn remove_identity(headers: &mut HeaderMap) {
    let given: Vec<HeaderName> = headers.keys().filter(|name| is_identity(name)).cloned().collect();
    given.iter().for_each(|name| drop(headers.remove(name)));
}

/// Whether a header names the user of a request, or is the proof of that.
fn is_identity(name: &HeaderName) -> bool {
    let text = name.as_str();
    *name == USER
        || *name == UID
        || *name == GROUP
        || *name == AUTHORIZATION
        || text.starts_with(EXTRA)
        || text.starts_with("impersonate-")
}

/// A key in the name of a header: bytes that names cannot have, and percent signs, are escaped.
fn escaped(key: &str) -> String {
    let mut out = String::with_capacity(key.len());
    for byte in key.bytes() {
        let is_legal = byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
        if is_legal { out.push(char::from(byte)) } else { out.push_str(&format!("%{byte:02X}")) }
    }
    out
}

/// States which request is passed on.
///
/// # Errors
/// Go's text for a path that cannot be sent.
pub(crate) fn set_forwarded(headers: &mut HeaderMap, host: &str, path: &str) -> Result<(), String> {
    headers.insert(FORWARDED_HOST, value(&FORWARDED_HOST, host.as_bytes())?);
    headers.insert(FORWARDED_PROTO, HeaderValue::from_static("https"));
    headers.insert(FORWARDED_URI, value(&FORWARDED_URI, path.as_bytes())?);
    Ok(())
}

/// Adds the address of the client to those of the proxies before.
pub(crate) fn add_client(headers: &mut HeaderMap, address: IpAddr) {
    let mut all: Vec<u8> = Vec::new();
    for value in headers.get_all(FORWARDED_FOR) {
        all.extend_from_slice(value.as_bytes());
        all.extend_from_slice(b", ");
    }
    all.extend_from_slice(address.to_string().as_bytes());
    if let Ok(value) = HeaderValue::from_bytes(&all) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// Removes what is about one connection: the known headers, and those that `Connection` names.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in HOP_BY_HOP.iter().chain(&named) {
        headers.remove(name);
    }
}

/// The head of a request that is passed on, without the user.
pub(crate) fn passed_on(headers: &HeaderMap, host: &str) -> Result<HeaderMap, String> {
    let mut headers = headers.clone();
    remove_hop_by_hop(&mut headers);
    headers.insert(HOST, value(&HOST, host.as_bytes())?);
    Ok(headers)
}

/// The headers of a forwarded upgrade request, without those that name the user.
pub(crate) fn upgrade(headers: &HeaderMap, host: &str) -> Result<HeaderMap, String> {
    let kept = |name: HeaderName| headers.get(&name).cloned().map(|value| (name, value));
    let (connection, protocol) = (kept(CONNECTION), kept(UPGRADE));
    let mut headers = passed_on(headers, host)?;
    headers.extend([connection, protocol].into_iter().flatten());
    Ok(headers)
}

/// The head of an answer as the client gets it.
pub(crate) fn answered(mut headers: HeaderMap) -> HeaderMap {
    remove_hop_by_hop(&mut headers);
    CORS.iter().for_each(|name| drop(headers.remove(name)));
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn user_replaces_claims_of_the_client() {
        let mut headers = map(&[
            ("x-remote-user", "evil"),
            ("x-remote-extra-scopes", "all"),
            ("authorization", "Bearer secret"),
            ("impersonate-user", "carol"),
            ("x-other", "stays"),
        ]);
        let mut user = User::authenticated("jane doe/ü", &["dev"]);
        user.extra.insert("acme.com/project%".to_owned(), vec!["p1".to_owned(), "p2".to_owned()]);
        set_user(&mut headers, &user).unwrap();
        let shown: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
            .collect();
        let mut sorted = shown.clone();
        sorted.sort();
        let expected = [
            "x-other: stays",
            "x-remote-extra-acme.com%2fproject%25: p1",
            "x-remote-extra-acme.com%2fproject%25: p2",
            "x-remote-group: dev",
            "x-remote-group: system:authenticated",
            "x-remote-user: jane doe/ü",
        ];
        assert_eq!(sorted, expected);
        let broken = set_user(&mut headers, &User::authenticated("a\nb", &[]));
        assert_eq!(broken.unwrap_err(), "net/http: invalid header field value for \"X-Remote-User\"");
    }

    #[test]
    fn headers_of_one_connection_are_not_passed_on() {
        let headers = map(&[
            ("connection", "X-Secret, keep-alive"),
            ("x-secret", "a"),
            ("keep-alive", "1"),
            ("proxy-authorization", "b"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("accept", "c"),
        ]);
        assert_eq!(passed_on(&headers, "h:1").unwrap(), map(&[("accept", "c"), ("host", "h:1")]));
        let mut headers = map(&[("x-forwarded-for", "203.0.113.9")]);
        add_client(&mut headers, "127.0.0.1".parse().unwrap());
        assert_eq!(headers, map(&[("x-forwarded-for", "203.0.113.9, 127.0.0.1")]));
    }
}
