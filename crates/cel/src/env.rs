//! Environments of expressions: variables, types, and functions with signature, price and code.
//!
//! An [`Env`] is built once, from libraries and declarations, and shared: it is immutable and cheap to clone.

mod amount;
mod builder;
mod container;
mod function;
mod names;
mod price;
mod provider;
mod structure;
mod typed;
mod validator;
mod well_known;

use std::sync::Arc;

pub use amount::{Cost, Size};
pub use builder::{Builder, EnvError, Library};
pub use container::Container;
pub use function::{
    Call, Function, Implementation, LibraryVersion, NativeFunction, Overload, PartialFunction, PlanTime, PrepareFn,
    PreparedCall, PreparedFn, PreparedTest, ResolvedOverload, Singleton, TextTest,
};
pub use price::{CallEstimate, CallSite, Outcome, Price, STRING_TRAVERSAL_FACTOR, traversal_cost};
pub use provider::{FieldType, NoTypes, TypeProvider};
pub(crate) use structure::{LIST_CREATION, MAP_CREATION, STRUCT_CREATION};
pub use typed::{OverloadSet, Reference, TypedAst};
pub use validator::{CustomValidator, Validator};

use names::{NameMap, Roots};

use crate::source::{Issues, Source};
use crate::syntax;
use crate::syntax::ast::{Ast, Name};
use crate::syntax::macros::MacroTable;
use crate::types::Type;
use crate::value::Value;

/// The declarations that expressions may refer to, with the options for parsing, checking and planning.
#[derive(Clone, Debug)]
pub struct Env(Arc<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    container: Container,
    variables: NameMap<Variable>,
    /// Shared with the environments that extend this one, until they add to it.
    type_values: Arc<NameMap<Type>>,
    functions: Arc<NameMap<Arc<Function>>>,
    /// The first parts of qualified names of functions.
    function_roots: Roots,
    provider: Arc<dyn TypeProvider>,
    options: Options,
    syntax: syntax::Options,
    macros: MacroTable,
    validators: Vec<Validator>,
}

/// A variable or constant.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Type of the variable.
    pub variable_type: Type,
    /// Value of the variable, if it is a constant.
    pub constant: Option<Value<'static>>,
}

/// Options for parsing, checking and planning.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Whether the elements of a list literal, and the keys and values of a map literal, must have one type.
    pub homogeneous_literals: bool,
    /// Whether comparisons of different numeric types, such as `1 < 1.5`, type-check.
    pub cross_type_comparisons: bool,
    /// Whether `has(a.b)` costs one more than its operand.
    pub presence_test_has_cost: bool,
    /// Whether calls with constant operands are computed when a program is planned.
    pub constant_folding: bool,
    /// Whether a presence test on a value without fields is an error instead of false.
    pub error_on_bad_presence_test: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            homogeneous_literals: false,
            cross_type_comparisons: true,
            presence_test_has_cost: true,
            constant_folding: true,
            error_on_bad_presence_test: false,
        }
    }
}

impl Env {
    /// Starts an environment that holds nothing, not even operators: add [`library::standard`](crate::library::standard).
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Starts an environment that holds all that this one holds.
    pub fn extend(&self) -> Builder {
        Builder::extend(self.0.as_ref().clone())
    }

    /// Parses an expression and expands its macros.
    pub fn parse(&self, source: &Source) -> Result<Ast, Issues> {
        syntax::parse(source, &self.0.macros, &self.0.syntax)
    }

    /// Options of the parser.
    pub fn syntax(&self) -> &syntax::Options {
        &self.0.syntax
    }

    /// The macros.
    pub fn macros(&self) -> &MacroTable {
        &self.0.macros
    }

    /// Validators that run after an expression has been checked, in this order.
    pub fn validators(&self) -> &[Validator] {
        &self.0.validators
    }

    /// The namespace that names are looked for in.
    pub fn container(&self) -> &Container {
        &self.0.container
    }

    /// Options for parsing, checking and planning.
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// The types that the host declares.
    pub fn provider(&self) -> &dyn TypeProvider {
        self.0.provider.as_ref()
    }

    /// The types that the host declares, shared.
    pub fn shared_provider(&self) -> Arc<dyn TypeProvider> {
        self.0.provider.clone()
    }

    /// A declared variable or constant, by its full name.
    pub fn variable(&self, name: &str) -> Option<&Variable> {
        self.0.variables.get(name)
    }

    /// A declared variable or constant and the name it was declared under.
    pub(crate) fn declared_variable(&self, name: &str) -> Option<(&Name, &Variable)> {
        self.0.variables.get_key_value(name)
    }

    /// A type that can be used as a value, by its full name.
    pub fn type_value(&self, name: &str) -> Option<Type> {
        self.0.type_values.get(name).cloned().or_else(|| self.0.provider.find_type_value(name))
    }

    /// A function, by its full name.
    pub fn function(&self, name: &str) -> Option<&Arc<Function>> {
        self.0.functions.get(name)
    }

    /// Whether the qualified name of some function may begin with this part. If false, no name does.
    pub(crate) fn may_qualify_function(&self, root: &str) -> bool {
        !self.0.container.name().is_empty() || self.0.function_roots.may_contain(root)
    }

    /// All functions.
    pub fn functions(&self) -> impl Iterator<Item = &Arc<Function>> {
        self.0.functions.values()
    }
}
