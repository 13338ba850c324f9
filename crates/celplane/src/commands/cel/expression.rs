//! Common parts of the subcommands: an expression, its environment, and its input.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use api::json;
use cel::cost::NoHints;
use cel::source::Source;
use cel::types::Type;
use cel_kubernetes::compile::{CompileError, Environment, ExpressionLimits, ResultRule};
use cel_kubernetes::environments::{Dialect, base};
use cel_kubernetes::places::{self, Input, InputError, Place};
use cel_kubernetes::schema::TypedSchema;
use clap::CommandFactory;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::input::{self, Variable};
use crate::input_file;
use crate::language;

/// Flags that name an expression, its environment and its variables.
#[derive(clap::Args)]
pub(crate) struct Expression {
    /// The expression.
    #[arg(value_name = "EXPRESSION", allow_hyphen_values = true)]
    text: String,

    /// Environment of the expression: determines the variables, the required type and the cost limits. Without
    /// it, the full language is available, with only the variables given by --var.
    #[arg(long = "env", value_name = "PLACE", value_parser = places())]
    place: Option<Place>,

    /// Use the dialect of Kubernetes, without Celplane's own functions (semver.compare, format).
    #[arg(long, requires = "place")]
    kubernetes: bool,

    /// Input of the expression as YAML or JSON; - for standard input. A taint, a node, a device, a list of
    /// devices, an object, or an object that names them: {"taint": …}, {"self": …, "oldSelf": …}.
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,

    /// A variable; may be repeated. The value is JSON or else a string: x=1, s=hello, 'l=[1, 2]',
    /// 'taint={"key": "a"}'. Without --env, a type can be given: u:uint=1, t:timestamp=2026-01-01T00:00:00Z,
    /// 'm:map(string, double)={"a": 1}'.
    #[arg(long = "var", value_name = "NAME[:TYPE]=VALUE")]
    variables: Vec<Variable>,

    /// OpenAPI schema of the object that a column or a rule reads, or a CustomResourceDefinition; YAML or JSON.
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,

    /// Version of the CustomResourceDefinition; defaults to the storage version.
    #[arg(long, value_name = "NAME", requires = "schema")]
    version: Option<String>,
}

fn places() -> impl TypedValueParser<Value = Place> {
    PossibleValuesParser::new(Place::ALL.map(Place::name))
        .try_map(|name| Place::find(&name).ok_or_else(|| anyhow!("unknown environment `{name}`")))
}

/// Environment and input of an expression.
pub(crate) struct Scene {
    /// Environment.
    pub(crate) environment: Environment,
    /// Input.
    pub(crate) input: Input,
    /// Whether the input is sufficient for an evaluation.
    pub(crate) can_evaluate: bool,
}

impl Expression {
    /// The expression's text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The expression's text, for the parser.
    pub(crate) fn source(&self) -> Source {
        Source::new(&self.text)
    }

    /// The reason why the expression does not compile, with a hint where there is one.
    pub(crate) fn explain(&self, error: &CompileError) -> String {
        let text = explain(error);
        let name = text.split_once("undeclared reference to '").and_then(|(_, rest)| rest.split('\'').next());
        let hint = name.zip(self.place).and_then(|(name, place)| registry::hints::of_name(place, name));
        hint.map_or_else(|| text.clone(), |hint| format!("{text}\nhint: {hint}"))
    }

    /// Reads everything that the expression depends on.
    pub(crate) fn scene(&self) -> anyhow::Result<Scene> {
        let document = self.input.as_deref().map(read).transpose()?;
        let Some(place) = self.place else { return self.without_place(document) };
        if let Some(variable) = self.variables.iter().find(|variable| variable.is_declared) {
            return Err(usage(&format!("--env determines the type of `{}`; a type cannot be given", variable.name)));
        }
        let schema = self.typed_schema(place)?;
        let dialect = if self.kubernetes { Dialect::KUBERNETES } else { Dialect::CELPLANE };
        let environment = place.environment(dialect, schema.as_ref())?;
        let can_evaluate = document.is_some() || !self.variables.is_empty();
        let document = self.with_variables(document)?;
        let input = match place {
            Place::Base => self.base_input(document)?,
            place => place.input(document, schema, &|_, _| Err(InputError::new("no variables")))?,
        };
        Ok(Scene { environment, input, can_evaluate })
    }

