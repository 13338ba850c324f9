//! Fills an [`Env`] from libraries and declarations.

use std::sync::Arc;

use super::function::{Implementation, OVERLOADS_MAX, ResolvedOverload};
use super::names::{NameMap, Roots};
use super::well_known::WellKnown;
use super::{
    Call, Container, Env, Function, Inner, LibraryVersion, NoTypes, Overload, PartialFunction, Price, Singleton,
    TypeProvider, Validator, Variable,
};
use crate::syntax;
use crate::syntax::ast::Name;
use crate::syntax::macros::{Macro, MacroTable};
use crate::types::{Signature, Type};
use crate::value::{EvalError, Value};

/// A set of functions, types and macros that an environment can hold, up to a version.
#[derive(Clone, Debug)]
pub struct Library {
    /// Name of the library.
    pub name: &'static str,
    /// Overloads that appeared later are left out.
    pub version: LibraryVersion,
    /// The overloads of all versions.
    pub overloads: &'static [Overload],
    /// Implementations that overloads share.
    pub singletons: &'static [Singleton],
    /// Names of types that expressions can use as values: `int`, `net.IP`.
    pub types: Vec<(&'static str, Type)>,
    /// Its macros, of all versions.
    pub macros: &'static [Macro],
    /// Validators that run after an expression has been checked.
    pub validators: &'static [Validator],
    /// Implementations of its functions for unknown operands.
    pub partial: &'static [(&'static str, PartialFunction)],
}

/// A reason why an environment cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvError {
    /// A signature's notation is wrong.
    #[error("signature `{0}` does not parse")]
    Signature(String),
    /// A function has too many overloads.
    #[error("function `{0}` has more than {OVERLOADS_MAX} overloads")]
    TooManyOverloads(String),
    /// Two overloads with one identifier but different signatures.
    #[error("overload `{0}` is declared twice")]
    Conflict(String),
}

/// Collects the parts of an environment; see [`Env::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    pub(super) inner: Inner,
    error: Option<EnvError>,
}

impl Builder {
    pub(super) fn new() -> Self {
        let inner = Inner {
            container: Container::default(),
            variables: NameMap::default(),
            type_values: Arc::default(),
            functions: Arc::default(),
            function_roots: Roots::default(),
            provider: Arc::new(WellKnown(Arc::new(NoTypes))),
            options: super::Options::default(),
            syntax: syntax::Options::default(),
            macros: MacroTable::empty(),
            validators: Vec::new(),
        };
        Builder { inner, error: None }
    }

    pub(super) fn extend(inner: Inner) -> Self {
        Builder { inner, error: None }
    }

    /// The namespace in which names are looked for first.
    #[must_use]
    pub fn container(mut self, name: &str) -> Self {
        self.inner.container = Container::new(name);
        self
    }

