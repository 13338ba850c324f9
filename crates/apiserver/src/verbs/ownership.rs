//! Who owns the fields of an object after an ordinary write.

use api::go_text;
use api::json::Value;
use http::header::USER_AGENT;

use super::{Call, FIELD_MANAGER_BYTES_MAX};
use crate::clock;
use crate::objects::apply::{BuiltIn, Versions, Write};

/// The name by which the client owns what it writes: the one it gives, else the first word of its user agent.
pub(super) fn manager(call: &Call<'_>) -> String {
    let given = call.query.get("fieldManager");
    if !given.is_empty() {
        return given.to_owned();
    }
    let agent = call.headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut name = String::new();
    for letter in agent.split('/').next().unwrap_or_default().chars().filter(|it| go_text::is_printable(*it)) {
        if name.len().saturating_add(letter.len_utf8()) > FIELD_MANAGER_BYTES_MAX {
            break;
        }
        name.push(letter);
    }
    name
}

/// The versions of the resource, written through one of its paths.
pub(super) fn versions<'c>(call: &'c Call<'_>, subresource: &str) -> Box<dyn Versions + 'c> {
    match call.custom() {
        Some(custom) => Box::new(custom.versions(subresource)),
        None => Box::new(BuiltIn::new(call.resource, subresource)),
    }
}

/// The managed fields of a new object in the stored version.
pub(super) fn create(call: &Call<'_>, object: &Value) -> Option<Value> {
    let versions = versions(call, "");
    let api_version = call.resource.api_version(&call.target.version);
    let empty = versions.empty(&api_version);
    let (manager, now) = (manager(call), clock::now().to_string());
    write(call, &*versions, &api_version, "", &manager, &now).update(&empty, object)
}

/// The managed fields of a changed object, both in the stored version.
pub(super) fn update(call: &Call<'_>, old: &Value, object: &Value, subresource: &str) -> Option<Value> {
    update_by(call, &manager(call), old, object, subresource)
}

/// As [`update`], by someone else than the client.
pub(super) fn update_by(
    call: &Call<'_>,
    manager: &str,
    old: &Value,
    object: &Value,
    subresource: &str,
) -> Option<Value> {
    let versions = versions(call, subresource);
    let api_version = call.resource.api_version(&call.target.version);
    let now = clock::now().to_string();
    write(call, &*versions, &api_version, subresource, manager, &now).update(old, object)
}

/// A write by a client to the resource of a call.
pub(super) fn write<'a>(
    call: &'a Call<'_>,
    versions: &'a dyn Versions,
    api_version: &'a str,
    subresource: &'a str,
    manager: &'a str,
    now: &'a str,
) -> Write<'a> {
    Write { versions, api_version, kind: call.resource.kind, subresource, manager, now }
}
