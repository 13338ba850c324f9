//! `apiextensions.k8s.io/v1`: definitions of custom resources.
//!
//! `expression` of a printer column is the field of KEP-4595.

use crate::json::{Text, Value};
use crate::meta::v1::Condition;
use crate::structural_schema::Schema;
use crate::view::{object, view};

object! {
    /// A kind of objects that users bring.
    pub struct CustomResourceDefinition("apiextensions.k8s.io", "v1") {
        pub spec: CustomResourceDefinitionSpec,
        pub status: CustomResourceDefinitionStatus,
    }
}

view! {
    /// Specification of a custom resource definition.
    pub struct CustomResourceDefinitionSpec {
        pub group: Text,
        pub names: CustomResourceDefinitionNames,
        pub scope: Text,
        pub versions: Vec<CustomResourceDefinitionVersion>,
        pub conversion: Option<CustomResourceConversion>,
        pub preserve_unknown_fields: bool,
    }

    /// Names of the kind.
    pub struct CustomResourceDefinitionNames {
        pub plural: Text,
        pub singular: Text,
        pub short_names: Vec<Text>,
        pub kind: Text,
        pub list_kind: Text,
        pub categories: Vec<Text>,
    }

    /// One form of the kind.
    pub struct CustomResourceDefinitionVersion {
        pub name: Text,
        pub served: bool,
        pub storage: bool,
        pub deprecated: bool,
        pub deprecation_warning: Option<Text>,
        pub schema: Option<CustomResourceValidation>,
        pub subresources: Option<CustomResourceSubresources>,
        pub additional_printer_columns: Vec<CustomResourceColumnDefinition>,
        pub selectable_fields: Vec<SelectableField>,
    }

    /// The schema of a form.
    pub struct CustomResourceValidation {
        #[serde(rename = "openAPIV3Schema")]
        pub open_api_v3_schema: Option<Schema>,
    }

    /// Subresources of a custom resource.
    pub struct CustomResourceSubresources {
        pub status: Option<Value>,
        pub scale: Option<CustomResourceSubresourceScale>,
    }

    /// Paths of the replica counts.
    pub struct CustomResourceSubresourceScale {
        pub spec_replicas_path: Text,
        pub status_replicas_path: Text,
        pub label_selector_path: Option<Text>,
    }

    /// A column of the table that `kubectl get` shows: by path, or by expression.
    pub struct CustomResourceColumnDefinition {
        pub name: Text,
        #[serde(rename = "type")]
        pub column_type: Text,
        pub format: Text,
        pub description: Text,
        pub priority: i32,
        pub json_path: Text,
        pub expression: Text,
    }

    /// A field that can be selected by.
    pub struct SelectableField {
        pub json_path: Text,
    }

    /// Conversion between versions.
    pub struct CustomResourceConversion {
        pub strategy: Text,
        pub webhook: Option<Value>,
    }

    /// Observed state of a definition.
    pub struct CustomResourceDefinitionStatus {
        pub conditions: Vec<Condition>,
        pub accepted_names: CustomResourceDefinitionNames,
        pub stored_versions: Vec<Text>,
        pub observed_generation: i64,
    }
}
