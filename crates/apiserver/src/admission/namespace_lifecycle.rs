//! `NamespaceLifecycle`: nothing is made in a namespace that does not exist or is going away.

use std::sync::Arc;

use api::json::Value;

use crate::http::status::{Failure, Result};
use crate::objects::metadata;
use crate::resources::{self, Resource};
use crate::server::Server;

/// Checks the namespace of a new object.
///
/// # Errors
/// 404 or 403.
pub(super) async fn validate(server: &Arc<Server>, resource: &Resource<'_>, object: &Value) -> Result<()> {
    if !resource.namespaced {
        return Ok(());
    }
    let name = metadata::text(object, "namespace");
    let Some(namespaces) = resources::find("", "v1", "namespaces") else { return Ok(()) };
    let key = namespaces.key("", name);
    let mut found = server.cache.resource(&namespaces.prefix()).get(&key);
    if found.is_none() {
        // It may have been made a moment ago.
        let current = server.store.current_revision().await?;
        if server.cache.reach(current).await.is_ok() {
            found = server.cache.resource(&namespaces.prefix()).get(&key);
        }
    }
    let Some(namespace) = found else { return Err(Failure::not_found(namespaces, name)) };
    // The text of a namespace that is not going away cannot hold this.
    let may_be_terminating = namespace.contains(b"\"Terminating\"");
    if may_be_terminating && namespace.decode().str_at(&["status", "phase"]) == Some("Terminating") {
        let why = format!("unable to create new content in namespace {name} because it is being terminated");
        let object_name = super::shown_name(object);
        let cause = api::json!({
            "reason": "NamespaceTerminating",
            "message": (format!("namespace {name} is being terminated")),
            "field": "metadata.namespace"
        });
        return Err(Failure::forbidden(resource.group, resource.plural, object_name, &why)
            .with_detail("causes", Value::Array(vec![cause])));
    }
    Ok(())
}
