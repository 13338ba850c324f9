//! The shapes of names: DNS labels and subdomains, label keys and values, ports, headers, variables.
//!
//! Each check returns all errors, with Kubernetes' texts; an empty list means that the name is valid. The CEL
//! format library, label selectors and validation share these checks. Follows
//! `apimachinery/pkg/util/validation` and `pkg/api/validate/content`.

/// Every complaint about a name.
pub type Complaints = Vec<String>;

const DNS_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS_SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_KEY_RULE: &str =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// A lower-case DNS label of at most 63 characters.
#[must_use]
pub fn dns1123_label(name: &str) -> Complaints {
    dns_label(name, "characters")
}

/// DNS label check in the form of declarative validation, which counts bytes.
#[must_use]
pub fn short_name(name: &str) -> Complaints {
    dns_label(name, "bytes")
}

fn dns_label(name: &str, unit: &str) -> Complaints {
    let mut complaints = too_long(name, 63, unit);
    if !is_dns_label(name) {
        complaints.push(if is_dns_subdomain(name) {
            "must not contain dots".to_owned()
        } else {
            regex(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                DNS_LABEL,
                &["my-name", "123-abc"],
            )
        });
    }
    complaints
}

/// DNS labels with dots between, at most 253 characters.
#[must_use]
pub fn dns1123_subdomain(name: &str) -> Complaints {
    dns_subdomain(name, "characters")
}

/// DNS subdomain check in the form of declarative validation, which counts bytes.
#[must_use]
pub fn long_name(name: &str) -> Complaints {
    dns_subdomain(name, "bytes")
}

fn dns_subdomain(name: &str, unit: &str) -> Complaints {
    let mut complaints = too_long(name, 253, unit);
    if !is_dns_subdomain(name) {
        complaints.push(regex(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            DNS_SUBDOMAIN,
            &["example.com"],
        ));
    }
    complaints
}

