//! One file per place that accepts an expression: its variables, its sizes, and how its input is read.

pub mod admission;
pub mod base;
pub mod device;
pub mod devices;
pub mod node_affinity;
pub mod policy;
pub mod printer_column;
pub mod toleration;
pub mod validation_rule;

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use cel::env::{Builder, Env, EnvError};
use cel::value::{HostObject, Value};

use crate::compile::{Environment, ExpressionLimits, ResultRule};
use crate::declared::{DeclaredType, DeclaredTypes};
use crate::libraries::{self, Minor};
use crate::schema::TypedSchema;

/// The functions of an environment, besides its own variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect {
    /// The minor version of Kubernetes whose libraries it holds.
    pub minor: Minor,
    /// Whether the environment also contains the library `celplane`.
    pub with_celplane: bool,
}

impl Dialect {
    /// Dialect of Celplane's own fields.
    pub const CELPLANE: Dialect = Dialect { minor: Minor::CURRENT, with_celplane: true };

    /// Dialect of Kubernetes' fields.
    pub const KUBERNETES: Dialect = Dialect { minor: Minor::CURRENT, with_celplane: false };

    /// The dialect's functions, to make several environments from.
    pub fn language(self) -> Result<Language, EnvError> {
        let builder = libraries::base(self.minor);
        let builder = if self.with_celplane { builder.library(&libraries::celplane::celplane()) } else { builder };
        builder.build().map(Language)
    }
}

/// The functions of a dialect, built once: environments made from it share them.
#[derive(Debug, Clone)]
pub struct Language(Env);

impl Language {
    pub(crate) fn builder(&self) -> Builder {
        self.0.extend()
    }
}

/// The languages of a process, each built on first use.
#[derive(Debug, Default)]
pub struct Languages {
    celplane: OnceLock<Language>,
    kubernetes: OnceLock<Language>,
}

impl Languages {
    /// Language of Celplane's own fields.
    pub fn celplane(&self) -> Result<&Language, EnvError> {
        built(&self.celplane, Dialect::CELPLANE)
    }

    /// Language of Kubernetes' fields.
    pub fn kubernetes(&self) -> Result<&Language, EnvError> {
        built(&self.kubernetes, Dialect::KUBERNETES)
    }
}

fn built(language: &OnceLock<Language>, dialect: Dialect) -> Result<&Language, EnvError> {
    match language.get() {
        Some(language) => Ok(language),
        None => {
            let made = dialect.language()?;
            Ok(language.get_or_init(|| made))
        }
    }
}

/// An environment with variables of declared types.
fn with_variables<const N: usize>(
    language: &Language,
    variables: [(&'static str, DeclaredType); N],
    result: ResultRule,
    limits: ExpressionLimits,
) -> Result<Environment, EnvError> {
    let types = variables.map(|(name, declared)| (name, Arc::new(declared)));
    let types = Arc::new(DeclaredTypes::new(types).with_keywords_as_fields().with_sizes_of_selected_keys());
    let mut builder = language.builder();
    for (name, of) in types.variables() {
        builder = builder.variable(name, of.clone());
    }
    let env = builder.types(types.clone()).build()?;
    Ok(Environment { env, hints: types, result, limits })
}

/// An environment whose variables all have the type of a schema.
fn with_schema(
    language: &Language,
    schema: &TypedSchema,
    variables: &[&'static str],
    result: ResultRule,
    limits: ExpressionLimits,
) -> Result<Environment, EnvError> {
    let roots = variables.iter().map(|variable| (*variable, schema.declared().clone()));
    let types = Arc::new(DeclaredTypes::new(roots).with_keywords_as_fields().with_single_root());
    let mut builder = language.builder();
    for variable in variables {
        builder = builder.variable(variable, schema.declared().cel_type.clone());
    }
    let env = builder.types(types.clone()).build()?;
    Ok(Environment { env, hints: types, result, limits })
}

/// Shows the fields that an object has.
fn visit_fields<'v>(
    object: &'v dyn HostObject,
    fields: &[&'v str],
    visit: &mut dyn FnMut(&'v str, Value<'v>) -> ControlFlow<()>,
) {
    for field in fields {
        if let Some(value) = object.get(field)
            && visit(field, value).is_break()
        {
            return;
        }
    }
}
