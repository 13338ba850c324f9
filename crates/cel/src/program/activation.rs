//! Activations: sources of variable values.

use crate::value::{HostObject, Value};

/// The values of an environment's variables, during one evaluation.
pub trait Activation: Sync {
    /// The variable's value, or nothing where it has none: reading it is then an error.
    fn resolve(&self, name: &str) -> Option<Value<'_>>;

    /// The variable's value if it is an object. Equivalent to [`resolve`](Self::resolve), but faster.
    fn object(&self, name: &str) -> Option<&dyn HostObject> {
        match self.resolve(name) {
            Some(Value::Object(object)) => Some(object),
            _ => None,
        }
    }
}

/// No variables.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmptyActivation;

impl Activation for EmptyActivation {
    fn resolve(&self, _name: &str) -> Option<Value<'_>> {
        None
    }
}

/// Variables by name.
///
/// ```
/// use celplane_cel::program::Bindings;
/// let input = Bindings::new().bind("x", 1_i64).bind("name", "celplane");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Bindings<'a>(Vec<(&'a str, Value<'a>)>);

impl<'a> Bindings<'a> {
    /// No variables yet.
    pub fn new() -> Self {
        Bindings(Vec::new())
    }

    /// Binds a variable to a value.
    #[must_use]
    pub fn bind(mut self, name: &'a str, value: impl Into<Value<'a>>) -> Self {
        self.0.push((name, value.into()));
        self
    }
}

impl Activation for Bindings<'_> {
    fn resolve(&self, name: &str) -> Option<Value<'_>> {
        self.0.iter().rev().find(|(bound, _)| *bound == name).map(|(_, value)| value.borrowed())
    }
}

/// One variable.
impl Activation for (&str, Value<'_>) {
    fn resolve(&self, name: &str) -> Option<Value<'_>> {
        (self.0 == name).then(|| self.1.borrowed())
    }
}