    fn typed_schema(&self, place: Place) -> anyhow::Result<Option<TypedSchema>> {
        match (&self.schema, place.needs_schema()) {
            (None, true) => Err(usage(&format!("--env {} needs --schema", place.name()))),
            (Some(_), false) => Err(usage(&format!("--env {} does not use --schema", place.name()))),
            (None, false) => Ok(None),
            (Some(path), true) => {
                let document = read(path)?;
                let schema = super::schema::find(&document, self.version.as_deref())?;
                Ok(Some(places::read_schema(schema)?))
            }
        }
    }

    /// The document, with the variables that were given beside it.
    fn with_variables(&self, document: Option<json::Value>) -> anyhow::Result<Option<json::Value>> {
        if self.variables.is_empty() {
            return Ok(document);
        }
        let mut document = document.unwrap_or_else(json::Value::object);
        let fields = document.as_object_mut().context("variables can only be added to an object")?;
        for variable in &self.variables {
            fields.insert(variable.name.as_str(), variable.document());
        }
        Ok(Some(document))
    }

    /// Variables of the base environment, read as their types demand.
    fn base_input(&self, document: Option<json::Value>) -> anyhow::Result<Input> {
        let Some(document) = document else { return Ok(Input::variables(BTreeMap::new())) };
        let fields = document.as_object().context("input must be an object of variables")?;
        let mut variables = BTreeMap::new();
        for (name, value) in fields.iter() {
            let of = base::VARIABLES.iter().find(|(known, _)| *known == name);
            let of = of.and_then(|(_, notation)| Type::parse(notation));
            let of = of.with_context(|| format!("the base environment has no variable `{name}`"))?;
            let written = self.variables.iter().rev().find(|variable| variable.name == name);
            let value = match written {
                Some(variable) => input::from_text(&variable.text, &of),
                None => input::from_document(value, &of),
            };
            variables.insert(name.to_owned(), value.with_context(|| format!("input `{name}`"))?);
        }
        Ok(Input::variables(variables))
    }

    /// The whole language, and the variables that were given.
    fn without_place(&self, document: Option<json::Value>) -> anyhow::Result<Scene> {
        if self.schema.is_some() {
            return Err(usage("--schema needs --env column or --env rule"));
        }
        let mut variables = Vec::new();
        if let Some(document) = &document {
            let fields = document.as_object().context("input must be an object of variables")?;
            for (name, value) in fields.iter() {
                variables.push(Variable::of_file(name, value)?);
            }
        }
        variables.extend(self.variables.iter().cloned());
        let builder = variables.iter().fold(language::builder(), |env, it| env.variable(&it.name, it.of.clone()));
        let limits = ExpressionLimits { text_bytes: usize::MAX, estimated_cost: None, runtime_cost: u64::MAX };
        let environment =
            Environment { env: builder.build()?, hints: Arc::new(NoHints), result: ResultRule::Any, limits };
        let input = Input::variables(variables.into_iter().map(|it| (it.name, it.value)).collect());
        Ok(Scene { environment, input, can_evaluate: true })
    }
}

/// Formats a compile error.
fn explain(error: &CompileError) -> String {
    match error {
        CompileError::Issues(issues) => issues.to_string(),
        CompileError::Plan(error) => format!("ERROR: {error}"),
        CompileError::TooExpensive { estimated, limit } => {
            format!("ERROR: {error}: estimated cost {estimated}, limit {limit}")
        }
        other => format!("ERROR: {other}"),
    }
}

/// The one document in a file; `-` is standard input.
fn read(path: &Path) -> anyhow::Result<json::Value> {
    let name = || format!("`{}`", path.display());
    let text = if path == Path::new("-") {
        input_file::read_standard_input().and_then(input_file::into_text)
    } else {
        input_file::read_text(path)
    };
    let (documents, error) = api::yaml::parse_manifests(&text.with_context(name)?);
    if let Some(error) = error {
        return Err(error).with_context(name);
    }
    let mut documents = documents.into_iter();
    match (documents.next(), documents.next()) {
        (Some(document), None) => Ok(document.value),
        (None, _) => bail!("{} is empty", name()),
        (Some(_), Some(_)) => bail!("{} contains several documents", name()),
    }
}

/// Arguments that make no sense together.
fn usage(message: &str) -> anyhow::Error {
    crate::Arguments::command().error(clap::error::ErrorKind::ArgumentConflict, message).into()
}
