//! The versions of a custom resource, as an input of the engine.

use api::json::Value;
use api::structural_schema::Schema;

use super::ownership::Versions;
use super::reset::Reset;
use super::shape::Shape;

/// A custom resource, written through one of its paths. Its versions differ in nothing but their name and schema.
#[derive(Debug)]
pub struct CustomResourceKind<'s> {
    kind: &'s str,
    /// `group/version`, and the schema of that version if it has one.
    versions: Vec<(String, Option<&'s Schema>)>,
    reset: Reset,
}

impl<'s> CustomResourceKind<'s> {
    /// A resource with these versions, named `group/version`.
    ///
    /// `has_status` is true if the status is a subresource; `subresource` is the one being written.
    #[must_use]
    pub fn new(
        kind: &'s str,
        versions: Vec<(String, Option<&'s Schema>)>,
        has_status: bool,
        subresource: &str,
    ) -> Self {
        Self { kind, versions, reset: Reset::of_custom_resource(has_status, subresource) }
    }
}

impl Versions for CustomResourceKind<'_> {
    fn shape(&self, api_version: &str) -> Option<Shape<'_>> {
        let (_, schema) = self.versions.iter().find(|(it, _)| it == api_version)?;
        Some(schema.map_or(Shape::Deduced, Shape::of_custom_resource))
    }

    fn convert(&self, object: &Value, api_version: &str) -> Option<Value> {
        self.shape(api_version)?;
        let mut object = object.clone();
        object.as_object_mut()?.insert("apiVersion", api_version);
        Some(object)
    }

    fn empty(&self, api_version: &str) -> Value {
        api::json!({"apiVersion": api_version, "kind": (self.kind)})
    }

    fn reset(&self) -> &Reset {
        &self.reset
    }
}
