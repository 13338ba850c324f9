//! `ServiceAccount`: a pod without an account runs as `default`.
//!
//! Accounts that do not exist are not held against the pod: there is no controller that makes `default`, and tokens are
//! not mounted.

use std::sync::Arc;

use api::json::Value;

use crate::server::Server;
use crate::status::Result;

/// Names the account of a new pod.
pub(super) fn mutate(_server: &Arc<Server>, pod: &mut Value) -> Result<()> {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    let named = |spec: &api::json::Object, field: &str| spec.get(field).and_then(Value::as_str).map(ToOwned::to_owned);
    let name = named(spec, "serviceAccountName").or_else(|| named(spec, "serviceAccount"));
    let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| "default".to_owned());
    spec.insert("serviceAccountName", name.as_str());
    spec.insert("serviceAccount", name);
    Ok(())
}
