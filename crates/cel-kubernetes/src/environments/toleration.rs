//! `Toleration.expression`: reads one taint, yields whether it is tolerated (KEP-5500).

use std::ops::ControlFlow;

use cel::env::EnvError;
use cel::program::Activation;
use cel::syntax::ast::Name;
use cel::types::Type;
use cel::value::{HostObject, Timestamp, Value};

use super::{Dialect, Language};
use crate::compile::{Environment, ExpressionLimits, ResultRule};
use crate::declared::DeclaredType;

const TYPE_NAME: &str = "kubernetes.Taint";
const VARIABLE: &str = "taint";

/// The environment of toleration expressions.
pub fn environment(dialect: Dialect) -> Result<Environment, EnvError> {
    environment_in(&dialect.language()?)
}

/// Like `environment`, in a language that other environments share: takes a fraction of the time.
pub fn environment_in(language: &Language) -> Result<Environment, EnvError> {
    let declared = DeclaredType::object(
        TYPE_NAME,
        [
            (Name::from_static("key"), DeclaredType::string(317)),
            (Name::from_static("value"), DeclaredType::string(63)),
            (Name::from_static("effect"), DeclaredType::string(16)),
            (Name::from_static("timeAdded"), DeclaredType::scalar(Type::Timestamp, 0, 12)),
        ],
    );
    super::with_variables(language, [(VARIABLE, declared)], ResultRule::BoolOrUnknown, ExpressionLimits::PLACEMENT)
}

/// A taint, as toleration expressions see it.
#[derive(Debug, Clone, Copy)]
pub struct Taint<'t> {
    /// The taint's key.
    pub key: &'t str,
    /// The taint's value.
    pub value: &'t str,
    /// The taint's effect.
    pub effect: &'t str,
    /// Time at which the taint was added; absent for most taints.
    pub time_added: Option<Timestamp>,
}

impl Activation for Taint<'_> {
    fn resolve(&self, name: &str) -> Option<Value<'_>> {
        self.object(name).map(Value::Object)
    }

    fn object(&self, name: &str) -> Option<&dyn HostObject> {
        if name == VARIABLE { Some(self) } else { None }
    }
}

impl HostObject for Taint<'_> {
    fn type_name(&self) -> &str {
        TYPE_NAME
    }

    fn get(&self, field: &str) -> Option<Value<'_>> {
        match field {
            "timeAdded" => self.time_added.map(Value::Timestamp),
            _ => self.text(field).map(Value::str),
        }
    }

    fn text(&self, field: &str) -> Option<&str> {
        match field {
            "key" => Some(self.key),
            "value" => Some(self.value),
            "effect" => Some(self.effect),
            _ => None,
        }
    }

    fn for_each<'v>(&'v self, visit: &mut dyn FnMut(&'v str, Value<'v>) -> ControlFlow<()>) {
        super::visit_fields(self, &["key", "value", "effect", "timeAdded"], visit);
    }
}
