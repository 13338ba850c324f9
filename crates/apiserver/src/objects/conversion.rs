//! Stored documents in other versions.

use api::json::Value;
use registry::conversion;

use crate::resources::Resource;

/// Turns a stored document into a version, in its normal form.
pub(crate) fn convert(resource: &Resource<'_>, version: &str, value: &mut Value) {
    if conversion::is_stored(resource, version) {
        return;
    }
    conversion::from_stored(resource, version, value);
    let normal = resource.object_type(version).and_then(|of| api::types::decode(of, value).ok());
    if let Some(normal) = normal {
        *value = normal.value;
    }
}
