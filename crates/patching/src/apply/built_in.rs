//! The versions of built-in resources, as an input of the engine.

use api::json::Value;
use api::types;

use super::ownership::Versions;
use super::reset::Reset;
use super::shape::Shape;
use registry::conversion;
use registry::resources::{self, Resource};

/// A built-in resource, written through one of its paths.
#[derive(Debug)]
pub struct BuiltIn<'a> {
    resource: &'a Resource<'a>,
    reset: Reset,
}

impl<'a> BuiltIn<'a> {
    /// A resource and the path below its objects that is written, empty for the objects themselves.
    #[must_use]
    pub fn new(resource: &'a Resource<'a>, subresource: &str) -> Self {
        Self { resource, reset: Reset::of_resource(resource, subresource) }
    }

    /// The resource that serves the same objects in a version. Events have two groups.
    fn served<'v>(&self, api_version: &'v str) -> Option<(&'a Resource<'a>, &'v str)> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if group == self.resource.group {
            return self.resource.versions.contains(&version).then_some((self.resource, version));
        }
        let other = resources::find(group, version, self.resource.plural)?;
        (other.storage_name() == self.resource.storage_name()).then_some((other, version))
    }
}

impl Versions for BuiltIn<'_> {
    fn shape(&self, api_version: &str) -> Option<Shape<'_>> {
        let (resource, version) = self.served(api_version)?;
        // Kubernetes: a write through one group of events drops the managers of the other group.
        if resource.group != self.resource.group {
            return None;
        }
        resource.object_type(version).map(Shape::of_type)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Option<Value> {
        let (to, to_version) = self.served(api_version)?;
        let (from, from_version) = self.served(object.get("apiVersion")?.as_str()?)?;
        let mut object = object.clone();
        conversion::to_stored(from, from_version, &mut object);
        conversion::from_stored(to, to_version, &mut object);
        let normal = types::decode(to.object_type(to_version)?, &object).ok()?;
        Some(normal.value)
    }

    fn empty(&self, api_version: &str) -> Value {
        empty(api_version, self.resource.kind)
    }

    fn reset(&self) -> &Reset {
        &self.reset
    }
}

/// An object of a built-in type with only its kind and the fields that are never omitted.
fn empty(api_version: &str, kind: &str) -> Value {
    let mut object = types::by_api_version(api_version, kind).map_or_else(Value::object, types::empty);
    if let Some(fields) = object.as_object_mut() {
        fields.insert("kind", kind);
        fields.insert("apiVersion", api_version);
    }
    object
}

/// A built-in kind without a resource: `Scale`, `TokenRequest`.
#[derive(Debug)]
pub struct SingleKind {
    kind: &'static str,
    reset: Reset,
}

impl SingleKind {
    /// A kind, whose versions are not converted.
    #[must_use]
    pub const fn new(kind: &'static str) -> Self {
        Self { kind, reset: Reset::nothing() }
    }
}

impl Versions for SingleKind {
    fn shape(&self, api_version: &str) -> Option<Shape<'_>> {
        types::by_api_version(api_version, self.kind).map(Shape::of_type)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Option<Value> {
        (object.get("apiVersion")?.as_str()? == api_version).then(|| object.clone())
    }

    fn empty(&self, api_version: &str) -> Value {
        empty(api_version, self.kind)
    }

    fn reset(&self) -> &Reset {
        &self.reset
    }
}
