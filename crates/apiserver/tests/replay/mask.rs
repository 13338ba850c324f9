//! Masks values that differ between any two runs.

use serde_json::Value;

/// Masks a body. `generated` is the recorded or real name behind a `generateName`.
pub(crate) fn mask(value: &mut Value) {
    walk(value, "");
}

fn walk(value: &mut Value, key: &str) {
    match value {
        Value::Object(fields) => {
            if key == "fieldsV1" {
                // Owners are distinguished by their UID.
                let text = mask_words(&serde_json::to_string(&fields).unwrap());
                *fields = serde_json::from_str(&text).unwrap();
                return;
            }
            if let Some(Value::Array(entries)) = fields.get_mut("managedFields") {
                // Their order depends on the seconds that pass between writes.
                entries.sort_by_key(|entry| {
                    ["operation", "manager", "apiVersion", "subresource"].map(|key| entry[key].to_string())
                });
            }
            let generated = fields.contains_key("generateName");
            for (field, value) in fields.iter_mut() {
                if generated && field == "name" {
                    *value = "<generated>".into();
                } else if key == "columnDefinitions" && field == "description" {
                    // The recordings have this text instead of Kubernetes' descriptions of columns, which the tests of
                    // `registry::printers` check.
                    *value = "<text>".into();
                } else {
                    let key = field;
                    walk(value, key);
                }
            }
        }
        Value::Array(items) => {
            for item in items.iter_mut() {
                walk(item, key);
            }
            if key == "resourceRules" || key == "nonResourceRules" {
                // Their order is that of iterating over a map of bindings.
                items.sort_by_key(Value::to_string);
            }
        }
        Value::String(text) => *text = mask_text(key, text),
        Value::Number(_) if key == "remainingItemCount" => {}
        _ => {}
    }
}

fn mask_text(key: &str, text: &str) -> String {
    match key {
        "uid" | "continue" | "resourceVersion" | "storageVersionHash" | "serverAddress" | "serverRelativeURL" => {
            return format!("<{key}>");
        }
        // An address is given out; `None` is not one.
        "clusterIP" | "clusterIPs" if text.parse::<std::net::IpAddr>().is_ok() => return format!("<{key}>"),
        "token" if text == "<JWT>" || text.split('.').count() == 3 => return "<token>".to_owned(),
        // Several bindings allow it, and any may be named.
        "reason" if text.starts_with("RBAC: allowed by ") => return mask_quoted(text),
        "gitVersion" | "gitCommit" | "goVersion" | "compiler" | "buildDate" | "platform" => {
            return "<build>".to_owned();
        }
        "cells" => return mask_words(&text.split(' ').map(mask_age).collect::<Vec<_>>().join(" ")),
        _ => {}
    }
    mask_words(text)
}

/// A text without what stands in quotes.
fn mask_quoted(text: &str) -> String {
    text.split('"').step_by(2).collect::<Vec<_>>().join("<name>")
}

/// A word of a table's cell that grows with time: `3m4s`, or `(5d` of `3 (5d ago)`.
fn mask_age(word: &str) -> &str {
    match word.strip_prefix('(') {
        Some(age) if is_age(age) => "(<age>",
        None if is_age(word) => "<age>",
        _ => word,
    }
}

/// `12s`, `3m4s`, `5d`
fn is_age(text: &str) -> bool {
    let units = text.chars().filter(|it| "smhdy".contains(*it)).count();
    (1..=2).contains(&units)
        && text.starts_with(|it: char| it.is_ascii_digit())
        && text.ends_with(|it| "smhdy".contains(it))
        && text.chars().all(|it| it.is_ascii_digit() || "smhdy".contains(it))
}

const TOKEN_VOLUME: &str = "kube-api-access-";

/// Times, uids and versions inside texts.
pub(crate) fn mask_words(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(length) = time_length(rest) {
            out.push_str("<time>");
            rest = &rest[length..];
        } else if is_uid(rest) {
            out.push_str("<uid>");
            rest = &rest[36..];
        } else if rest.starts_with(TOKEN_VOLUME) && rest.len() >= TOKEN_VOLUME.len() + 5 {
            // Volumes of tokens have names that end in chance.
            out.push_str(TOKEN_VOLUME);
            rest = &rest[TOKEN_VOLUME.len() + 5..];
        } else {
            let next = rest.chars().next().unwrap();
            out.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    // A diff shows the names of Go's internal structs.
    for start in ["\n@@ ", "\n\u{a0}"] {
        if let Some(at) = out.find(start) {
            out.truncate(at);
        }
    }
    let out_trimmed = out.trim_end_matches('\n').len();
    out.truncate(out_trimmed);
    // Texts may show whole objects.
    let version = r#"resourceVersion\":\""#;
    let mut from = 0;
    while let Some(at) = out[from..].find(version) {
        from += at + version.len();
        let digits = out[from..].bytes().take_while(u8::is_ascii_digit).count();
        out.replace_range(from..from + digits, "#");
    }
    for start in ["too old resource version: ", "resource version: "] {
        if let Some(at) = out.find(start) {
            let numbers = out[at + start.len()..].to_owned();
            let masked: String = numbers.chars().map(|it| if it.is_ascii_digit() { '#' } else { it }).collect();
            let masked = masked.split('#').filter(|it| !it.is_empty()).collect::<Vec<_>>().join("#");
            out.replace_range(at + start.len().., &masked);
        }
    }
    out
}

fn time_length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let pattern = b"0000-00-00T00:00:00";
    if bytes.len() < pattern.len() + 1 {
        return None;
    }
    let fits = pattern.iter().zip(bytes).all(|(pattern, byte)| match pattern {
        b'0' => byte.is_ascii_digit(),
        other => other == byte,
    });
    if !fits {
        return None;
    }
    let end = text.find('Z')?;
    (end < 40).then_some(end + 1)
}

fn is_uid(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 36
        && bytes[..36].iter().enumerate().all(|(index, byte)| {
            if matches!(index, 8 | 13 | 18 | 23) { *byte == b'-' } else { byte.is_ascii_hexdigit() }
        })
}
