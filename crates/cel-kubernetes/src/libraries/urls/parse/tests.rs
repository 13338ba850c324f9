//! URLs are split and refused as Go splits and refuses them.

use super::*;

#[track_caller]
fn check(text: &str, host: &str, path: &str, printed: &str) {
    let url = Url::parse(text).unwrap();
    assert_eq!((url.host().as_str(), &*url.escaped_path(), url.to_string().as_str()), (host, path, printed));
}

#[track_caller]
fn check_error(text: &str, message: &str) {
    let error = Url::parse(text).unwrap_err();
    assert_eq!(error.to_string(), format!("parse {}: {message}", go_text::quote(text)));
}

#[test]
fn parts_are_read_and_printed_as_go_does() {
    check("http://a/path#", "a", "/path", "http://a/path");
    check(
        "HTTP://user:pa%20ss@host:8080/p?q=1&q=2#frag",
        "host:8080",
        "/p",
        "http://user:pa%20ss@host:8080/p?q=1&q=2#frag",
    );
    check("https://[fe80::1%25en0]:8080/", "[fe80::1%en0]:8080", "/", "https://[fe80::1%25en0]:8080/");
    check("mailto:a@b.c", "", "", "mailto:a@b.c");
    check("/path", "", "/path", "/path");
    check("//host/path", "host", "/path", "//host/path");
    check("*", "", "*", "*");
    check("file:/etc", "", "/etc", "file:/etc");
    check("file:///etc", "", "/etc", "file:///etc");
    check("http://a/b c", "a", "/b%20c", "http://a/b%20c");
    check("http://a/%2f", "a", "/%2f", "http://a/%2f");
    check("http://a?", "a", "", "http://a?");
    check("http://a/?x??", "a", "/", "http://a/?x??");
    check("http://é/é", "é", "/%C3%A9", "http://%C3%A9/%C3%A9");
    check("pg://a:1,b:2/", "a:1,b:2", "/", "pg://a:1,b:2/");
}

#[test]
fn host_name_and_port_are_separated() {
    let url = Url::parse("https://[fe80::1%25en0]:8080/").unwrap();
    assert_eq!((url.host_name().as_str(), url.port().as_str()), ("fe80::1%en0", "8080"));
    let url = Url::parse("https://host:/").unwrap();
    assert_eq!((url.host_name().as_str(), url.port().as_str()), ("host", ""));
}

#[test]
fn malformed_parts_of_a_query_are_left_out() {
    let url = Url::parse("http://a/?a=%41&b=%zz&&c&d=x+y&e;f=1&=v&a=2").unwrap();
    let query: Vec<String> = url.query().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(query, ["a=A", "c=", "d=x y", "=v", "a=2"]);
}

#[test]
fn errors_are_those_of_go() {
    check_error("", "empty url");
    check_error("path", "invalid URI for request");
    check_error("1http://x", "invalid URI for request");
    check_error("://x", "missing protocol scheme");
    check_error("http://a/\u{1}", "net/url: invalid control character in URL");
    check_error("http://[::1", "missing ']' in host");
    check_error("http://x[::1]/", "invalid IP-literal");
    check_error("http://[1.2.3.4]/", "invalid IP-literal");
    check_error(
        "http://[::g]/",
        "invalid host: ParseAddr(\"::g\"): each colon-separated field must have at least one digit (at \"g\")",
    );
    check_error("http://a:b:1/", "invalid port \":b:1\" after host");
    check_error("http://host:port/", "invalid port \":port\" after host");
    check_error("http://a#frag", "invalid character \"#\" in host name");
    check_error("http://a b/", "invalid character \" \" in host name");
    check_error("http://a%20b/", "invalid URL escape \"%20\"");
    check_error("https://example.com/%zz", "invalid URL escape \"%zz\"");
    check_error("https://example.com/%aé", "invalid URL escape \"%a\\xc3\"");
    check_error("https://example.com/%", "invalid URL escape \"%\"");
    check_error("http://us er@a/", "net/url: invalid userinfo");
    check_error("//a b/", "invalid character \" \" in host name");
}