/// A DNS label that starts with a letter.
#[must_use]
pub fn dns1035_label(name: &str) -> Complaints {
    let mut complaints = too_long(name, 63, "characters");
    if !is_dns_label(name) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        complaints.push(regex(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    complaints
}

/// Checks the prefix of a generated name: a trailing dash counts as the start of the generated part.
#[must_use]
pub fn as_prefix(check: impl Fn(&str) -> Complaints, prefix: &str) -> Complaints {
    match prefix.strip_suffix('-').filter(|rest| !rest.is_empty()) {
        Some(rest) => {
            let mut masked: String = rest.chars().collect();
            // Kubernetes replaces the last two characters by one letter.
            masked.pop();
            masked.push('a');
            check(&masked)
        }
        None => check(prefix),
    }
}

/// A subdomain behind `*.`.
#[must_use]
pub fn wildcard_dns1123_subdomain(name: &str) -> Complaints {
    let mut complaints = too_long(name, 253, "characters");
    if !name.strip_prefix("*.").is_some_and(is_dns_subdomain) {
        complaints.push(regex(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!("\\*\\.{DNS_SUBDOMAIN}"),
            &["*.example.com"],
        ));
    }
    complaints
}

/// The key of a label, annotation, taint or resource: a name, perhaps behind a subdomain and a slash.
#[must_use]
pub fn qualified_name(name: &str) -> Complaints {
    let rule = || regex(LABEL_KEY_RULE, LABEL_KEY, &["MyName", "my.name", "123-abc"]);
    let mut complaints = Vec::new();
    let local = match name.split_once('/') {
        None => name,
        Some((_, rest)) if rest.contains('/') => {
            let rule = rule();
            return vec![format!(
                "a valid label key {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        Some(("", local)) => {
            complaints.push("prefix part must be non-empty".to_owned());
            local
        }
        Some((prefix, local)) => {
            complaints.extend(dns_subdomain(prefix, "bytes").into_iter().map(|it| format!("prefix part {it}")));
            local
        }
    };
    if local.is_empty() {
        complaints.push("name part must be non-empty".to_owned());
    }
    complaints.extend(too_long(local, 63, "bytes").into_iter().map(|it| format!("name part {it}")));
    if !is_label_key(local) {
        complaints.push(format!("name part {}", rule()));
    }
    complaints
}

/// The value of a label: empty, or like the name of its key.
#[must_use]
pub fn label_value(value: &str) -> Complaints {
    let mut complaints = too_long(value, 63, "bytes");
    if !value.is_empty() && !is_label_key(value) {
        complaints.push(regex(
            &format!("a valid label must be an empty string or {}", LABEL_KEY_RULE.trim_start_matches("must ")),
            &format!("({LABEL_KEY})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    complaints
}

/// A name of the language C.
#[must_use]
pub fn c_identifier(name: &str) -> Complaints {
    let fits = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    complain_unless(
        fits,
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )
}

/// A key of a ConfigMap or Secret.
#[must_use]
pub fn config_map_key(key: &str) -> Complaints {
    let mut complaints = too_long(key, 253, "characters");
    complaints.extend(complain_unless(
        !key.is_empty() && key.bytes().all(is_key_byte),
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
        "[-._a-zA-Z0-9]+",
        &["key.name", "KEY_NAME", "key-name"],
    ));
    complaints.extend(parent_directory(key));
    complaints
}

/// The name of an environment variable, strictly.
#[must_use]
pub fn env_var_name(name: &str) -> Complaints {
    let fits = !name.is_empty() && name.bytes().all(is_key_byte) && !name.starts_with(|c: char| c.is_ascii_digit());
    let mut complaints = complain_unless(
        fits,
        "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not start with a digit",
        "[-._a-zA-Z][-._a-zA-Z0-9]*",
        &["my.env-name", "MY_ENV.NAME", "MyEnvName1"],
    );
    complaints.extend(parent_directory(name));
    complaints
}

/// The name of an environment variable as containers may have it.
#[must_use]
pub fn relaxed_env_var_name(name: &str) -> Complaints {
    if name.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    if name.chars().any(|c| !matches!(c, ' '..='~') || c == '=') {
        let rule = "a valid environment variable name must consist only of printable ASCII characters other than '='";
        return vec![rule.to_owned()];
    }
    Vec::new()
}

/// The name of an HTTP header.
#[must_use]
pub fn http_header_name(name: &str) -> Complaints {
    let fits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    complain_unless(
        fits,
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )
}

/// The name of a port, as IANA has them.
#[must_use]
pub fn port_name(name: &str) -> Complaints {
    let mut complaints = too_long(name, 15, "characters");
    let charset = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || !name.bytes().all(charset) {
        complaints.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        complaints.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        complaints.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        complaints.push("must not begin or end with a hyphen".to_owned());
    }
    complaints
}

/// Checks a name that is part of a URL path.
#[must_use]
pub fn path_segment(name: &str) -> Complaints {
    if matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"].into_iter().filter(|it| name.contains(it)).map(|it| format!("may not contain '{it}'")).collect()
}

/// A number with a percent sign.
#[must_use]
pub fn percent(text: &str) -> Complaints {
    let digits = text.strip_suffix('%').unwrap_or_default();
    complain_unless(
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()),
        "a valid percent string must be a numeric string followed by an ending '%'",
        "[0-9]+%",
        &["1%", "93%"],
    )
}

/// Whether the text is a DNS label, of any length.
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
}

/// Whether the text is a DNS subdomain, of any length.
#[must_use]
pub fn is_dns_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

fn is_label_key(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| is_key_byte(*byte))
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

fn parent_directory(name: &str) -> Option<String> {
    match name {
        "." | ".." => Some(format!("must not be '{name}'")),
        _ => name.starts_with("..").then(|| "must not start with '..'".to_owned()),
    }
}

fn too_long(text: &str, max: usize, unit: &str) -> Complaints {
    if text.len() > max { vec![format!("must be no more than {max} {unit}")] } else { Vec::new() }
}

fn complain_unless(fits: bool, rule: &str, expression: &str, examples: &[&str]) -> Complaints {
    if fits { Vec::new() } else { vec![regex(rule, expression, examples)] }
}

fn regex(rule: &str, expression: &str, examples: &[&str]) -> String {
    let examples: Vec<_> = examples.iter().map(|it| format!("'{it}', ")).collect();
    let start = if examples.is_empty() { "(".to_owned() } else { format!("(e.g. {}", examples.join(" or ")) };
    format!("{rule} {start}regex used for validation is '{expression}')")
}
