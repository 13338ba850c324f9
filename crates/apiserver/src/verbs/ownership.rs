//! Field ownership after an ordinary write.

use locks::Mutex;

use api::go_text;
use api::json::Value;
use http::header::USER_AGENT;

use super::{Call, FIELD_MANAGER_BYTES_MAX};
use api::metadata;
use patching::apply::{BuiltIn, CustomResourceKind, Reset, Shape, SingleKind, Versions, Write};

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
pub(super) async fn create(call: &Call<'_>, object: &Value) -> Option<Value> {
    let api_version = call.resource.api_version(&call.target.version);
    let (manager, now) = (manager(call), call.now().to_string());
    let work = |versions: &dyn Versions| {
        let empty = versions.empty(&api_version);
        write(call, versions, &api_version, "", &manager, &now).update(&empty, object)
    };
    // Kubernetes: managed fields are dropped when they cannot be computed.
    tracked(call, "", work).await.unwrap_or_default()
}

/// The managed fields of a changed object, both in the stored version.
pub(super) async fn update(call: &Call<'_>, old: &Value, object: &Value, subresource: &str) -> Option<Value> {
    let api_version = call.resource.api_version(&call.target.version);
    let (manager, now) = (manager(call), call.now().to_string());
    let work =
        |versions: &dyn Versions| write(call, versions, &api_version, subresource, &manager, &now).update(old, object);
    tracked(call, subresource, work).await.unwrap_or_default()
}

/// Does some work on the versions of the resource. Where a webhook converts between them, the work is done again with each
/// conversion that it asks for, until it has all of them: it is pure, and nothing in it can wait.
///
/// # Errors
/// The text of a failed conversion.
pub(super) async fn tracked<T>(
    call: &Call<'_>,
    subresource: &str,
    work: impl Fn(&dyn Versions) -> T,
) -> std::result::Result<T, String> {
    let Some(custom) = call.webhook() else { return Ok(work(&*versions(call, subresource))) };
    let mut made: Vec<Conversion> = Vec::new();
    for _ in 0..CONVERSIONS_MAX {
        let missing = {
            let versions =
                ConvertedVersions { custom: custom.versions(subresource), made: &made, missing: Mutex::default() };
            let done = work(&versions);
            match versions.missing.into_inner() {
                None => return Ok(done),
                Some(missing) => missing,
            }
        };
        let (object, to) = missing;
        let converted = custom.converted_to(object.clone(), &to).await?;
        made.push((object, to, converted));
    }
    Err("too many conversions are needed to track the owners of fields".to_owned())
}

/// More conversions of one object are not made for a write.
const CONVERSIONS_MAX: usize = 64;

/// A document, another version, and the document in that.
type Conversion = (Value, String, Value);

/// The versions of a custom resource, with the conversions that a webhook made so far.
struct ConvertedVersions<'a> {
    custom: CustomResourceKind<'a>,
    made: &'a [Conversion],
    /// The first conversion that is missing.
    missing: Mutex<Option<(Value, String)>>,
}

impl Versions for ConvertedVersions<'_> {
    fn shape(&self, api_version: &str) -> Option<Shape<'_>> {
        self.custom.shape(api_version)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Option<Value> {
        self.shape(api_version)?;
        // Kubernetes: an object that has nothing but its type is not sent to the webhook.
        if object.as_object().is_some_and(|fields| fields.len() <= 2) {
            return self.custom.convert(object, api_version);
        }
        let found = self.made.iter().find(|(from, to, _)| to == api_version && from == object);
        if found.is_none() {
            let mut missing = self.missing.lock();
            missing.get_or_insert_with(|| (object.clone(), api_version.to_owned()));
        }
        found.map(|(_, _, converted)| converted.clone())
    }

    fn empty(&self, api_version: &str) -> Value {
        self.custom.empty(api_version)
    }

    fn reset(&self) -> &Reset {
        self.custom.reset()
    }
}

/// Gives an object that is sent and not stored the managed fields of its sender.
pub(super) fn own(call: &Call<'_>, (group, kind): (&str, &'static str), subresource: &str, object: &mut Value) {
    let versions = SingleKind::new(kind);
    let api_version = crate::resources::api_version(group, "v1");
    let (manager, now) = (manager(call), call.now().to_string());
    let write =
        Write { versions: &versions, api_version: &api_version, kind, subresource, manager: &manager, now: &now };
    metadata::remove(object, "managedFields");
    if let Some(managed_fields) = write.update(&versions.empty(&api_version), object) {
        metadata::set(object, "managedFields", managed_fields);
    }
}

/// As [`update`], by someone else than the client, of a built-in resource.
pub(super) fn update_by(
    call: &Call<'_>,
    manager: &str,
    old: &Value,
    object: &Value,
    subresource: &str,
) -> Option<Value> {
    let versions = versions(call, subresource);
    let api_version = call.resource.api_version(&call.target.version);
    let now = call.now().to_string();
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
