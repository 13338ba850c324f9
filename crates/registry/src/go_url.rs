//! Errors of Go's `net/url.Parse`, which messages about URLs contain.
//!
//! Follows `url.Parse` of Go's standard library as far as it fails; what it accepts is read by the caller.

use api::go_text::quote;

/// Returns the error of `url.Parse`: `parse "URL": REASON`; `None` if Go accepts the URL.
pub(crate) fn parse_error(url: &str) -> Option<String> {
    let (main, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (shown, reason) = match reason(main) {
        Some(reason) => (main, reason),
        None => (url, bad_escape(fragment)?),
    };
    Some(format!("parse {}: {reason}", quote(shown)))
}

fn reason(url: &str) -> Option<String> {
    if url.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return Some("net/url: invalid control character in URL".to_owned());
    }
    if url.starts_with(':') {
        return Some("missing protocol scheme".to_owned());
    }
    let is_scheme = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_alphabetic())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    let scheme = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme));
    let rest = scheme.map_or(url, |(_, rest)| rest);
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    if !rest.starts_with('/') {
        let has_colon = rest.split('/').next().is_some_and(|segment| segment.contains(':'));
        // Behind a scheme anything may follow that is no path.
        return match scheme {
            Some(_) => None,
            None if has_colon => Some("first path segment in URL cannot contain colon".to_owned()),
            None => bad_escape(rest),
        };
    }
    let authority = rest.strip_prefix("//").filter(|it| scheme.is_some() || !it.starts_with('/'));
    let Some(authority) = authority else { return bad_escape(rest) };
    let (authority, path) = authority.split_at(authority.find('/').unwrap_or(authority.len()));
    let (user, host) = authority.rsplit_once('@').map_or(("", authority), |(user, host)| (user, host));
    bad_host(host).or_else(|| bad_user(user)).or_else(|| bad_escape(path))
}

/// The first `%` that two hexadecimal digits do not follow.
fn bad_escape(text: &str) -> Option<String> {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('%') {
        let digits: String = after.chars().take(2).collect();
        if digits.len() != 2 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Some(format!("invalid URL escape {}", quote(&format!("%{digits}"))));
        }
        rest = after;
    }
    None
}

fn bad_user(user: &str) -> Option<String> {
    let is_valid = |it: char| it.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(it);
    if !user.chars().all(is_valid) {
        return Some("net/url: invalid userinfo".to_owned());
    }
    bad_escape(user)
}

fn bad_host(host: &str) -> Option<String> {
    let port = if host.starts_with('[') {
        let Some((_, behind)) = host.rsplit_once(']') else { return Some("missing ']' in host".to_owned()) };
        behind
    } else {
        host.rfind(':').and_then(|at| host.get(at..)).unwrap_or_default()
    };
    let digits = port.strip_prefix(':');
    let is_port = port.is_empty() || digits.is_some_and(|it| it.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_port {
        return Some(format!("invalid port {} after host", quote(port)));
    }
    if let Some(escape) = bad_escape(host) {
        return Some(escape);
    }
    // Only bytes beyond ASCII may be escaped in a host.
    let mut rest = host;
    while let Some((_, after)) = rest.split_once('%') {
        let digits: String = after.chars().take(2).collect();
        if digits.starts_with(|first: char| ('0'..='7').contains(&first)) && digits != "25" {
            return Some(format!("invalid URL escape {}", quote(&format!("%{digits}"))));
        }
        rest = after;
    }
    let is_valid = |it: char| !it.is_ascii() || it.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(it);
    let bad = host.chars().find(|it| !is_valid(*it))?;
    Some(format!("invalid character {} in host name", quote(&bad.to_string())))
}

#[cfg(test)]
mod tests {
    use super::parse_error;

    #[track_caller]
    fn check(url: &str, reason: &str) {
        let expected = (!reason.is_empty()).then(|| format!("parse {}: {reason}", api::go_text::quote(url)));
        assert_eq!(parse_error(url), expected);
    }

    #[test]
    fn urls_fail_as_in_go() {
        check("https://h.example.com/p", "");
        check("https://h.example.com:8443/p?q#f", "");
        check("mailto:a b", "");
        check("", "");
        check("https://[::1]:443/", "");
        check("https://h.example.com/p\n", "net/url: invalid control character in URL");
        check(":foo", "missing protocol scheme");
        check("1a:b", "first path segment in URL cannot contain colon");
        check("https://h:abc/", "invalid port \":abc\" after host");
        check("https://a b/", "invalid character \" \" in host name");
        check("https://h/%zz", "invalid URL escape \"%zz\"");
        check("https://h/%2", "invalid URL escape \"%2\"");
        check("https://[::1/", "missing ']' in host");
    }
}
