//! Types that the host declares.

use std::fmt;

use crate::syntax::ast::Name;
use crate::types::Type;
use crate::value::{EvalError, Value};

/// The declared type of an object's field.
#[derive(Clone, Debug)]
pub struct FieldType {
    /// The field's type.
    pub field_type: Type,
}

/// Object types, their fields, and constants that the host declares.
pub trait TypeProvider: fmt::Debug + Send + Sync {
    /// The object type with this name.
    fn find_type(&self, name: &str) -> Option<Type>;

    /// A field of an object type.
    fn find_field(&self, type_name: &str, field: &str) -> Option<FieldType>;

    /// The names of an object type's fields.
    fn field_names(&self, _type_name: &str) -> Vec<Name> {
        Vec::new()
    }

    /// A type's name that is also a value at run time. cel-go's object types of Kubernetes are not.
    fn find_type_value(&self, _name: &str) -> Option<Type> {
        None
    }

    /// A constant, such as an enumeration's value.
    fn find_constant(&self, _name: &str) -> Option<Value<'static>> {
        None
    }

    /// Builds an object from an expression such as `Type{field: value}`.
    fn construct<'v>(&self, type_name: &str, _fields: Vec<(Name, Value<'v>)>) -> Result<Value<'v>, EvalError> {
        Err(EvalError::other(format!("unknown type '{type_name}'")))
    }
}

/// A host without types of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTypes;

impl TypeProvider for NoTypes {
    fn find_type(&self, _name: &str) -> Option<Type> {
        None
    }

    fn find_field(&self, _type_name: &str, _field: &str) -> Option<FieldType> {
        None
    }
}
