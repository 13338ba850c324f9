//! The places in the API that accept an expression, by the names that users type: their environments and their input.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use api::json;
use api::quantity::Quantity;
use api::semver::Version;
use api::structural_schema::Schema;
use cel::program::Activation;
use cel::value::{Timestamp, Value};
use cel_kubernetes::compile::Environment;
use cel_kubernetes::environments::device::Device;
use cel_kubernetes::environments::devices::Devices;
use cel_kubernetes::environments::node_affinity::{Labels, Node};
use cel_kubernetes::environments::toleration::Taint;
use cel_kubernetes::environments::{
    Dialect, base, device, devices, node_affinity, printer_column, toleration, validation_rule,
};
use cel_kubernetes::libraries::semver::SemverValue;
use cel_kubernetes::schema::TypedSchema;

use crate::typed_json;

/// A place in the API that accepts an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Place {
    /// `Toleration.expression`: sees `taint`.
    Toleration,
    /// `NodeSelectorTerm.matchCELExpressions`: sees `node`.
    Affinity,
    /// `DeviceSelector.cel`: sees `device`.
    Device,
    /// `DeviceConstraint.cel`: sees `devices`.
    Devices,
    /// A printer column: sees `self`, typed by a schema.
    Column,
    /// A validation rule: sees `self` and `oldSelf`, typed by a schema.
    Rule,
    /// No place: Kubernetes' functions and a variable of each kind.
    Base,
}

impl Place {
    /// The place with this name.
    pub(crate) fn find(name: &str) -> Option<Place> {
        clap::ValueEnum::from_str(name, false).ok()
    }

    /// The place's input is a custom resource.
    pub(crate) fn needs_schema(self) -> bool {
        matches!(self, Place::Column | Place::Rule)
    }

    /// What expressions at this place may refer to.
    pub(crate) fn environment(self, dialect: Dialect, schema: Option<&TypedSchema>) -> anyhow::Result<Environment> {
        Ok(match self {
            Place::Toleration => toleration::environment(dialect)?,
            Place::Affinity => node_affinity::environment(dialect)?,
            Place::Device => device::environment(dialect)?,
            Place::Devices => devices::environment(dialect)?,
            Place::Base => base::environment(dialect)?,
            Place::Column => printer_column::environment(dialect, schema.context("a column needs a schema")?)?,
            Place::Rule => {
                let schema = schema.context("a rule needs a schema")?;
                validation_rule::environment(dialect, schema, false, cel_kubernetes::compile::ResultRule::Bool)?
            }
        })
    }

    /// Reads what an expression at this place sees. Without input, variables have no value.
    pub(crate) fn input(self, document: Option<json::Value>, schema: Option<TypedSchema>) -> anyhow::Result<Input> {
        let Some(document) = document else { return Ok(Input::Variables(BTreeMap::new())) };
        Ok(match self {
            Place::Base => Input::Variables(read_variables(&document)?),
            Place::Toleration => Input::Taint(read_taint(document.get("taint").unwrap_or(&document))?),
            Place::Affinity => Input::Node(read_labels(document.get("node").unwrap_or(&document))?),
            Place::Device => Input::Device(read_device(document.get("device").unwrap_or(&document))?),
            Place::Devices => {
                let list = document.get("devices").unwrap_or(&document);
                let list = list.as_array().context("devices are a list")?;
                Input::Devices(list.iter().map(read_device).collect::<anyhow::Result<_>>()?)
            }
            Place::Column | Place::Rule => Input::Object(schema.context("an object needs a schema")?, document),
        })
    }
}

/// Types a schema for `self`.
pub(crate) fn read_schema(document: &json::Value) -> anyhow::Result<TypedSchema> {
    let schema = Schema::from_value(document).context("schema")?;
    TypedSchema::new(&schema, true, printer_column::TYPE_NAME).context("the schema gives no type")
}

