//! Checks on every request before anything else, and headers on every response.
//!
//! The Host must be this server's own address (a page of another name that resolves to loopback is rejected), and a request that a page
//! of another origin causes is rejected even if it has a key.

use http::header::{HeaderMap, HeaderName, HeaderValue, ORIGIN};
use http::{Request, Response};

/// Nothing but this server's own files, no inline script or style, no text that becomes markup.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
    trusted-types 'none'";

const HEADERS: [(&str, &str); 8] = [
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=(), usb=()"),
    ("cache-control", "no-store"),
];

/// The names under which this server is reached.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    hosts: Vec<String>,
}

/// The reason to reject a request before it is processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// The Host header names another server.
    Host,
    /// A page of another origin sent it.
    Origin,
}

impl Guard {
    /// A guard of a loopback port.
    pub(crate) fn new(port: u16) -> Self {
        Self { hosts: ["127.0.0.1", "localhost", "[::1]"].map(|name| format!("{name}:{port}")).to_vec() }
    }

    /// Checks the headers of a request.
    pub(crate) fn check<B>(&self, request: &Request<B>) -> Result<(), Rejection> {
        let headers = request.headers();
        let host = only(headers, "host").ok_or(Rejection::Host)?;
        if !self.hosts.iter().any(|own| own == host) {
            return Err(Rejection::Host);
        }
        // An absolute request target would override the Host header.
        if request.uri().authority().is_some() {
            return Err(Rejection::Host);
        }
        if headers.contains_key(ORIGIN) {
            let own = format!("http://{host}");
            if only(headers, "origin") != Some(own.as_str()) {
                return Err(Rejection::Origin);
            }
        } else if !request.method().is_safe() {
            // Browsers send an Origin with every request that is no plain read.
            return Err(Rejection::Origin);
        }
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        match site {
            None | Some(b"same-origin" | b"none") => Ok(()),
            // A link on another page may lead to the front page; it sees nothing of it.
            Some(_) if request.uri().path() == "/" && request.method().is_safe() => Ok(()),
            Some(_) => Err(Rejection::Origin),
        }
    }
}

/// The text of a header that stands once.
fn only<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

/// Adds the headers that every response has.
pub(crate) fn protect<B>(mut response: Response<B>) -> Response<B> {
    for (name, value) in HEADERS {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[track_caller]
    fn check(method: &str, path: &str, headers: &[(&str, &str)], expected: Result<(), Rejection>) {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        assert_eq!(Guard::new(8001).check(&request.body(()).unwrap()), expected, "{method} {path} {headers:?}");
    }

    #[test]
    fn host_must_be_the_own_address() {
        check("GET", "/", &[("host", "127.0.0.1:8001")], Ok(()));
        check("GET", "/", &[("host", "localhost:8001")], Ok(()));
        check("GET", "/", &[("host", "[::1]:8001")], Ok(()));
        for host in
            ["rebind.example.com:8001", "127.0.0.1", "127.0.0.1:8002", "localhost.:8001", "127.0.0.1:8001.evil", ""]
        {
            check("GET", "/", &[("host", host)], Err(Rejection::Host));
        }
        check("GET", "/", &[], Err(Rejection::Host));
        check("GET", "/", &[("host", "127.0.0.1:8001"), ("host", "evil.example.com")], Err(Rejection::Host));
        check("GET", "http://evil.example.com/", &[("host", "127.0.0.1:8001")], Err(Rejection::Host));
    }

    #[test]
    fn other_origins_are_rejected() {
        let host = ("host", "127.0.0.1:8001");
        check("GET", "/c/info", &[host, ("origin", "http://127.0.0.1:8001")], Ok(()));
        check(
            "POST",
            "/c/session",
            &[host, ("origin", "http://127.0.0.1:8001"), ("sec-fetch-site", "same-origin")],
            Ok(()),
        );
        check("POST", "/c/session", &[host], Err(Rejection::Origin));
        for origin in [
            "http://127.0.0.1:9000",
            "http://localhost:8001",
            "https://127.0.0.1:8001",
            "null",
            "http://evil.example.com",
        ] {
            check("POST", "/c/session", &[host, ("origin", origin)], Err(Rejection::Origin));
            check("GET", "/c/info", &[host, ("origin", origin)], Err(Rejection::Origin));
        }
        check("GET", "/c/info", &[host, ("sec-fetch-site", "cross-site")], Err(Rejection::Origin));
        check("GET", "/c/info", &[host, ("sec-fetch-site", "same-site")], Err(Rejection::Origin));
        check("GET", "/", &[host, ("sec-fetch-site", "cross-site")], Ok(()));
    }
}
