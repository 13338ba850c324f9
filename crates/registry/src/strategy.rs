//! Strategy of a kind: the functions that its row in [`resources`](crate::resources) names.
//!
//! A strategy follows Kubernetes' `rest.RESTCreateStrategy` and its siblings: prepare (reset fields that users
//! may not set, drop gated ones), validate, warn. [`admit`](crate::admit) defines their order.

use api::features::Features;
use api::field::Errors;
use api::json::Value;

use crate::expressions::Expressions;

/// Inputs of validation and preparation besides the object.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Enabled features.
    pub features: Features,
    /// Compiler of expressions.
    pub expressions: &'a dyn Expressions,
    /// The namespace of the request, empty for resources without one.
    pub namespace: &'a str,
    /// The time, as objects show it.
    pub now: &'a str,
    /// The uid of an object that is created.
    pub uid: &'a str,
    /// Suffix of a name created from `generateName`.
    pub name_suffix: &'a str,
    /// Whether the namespace has the label that permits admin access to devices.
    pub namespace_allows_admin_access: bool,
}

impl<'a> Context<'a> {
    /// The context of rules that use neither the request nor the time, such as merging annotations.
    #[must_use]
    pub fn without_request(features: Features, expressions: &'a dyn Expressions) -> Self {
        Context {
            features,
            expressions,
            namespace: "",
            now: "",
            uid: "",
            name_suffix: "",
            namespace_allows_admin_access: false,
        }
    }
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("features", &self.features).field("namespace", &self.namespace).finish()
    }
}

type PrepareFn = fn(&mut Value, &Context<'_>);
type PrepareUpdate = fn(&mut Value, &Value, &Context<'_>);
type ValidateFn = fn(&Value, &Context<'_>, &mut Errors);
type ValidateUpdate = fn(&Value, &Value, &Context<'_>, &mut Errors);
type WarnFn = fn(&Value, Option<&Value>, &Context<'_>) -> Vec<String>;

/// The meaning of one kind.
#[derive(Debug, Clone, Copy)]
pub struct Strategy {
    /// Resets and drops fields of a new object.
    pub(crate) prepare_create: PrepareFn,
    /// Validates a new object.
    pub(crate) validate_create: ValidateFn,
    /// Resets and drops fields of a changed object.
    pub(crate) prepare_update: PrepareUpdate,
    /// Validates a change.
    pub(crate) validate_update: ValidateUpdate,
    /// Returns the warnings for an accepted object.
    pub(crate) warn: WarnFn,
    /// The last touch after validation.
    pub(crate) canonicalize: fn(&mut Value),
    /// Parts that are changed on their own.
    pub(crate) subresources: &'static [(&'static str, Part)],
}

/// The meaning of a subresource that is written as the whole object.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// Keeps everything but the part.
    pub(crate) prepare: PrepareUpdate,
    /// Validates the change.
    pub(crate) validate: ValidateUpdate,
}

/// Defaults of a strategy.
pub(crate) const PLAIN: Strategy = Strategy {
    prepare_create: |_, _| {},
    validate_create: |_, _, _| {},
    prepare_update: |_, _, _| {},
    validate_update: |_, _, _, _| {},
    warn: |_, _, _| Vec::new(),
    canonicalize: |_| {},
    subresources: &[],
};
