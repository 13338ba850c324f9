//! Refuses definitions whose versions are converted by a webhook, which this server does not call.

use api::field::{Errors, Path};
use api::json::Value;

use crate::custom;
use crate::http::status::{Failure, Result};
use crate::resources::Resource;

/// Refuses a definition with a webhook converter, unless it had one before.
pub(super) fn validate(resource: &Resource<'_>, object: &Value, old: Option<&Value>) -> Result<()> {
    let uses_webhook = |object: &Value| object.str_at(&["spec", "conversion", "strategy"]) == Some("Webhook");
    if !custom::is_definition(resource) || !uses_webhook(object) || old.is_some_and(uses_webhook) {
        return Ok(());
    }
    let mut errors = Errors::new();
    let detail =
        "webhook converters are not supported by this server: use None, which rewrites the apiVersion and nothing else";
    errors.forbidden(Path::new("spec.conversion.strategy"), detail);
    let name = crate::objects::metadata::text(object, "name");
    Err(Failure::invalid(resource.group, resource.kind, name, &errors))
}
