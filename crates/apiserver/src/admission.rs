//! What happens to objects between decoding and the store, whatever their kind says: defaults that depend on other
//! objects, and refusals that depend on the state of the cluster.
//!
//! One file per plugin, each with Kubernetes' name and texts.

mod certificates;
mod default_storage_class;
mod default_toleration_seconds;
mod limit_ranger;
mod namespace_lifecycle;
pub(crate) mod node_restriction;
mod node_taints;
mod priority;
mod resource_quota;
pub(crate) mod role_escalation;
mod runtime_class;
mod service_account;
mod storage_in_use;
pub(crate) mod unenforced;
mod webhook_conversion;

use std::sync::Arc;

use api::field::Errors;
use api::json::Value;

use crate::http::status::Result;
use crate::identity::User;
use crate::resources::Resource;
use crate::server::Server;

pub use self::node_restriction::mentioned;

/// What is done with the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// It is new.
    Create,
    /// It changes.
    Update,
}

/// Fills in what other objects decide. The object is in the stored version.
///
/// # Errors
/// 403 if something that it needs is missing.
pub fn mutate(
    server: &Arc<Server>,
    resource: &Resource<'_>,
    object: &mut Value,
    operation: Operation,
    _user: &User,
) -> Result<()> {
    match (resource.group, resource.plural, operation) {
        ("", "pods", Operation::Create) => {
            if !server.options.disabled_admission_plugins.iter().any(|it| it == "ServiceAccount") {
                service_account::mutate(server, object)?;
            }
            priority::mutate(server, object)?;
            limit_ranger::mutate(server, object);
            default_toleration_seconds::mutate(object);
            runtime_class::mutate(server, object)?;
        }
        ("", "pods", Operation::Update) => default_toleration_seconds::mutate(object),
        ("", "nodes", Operation::Create) => node_taints::mutate(object),
        ("", "persistentvolumeclaims", Operation::Create) => {
            default_storage_class::mutate(server, object);
            storage_in_use::mutate(resource.plural, object);
        }
        ("", "persistentvolumes", Operation::Create)
        | ("storage.k8s.io", "volumeattributesclasses", Operation::Create) => {
            storage_in_use::mutate(resource.plural, object);
        }
        _ => {}
    }
    Ok(())
}

/// Writes into a new object what only the server knows of who sends it.
pub fn name_sender(resource: &Resource<'_>, object: &mut Value, user: &User) {
    certificates::name_requester(resource, object, user);
}

/// Adds what is wrong with a new object that its kind alone cannot say.
pub(crate) fn complain(resource: &Resource<'_>, object: &Value, errors: Errors) -> Errors {
    certificates::validate_signature(resource, object, errors)
}

/// As [`mutate`], for a new object, which may need another that was made a moment ago.
///
/// # Errors
/// Those of [`mutate`] and of the store.
pub async fn mutate_new(server: &Arc<Server>, resource: &Resource<'_>, object: &mut Value, user: &User) -> Result<()> {
    if (resource.group, resource.plural) == ("", "pods") {
        service_account::wait(server, object).await;
    }
    let Err(refused) = mutate(server, resource, object, Operation::Create, user) else { return Ok(()) };
    let current = server.store.current_revision().await?;
    if server.cache.reach(current).await.is_err() {
        return Err(refused);
    }
    mutate(server, resource, object, Operation::Create, user)
}

/// Refuses what may not be.
///
/// # Errors
/// 403 with the reason.
pub async fn validate(
    server: &Arc<Server>,
    resource: &Resource<'_>,
    object: &Value,
    old: Option<&Value>,
    operation: Operation,
    user: &User,
) -> Result<()> {
    if operation == Operation::Create {
        certificates::validate_create(server, resource, object, user)?;
        namespace_lifecycle::validate(server, resource, object).await?;
        if (resource.group, resource.plural) == ("", "pods") {
            runtime_class::validate(server, object)?;
        }
    }
    limit_ranger::validate(server, resource, object)?;
    webhook_conversion::validate(resource, object, old)
}

/// Counts what is created where there are limits, after everything else has been asked.
///
/// # Errors
/// 403 with the reason.
pub async fn charge(server: &Arc<Server>, resource: &Resource<'_>, object: &Value, dry_run: bool) -> Result<()> {
    resource_quota::charge(server, resource, object, None, dry_run).await
}

/// Counts what a change adds where there are limits.
///
/// # Errors
/// 403 with the reason.
pub(crate) async fn charge_change(
    server: &Arc<Server>,
    resource: &Resource<'_>,
    subresource: &str,
    change: (&Value, &Value),
    dry_run: bool,
) -> Result<()> {
    resource_quota::charge_change(server, resource, subresource, change, dry_run).await
}

/// Refuses a change that may not be.
///
/// # Errors
/// 403 with the reason.
pub fn validate_update(
    server: &Arc<Server>,
    resource: &Resource<'_>,
    object: &Value,
    old: &Value,
    subresource: &str,
    user: &User,
) -> Result<()> {
    certificates::validate_update(server, resource, object, old, subresource, user)?;
    if resource.plural == "persistentvolumeclaims" {
        limit_ranger::validate(server, resource, object)?;
    }
    webhook_conversion::validate(resource, object, Some(old))
}

/// What refusals call an object, whose name may be made later.
fn shown_name(object: &Value) -> &str {
    let names = ["name", "generateName"].map(|field| crate::objects::metadata::text(object, field));
    names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown")
}
