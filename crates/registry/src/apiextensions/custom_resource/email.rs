//! Mail addresses as Go's `net/mail` reads one: `Jo <jo@example.com>` or the bare address.
//!
//! RFC 5322 without comments at odd places and without groups, which no schema means by `email`.

/// Whether the text is one address.
pub(super) fn is_address(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    if is_specification(text) {
        return true;
    }
    let Some((name, rest)) = text.rsplit_once('<') else { return false };
    let Some(address) = rest.strip_suffix('>') else { return false };
    is_phrase(name.trim_matches([' ', '\t'])) && is_specification(address)
}

/// `local@domain`.
fn is_specification(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    (is_dot_atom(local) || is_quoted(local)) && (is_dot_atom(domain) || is_literal(domain))
}

/// `[127.0.0.1]`: Go takes addresses only.
fn is_literal(text: &str) -> bool {
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inner.is_some_and(|inner| inner.parse::<std::net::IpAddr>().is_ok())
}

fn is_dot_atom(text: &str) -> bool {
    text.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_atom_text))
}

fn is_atom_text(it: char) -> bool {
    it.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(it) || !it.is_ascii()
}

fn is_quoted(text: &str) -> bool {
    let Some(inner) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return false };
    let mut escaped = false;
    for it in inner.chars() {
        match it {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return false,
            it if it.is_control() && it != '\t' => return false,
            _ => {}
        }
    }
    !escaped && !inner.is_empty()
}

/// Words, with dots inside; none is a phrase, too.
fn is_phrase(text: &str) -> bool {
    is_quoted(text) || text.split([' ', '\t']).all(|word| word.chars().all(|it| is_atom_text(it) || it == '.'))
}