    /// Declares a variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value_type: Type) -> Self {
        self.inner.variables.insert(name.into(), Variable { variable_type: value_type, constant: None });
        self
    }

    /// Declares a constant.
    #[must_use]
    pub fn constant(mut self, name: &str, value_type: Type, value: Value<'static>) -> Self {
        self.inner.variables.insert(name.into(), Variable { variable_type: value_type, constant: Some(value) });
        self
    }

    /// Adds the types of the host to protobuf's own: wrappers, timestamps and similar ones.
    #[must_use]
    pub fn types(mut self, provider: Arc<dyn TypeProvider>) -> Self {
        self.inner.provider = Arc::new(WellKnown(provider));
        self
    }

    /// Changes how expressions are parsed, checked and planned.
    #[must_use]
    pub fn options(mut self, change: impl FnOnce(&mut super::Options)) -> Self {
        change(&mut self.inner.options);
        self
    }

    /// Changes the options and limits of the parser.
    #[must_use]
    pub fn syntax(mut self, change: impl FnOnce(&mut syntax::Options)) -> Self {
        change(&mut self.inner.syntax);
        self
    }

    /// Adds macros; they replace earlier ones for the same calls.
    #[must_use]
    pub fn macros<'m>(mut self, macros: impl IntoIterator<Item = &'m Macro>) -> Self {
        self.inner.macros = self.inner.macros.with(macros);
        self
    }

    /// Adds a validator, unless it was added before.
    #[must_use]
    pub fn validator(mut self, validator: Validator) -> Self {
        if !self.inner.validators.iter().any(|known| known.name() == validator.name()) {
            self.inner.validators.push(validator);
        }
        self
    }

    /// Adds a library, up to its version.
    #[must_use]
    pub fn library(mut self, library: &Library) -> Self {
        for (name, of) in &library.types {
            Arc::make_mut(&mut self.inner.type_values).insert(Name::from_static(name), of.clone());
        }
        for overload in library.overloads.iter().filter(|overload| overload.since <= library.version) {
            let implementation = match overload.call {
                Call::Builtin => Implementation::Builtin,
                Call::Singleton => Implementation::Singleton,
                Call::Native(function) => Implementation::Native(function),
            };
            match Signature::parse(overload.signature) {
                Some(signature) => {
                    let id = Name::from_static(overload.id);
                    let mut resolved = ResolvedOverload::new(id, signature, overload.price, implementation);
                    resolved.plan_time = overload.plan_time;
                    self.declare(resolved);
                }
                None => self.error = Some(EnvError::Signature(overload.signature.to_owned())),
            }
        }
        if !library.macros.is_empty() {
            self.inner.macros = self.inner.macros.with(library.macros);
        }
        for validator in library.validators {
            self = self.validator(*validator);
        }
        for singleton in library.singletons {
            let name = Name::from_static(singleton.function);
            if let Some(function) = Arc::make_mut(&mut self.inner.functions).get_mut(&name) {
                Arc::make_mut(function).singleton = Some(*singleton);
            }
        }
        for (name, partial) in library.partial {
            if let Some(function) = Arc::make_mut(&mut self.inner.functions).get_mut(&Name::from_static(name)) {
                Arc::make_mut(function).partial = Some(*partial);
            }
        }
        self
    }

    /// Declares a function of the host, in the notation of [`Signature::parse`]: `string.shout(int) -> string`.
    ///
    /// Several declarations with one name and different signatures are its overloads.
    #[must_use]
    pub fn function<F>(self, signature: &str, price: Price, call: F) -> Self
    where
        F: for<'v> Fn(&[Value<'v>]) -> Result<Value<'v>, EvalError> + Send + Sync + 'static,
    {
        self.overload(signature, signature, price, Implementation::Closure(Arc::new(call)))
    }

    /// Declares an overload under an identifier of its own.
    #[must_use]
    pub fn overload(mut self, id: &str, signature: &str, price: Price, implementation: Implementation) -> Self {
        match Signature::parse(signature) {
            Some(parsed) => self.declare(ResolvedOverload::new(id.into(), parsed, price, implementation)),
            None => self.error = Some(EnvError::Signature(signature.to_owned())),
        }
        self
    }

    fn declare(&mut self, overload: ResolvedOverload) {
        let name = overload.signature.function.clone();
        self.inner.function_roots.insert(&name);
        let function = Arc::make_mut(&mut self.inner.functions)
            .entry(name.clone())
            .or_insert_with(|| Arc::new(Function { name, overloads: Vec::new(), singleton: None, partial: None }));
        let function = Arc::make_mut(function);
        if matches!(overload.implementation, Implementation::Closure(_)) {
            // Properties of a library's own code need not hold for the host's.
            function.partial = None;
        }
        if let Some(earlier) = function.overloads.iter_mut().find(|earlier| earlier.id == overload.id) {
            if earlier.signature == overload.signature {
                *earlier = overload;
            } else {
                self.error = Some(EnvError::Conflict(overload.id.to_string()));
            }
        } else if function.overloads.len() == OVERLOADS_MAX {
            self.error = Some(EnvError::TooManyOverloads(function.name.to_string()));
        } else {
            function.overloads.push(overload);
        }
    }

    /// The finished environment, or the last declaration that is wrong.
    pub fn build(self) -> Result<Env, EnvError> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(Env(Arc::new(self.inner))),
        }
    }
}
