//! Documents that webhooks answer with, as far as all kinds of reviews have it in common.
//!
//! Texts are Kubernetes' and Go's.

use api::go_text::quote;
use api::json::{self, Value};

/// Maximum number of JSON values in an answer, or in a patch that it contains.
pub(crate) const VALUES_MAX: usize = 1 << 18;

/// Reads the document of an answer.
///
/// # Errors
/// Go's words for what is none.
pub(crate) fn parse(body: &[u8]) -> Result<Value, String> {
    let start = "couldn't get version/kind; json parse error";
    let shape =
        r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    if json::has_more_values(body, VALUES_MAX) {
        return Err(format!("the response holds more than {VALUES_MAX} values"));
    }
    let kind = match json::parse(body) {
        Ok(Value::Null) => return Ok(Value::object()),
        Ok(value @ Value::Object(_)) => return Ok(value),
        Ok(other) => other.kind().to_owned(),
        Err(error) => {
            // Kubernetes reads it as YAML, for which most texts are strings.
            let looks_like_json = matches!(body.iter().find(|it| !it.is_ascii_whitespace()), Some(b'{' | b'['));
            if looks_like_json {
                return Err(format!("{start}: {}", error.message));
            }
            "string".to_owned()
        }
    };
    Err(format!("{start}: json: cannot unmarshal {kind} into Go value of type {shape}"))
}

/// Rejects a document whose `apiVersion` or `kind` is set to that of another type.
pub(crate) fn check_type(review: &Value, (group, name): (&str, &str), version: &str) -> Result<(), String> {
    let given = |field: &str| review.text(field);
    let (api_version, kind) = (given("apiVersion"), given("kind"));
    if api_version.is_empty() && kind.is_empty() {
        return Ok(());
    }
    let known = [format!("{group}/v1"), format!("{group}/v1beta1")];
    let is_known = api_version.is_empty() || known.iter().any(|it| it == api_version);
    if !is_known || !kind.is_empty() && kind != name {
        let (kind, version) = (
            if kind.is_empty() { name } else { kind },
            if api_version.is_empty() { known.first().map_or("", String::as_str) } else { api_version },
        );
        return Err(format!(
            "no kind {} is registered for version {} in scheme \"pkg/util/webhook/client.go:74\"",
            quote(kind),
            quote(version)
        ));
    }
    let given = api_version.rsplit('/').next().unwrap_or_default();
    if !given.is_empty() && given != version {
        return Err(format!("converting ({given}.{name}) to ({version}.{name}): unknown conversion"));
    }
    Ok(())
}

/// Refuses a document that does not name its type.
pub(crate) fn confirm_type(review: &Value, (group, name): (&str, &str), version: &str) -> Result<(), String> {
    let given = |field: &str| review.text(field);
    let (api_version, kind) = (given("apiVersion"), given("kind"));
    if (api_version, kind) == (format!("{group}/{version}").as_str(), name) {
        return Ok(());
    }
    let slash = if api_version.contains('/') { "" } else { "/" };
    Err(format!("expected webhook response of {group}/{version}, Kind={name}, got {slash}{api_version}, Kind={kind}"))
}
