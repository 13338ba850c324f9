//! Compiles expressions for every place in the API, as validation asks for it.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use api::json::Value;
use cel::cost::Cost;
use cel_kubernetes::compile::{CompileError, Compiled, Environment};
use cel_kubernetes::environments::{Dialect, device, devices, node_affinity, printer_column, toleration};
use cel_kubernetes::places::read_schema;
use matching::CompileCache;
use registry::expressions::{Expressions, Place, Refusal};

/// The environments of all places.
#[derive(Debug)]
pub(crate) struct Compiler {
    toleration: Environment,
    node_affinity: Environment,
    device: Environment,
    devices: Environment,
}

impl Compiler {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let dialect = Dialect::CELPLANE;
        Ok(Compiler {
            toleration: toleration::environment(dialect)?,
            node_affinity: node_affinity::environment(dialect)?,
            device: device::environment(dialect)?,
            devices: devices::environment(dialect)?,
        })
    }

    /// What an expression costs, if it compiles.
    pub(crate) fn cost(&self, place: Place<'_>, expression: &str) -> Option<Cost> {
        self.compile(place, expression).ok().map(|compiled| compiled.cost())
    }

    fn compile(&self, place: Place<'_>, expression: &str) -> Result<Compiled, Refusal> {
        let compiled = match place {
            Place::Toleration => self.toleration.compile(expression),
            Place::NodeAffinity => self.node_affinity.compile(expression),
            Place::DeviceSelector => self.device.compile(expression),
            Place::DeviceConstraint => self.devices.compile(expression),
            Place::PrinterColumn(schema) => return column(schema, expression),
        };
        compiled.map_err(refusal)
    }
}

impl Expressions for Compiler {
    fn check(&self, place: Place<'_>, expression: &str) -> Result<(), Refusal> {
        self.compile(place, expression).map(|_| ())
    }
}

/// What the compiler of a column says is an internal error in Kubernetes.
fn column(schema: &Value, expression: &str) -> Result<Compiled, Refusal> {
    let internal = |error: String| {
        Refusal::Internal(format!("CEL compilation failed for {expression} rules: {error}"))
    };
    let schema = read_schema(schema).map_err(|error| internal(error.to_string()))?;
    let environment = printer_column::environment(Dialect::CELPLANE, &schema);
    let environment = environment.map_err(|error| internal(error.to_string()))?;
    environment.compile(expression).map_err(|error| match error {
        CompileError::TooLong { max } => Refusal::TooLong { max },
        other => internal(other.to_string()),
    })
}

fn refusal(error: CompileError) -> Refusal {
    match error {
        CompileError::TooLong { max } => Refusal::TooLong { max },
        error @ CompileError::TooExpensive { .. } => Refusal::TooCostly(error.to_string()),
        error => Refusal::Invalid(error.to_string()),
    }
}

/// A compile cache for a tool that runs once.
pub(crate) fn compile_cache() -> anyhow::Result<CompileCache> {
    let start = Instant::now();
    let capacity = NonZeroUsize::new(4096).context("a capacity is not zero")?;
    Ok(CompileCache::new(capacity, Arc::new(move || start.elapsed()))?)
}
