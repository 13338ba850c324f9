//! The tag of an image name, which decides whether it is pulled always.
//!
//! Follows the grammar of `distribution/reference`; a name that does not parse has no tag.

/// The tag, `latest` if neither tag nor digest is given, none if the name does not parse or has only a digest.
pub(super) fn tag(image: &str) -> Option<&str> {
    let is_identifier = image.len() == 64 && image.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_identifier {
        return None;
    }
    let (domain, rest) = match image.split_once('/') {
        Some((first, rest)) if is_domain_like(first) => (first, rest),
        _ => ("docker.io", image),
    };
    let (name_and_tag, digest) = match rest.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (rest, None),
    };
    let (path, tag) = match name_and_tag.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (name_and_tag, None),
    };
    let fits = is_domain(domain)
        && path.split('/').all(is_path_component)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest)
        && domain.len().saturating_add(path.len()) < 255;
    match (fits, tag, digest) {
        (true, None, None) => Some("latest"),
        (true, tag, _) => tag,
        (false, ..) => None,
    }
}

fn is_domain_like(text: &str) -> bool {
    text.contains(['.', ':']) || text == "localhost" || text.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn is_domain(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_address = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .is_some_and(|host| !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':'));
    let is_component = |part: &str| {
        part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    (is_address || host.split('.').all(is_component))
        && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Lower-case letters and digits, with one dot, one or two underscores, or any number of dashes between.
fn is_path_component(text: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let separators = text.split(is_alphanumeric).filter(|separator| !separator.is_empty());
    text.starts_with(is_alphanumeric)
        && text.ends_with(is_alphanumeric)
        && separators.into_iter().all(|it| matches!(it, "." | "_" | "__") || it.bytes().all(|byte| byte == b'-'))
}

fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= 128
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else { return false };
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    hex.len() == length && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_found_as_docker_finds_them() {
        #[track_caller]
        fn check(image: &str, expected: Option<&str>) {
            assert_eq!(tag(image), expected, "{image}");
        }
        check("app", Some("latest"));
        check("app:1", Some("1"));
        check("registry.example.com:5000/a/b", Some("latest"));
        check("registry.example.com:5000/a/b:x", Some("x"));
        check("App", None);
        check("a b", None);
        check(&format!("app@sha256:{}", "0".repeat(64)), None);
        check("app@sha256:0", None);
        check("a__b.c-----d:latest", Some("latest"));
        check("a..b", None);
    }
}