/// What an expression sees.
pub(crate) enum Input {
    Variables(BTreeMap<String, Value<'static>>),
    Taint(OwnedTaint),
    Node(Labels),
    Device(Device),
    Devices(Vec<Device>),
    Object(TypedSchema, json::Value),
}

pub(crate) struct OwnedTaint {
    key: String,
    value: String,
    effect: String,
    time_added: Option<Timestamp>,
}

impl Input {
    /// Lends the input to an evaluation.
    pub(crate) fn with<T>(&self, run: impl FnOnce(&dyn Activation) -> T) -> T {
        match self {
            Input::Variables(variables) => run(&Variables(variables)),
            Input::Taint(OwnedTaint { key, value, effect, time_added }) => {
                run(&Taint { key, value, effect, time_added: *time_added })
            }
            Input::Node(labels) => run(&Node { labels }),
            Input::Device(device) => run(device),
            Input::Devices(list) => run(&Devices(&list.iter().collect::<Vec<_>>())),
            Input::Object(schema, document) => run(&printer_column::Object { schema, document }),
        }
    }
}

struct Variables<'v>(&'v BTreeMap<String, Value<'static>>);

impl Activation for Variables<'_> {
    fn resolve(&self, name: &str) -> Option<Value<'_>> {
        self.0.get(name).map(Value::borrowed)
    }
}

fn read_variables(document: &json::Value) -> anyhow::Result<BTreeMap<String, Value<'static>>> {
    let variables = document.as_object().context("input is an object of variables")?;
    let read = |(name, value): (&str, &json::Value)| {
        let value = serde_json::from_str(&json::to_string(value))?;
        let value = typed_json::decode(&value).with_context(|| format!("input `{name}`"))?;
        Ok((name.to_owned(), value))
    };
    variables.iter().map(read).collect()
}

fn read_taint(document: &json::Value) -> anyhow::Result<OwnedTaint> {
    let text = |field: &str| document.str_at(&[field]).unwrap_or_default().to_owned();
    let time_added = document.str_at(&["timeAdded"]).map(typed_json::timestamp).transpose()?;
    Ok(OwnedTaint { key: text("key"), value: text("value"), effect: text("effect"), time_added })
}

/// The labels of a node: of its metadata, or directly of `node.labels`.
fn read_labels(document: &json::Value) -> anyhow::Result<Labels> {
    let labels = document.at(&["metadata", "labels"]).or_else(|| document.get("labels"));
    let Some(labels) = labels else { return Ok(Labels::default()) };
    let labels = labels.as_object().context("labels are an object")?;
    let read = |(key, value): (&str, &json::Value)| {
        let value = value.as_str().with_context(|| format!("label `{key}` is no text"))?;
        Ok((key.to_owned(), value.to_owned()))
    };
    labels.iter().map(read).collect()
}

/// A device as ResourceSlices write it, and the driver that publishes it.
fn read_device(document: &json::Value) -> anyhow::Result<Device> {
    let driver = document.str_at(&["driver"]).unwrap_or_default();
    let shared = document.get("allowMultipleAllocations").and_then(json::Value::as_bool).unwrap_or(false);
    let mut device = Device::new(driver).allow_multiple_allocations(shared);
    let entries = |field: &str| document.get(field).and_then(json::Value::as_object).map(json::Object::iter);
    for (name, attribute) in entries("attributes").into_iter().flatten() {
        device.set_attribute(name, read_attribute(attribute).with_context(|| format!("attribute `{name}`"))?);
    }
    for (name, capacity) in entries("capacity").into_iter().flatten() {
        let text = capacity.as_str().or_else(|| capacity.str_at(&["value"]));
        let quantity = text.with_context(|| format!("capacity `{name}` is no quantity"))?;
        device.set_capacity(name, Quantity::parse(quantity).with_context(|| format!("capacity `{name}`"))?);
    }
    Ok(device)
}

fn read_attribute(attribute: &json::Value) -> anyhow::Result<Value<'static>> {
    let fields = attribute.as_object().context("an attribute is an object")?;
    let (kind, content) = fields.iter().next().context("an attribute has a value")?;
    Ok(match (kind, content) {
        ("bool", json::Value::Bool(truth)) => Value::Bool(*truth),
        ("int", json::Value::Int(number)) => Value::Int(*number),
        ("string", json::Value::String(text)) => Value::string(text.as_str()),
        ("version", json::Value::String(text)) => Value::opaque(SemverValue(Version::parse(text)?)),
        _ => bail!("expected one of bool, int, string, version"),
    })
}
