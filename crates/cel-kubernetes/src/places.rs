//! The places in the API that accept an expression, by the names that users type: their environments and their input.
//!
//! Tools read the input from documents here; components hand in what they hold, see [`crate::environments`].

use std::collections::BTreeMap;

use api::json;
use api::quantity::Quantity;
use api::semver::Version;
use api::structural_schema::Schema;
use cel::env::EnvError;
use cel::program::Activation;
use cel::value::{Timestamp, Value};

use crate::compile::{Environment, ResultRule};
use crate::environments::device::Device;
use crate::environments::devices::Devices;
use crate::environments::node_affinity::{Labels, Node};
use crate::environments::toleration::Taint;
use crate::environments::validation_rule::Change;
use crate::environments::{Dialect, base, device, devices, node_affinity, printer_column, toleration, validation_rule};
use crate::libraries::semver::SemverValue;
use crate::schema::TypedSchema;

/// A place in the API that accepts an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
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

/// Why a document is not an input for an expression.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct InputError {
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl InputError {
    /// Says what is wrong.
    pub fn new(message: impl Into<String>) -> InputError {
        InputError { message: message.into(), source: None }
    }

    /// Says why it is wrong.
    #[must_use]
    pub fn because(mut self, cause: impl std::error::Error + Send + Sync + 'static) -> InputError {
        self.source = Some(Box::new(cause));
        self
    }
}

impl From<EnvError> for InputError {
    fn from(error: EnvError) -> Self {
        InputError::new("environment").because(error)
    }
}

/// How the value of a variable is written, where a place has variables of any kind: its name, and what stands there.
pub type ReadVariable<'r> = &'r dyn Fn(&str, &json::Value) -> Result<Value<'static>, InputError>;

impl Place {
    /// All places.
    pub const ALL: [Place; 7] =
        [Place::Toleration, Place::Affinity, Place::Device, Place::Devices, Place::Column, Place::Rule, Place::Base];

    /// What users type.
    pub fn name(self) -> &'static str {
        match self {
            Place::Toleration => "toleration",
            Place::Affinity => "affinity",
            Place::Device => "device",
            Place::Devices => "devices",
            Place::Column => "column",
            Place::Rule => "rule",
            Place::Base => "base",
        }
    }

    /// The place with this name.
    pub fn find(name: &str) -> Option<Place> {
        Place::ALL.into_iter().find(|place| place.name() == name)
    }

    /// The place's input is a custom resource.
    pub fn needs_schema(self) -> bool {
        matches!(self, Place::Column | Place::Rule)
    }

    /// What expressions at this place may refer to.
    pub fn environment(self, dialect: Dialect, schema: Option<&TypedSchema>) -> Result<Environment, InputError> {
        let schema = || schema.ok_or_else(|| InputError::new(format!("a {} needs a schema", self.name())));
        Ok(match self {
            Place::Toleration => toleration::environment(dialect)?,
            Place::Affinity => node_affinity::environment(dialect)?,
            Place::Device => device::environment(dialect)?,
            Place::Devices => devices::environment(dialect)?,
            Place::Base => base::environment(dialect)?,
            Place::Column => printer_column::environment(dialect, schema()?)?,
            Place::Rule => validation_rule::environment(dialect, schema()?, false, ResultRule::Bool)?,
        })
    }

    /// Reads what an expression at this place sees. Without a document, variables have no value.
    ///
    /// The document is what the place's one variable stands for (a taint, a node, an object), or names it: `{"taint": …}`.
    pub fn input(
        self,
        document: Option<json::Value>,
        schema: Option<TypedSchema>,
        variable: ReadVariable<'_>,
    ) -> Result<Input, InputError> {
        let Some(document) = document else { return Ok(Input(Seen::Variables(BTreeMap::new()))) };
        let schema = || schema.ok_or_else(|| InputError::new("an object needs a schema"));
        let named = |variable| document.get(variable).unwrap_or(&document);
        Ok(Input(match self {
            Place::Base => Seen::Variables(read_variables(&document, variable)?),
            Place::Toleration => Seen::Taint(read_taint(named("taint"))?),
            Place::Affinity => Seen::Node(read_labels(named("node"))?),
            Place::Device => Seen::Device(read_device(named("device"))?),
            Place::Devices => {
                let list = named("devices").as_array().ok_or_else(|| InputError::new("devices are a list"))?;
                Seen::Devices(list.iter().map(read_device).collect::<Result<_, _>>()?)
            }
            Place::Column => Seen::Object(schema()?, named(printer_column::VARIABLE).clone()),
            Place::Rule => {
                let old = document.get(validation_rule::OLD_VARIABLE).cloned();
                Seen::Change(schema()?, named(printer_column::VARIABLE).clone(), old)
            }
        }))
    }
}

/// Types a schema for `self`.
pub fn read_schema(document: &json::Value) -> Result<TypedSchema, InputError> {
    let schema = Schema::from_value(document).map_err(|error| InputError::new("schema").because(error))?;
    let typed = TypedSchema::new(&schema, true, printer_column::TYPE_NAME);
    typed.ok_or_else(|| InputError::new("the schema gives no type"))
}

/// What an expression sees.
#[derive(Debug)]
pub struct Input(Seen);

#[derive(Debug)]
enum Seen {
    Variables(BTreeMap<String, Value<'static>>),
    Taint(OwnedTaint),
    Node(Labels),
    Device(Device),
    Devices(Vec<Device>),
    Object(TypedSchema, json::Value),
    Change(TypedSchema, json::Value, Option<json::Value>),
}

#[derive(Debug)]
struct OwnedTaint {
    key: String,
    value: String,
    effect: String,
    time_added: Option<Timestamp>,
}

impl Input {
    /// Variables by name, for places that have variables of any kind.
    pub fn variables(variables: BTreeMap<String, Value<'static>>) -> Input {
        Input(Seen::Variables(variables))
    }

    /// Lends the input to an evaluation.
    pub fn with<T>(&self, run: impl FnOnce(&dyn Activation) -> T) -> T {
        match &self.0 {
            Seen::Variables(variables) => run(&Variables(variables)),
            Seen::Taint(OwnedTaint { key, value, effect, time_added }) => {
                run(&Taint { key, value, effect, time_added: *time_added })
            }
            Seen::Node(labels) => run(&Node { labels }),
            Seen::Device(device) => run(device),
            Seen::Devices(list) => run(&Devices(&list.iter().collect::<Vec<_>>())),
            Seen::Object(schema, document) => run(&printer_column::Object { schema, document }),
            Seen::Change(schema, new, old) => run(&Change { schema, new, old: old.as_ref(), optional_old_self: false }),
        }
    }
}

struct Variables<'v>(&'v BTreeMap<String, Value<'static>>);

impl Activation for Variables<'_> {
    fn resolve(&self, name: &str) -> Option<Value<'_>> {
        self.0.get(name).map(Value::borrowed)
    }
}

fn read_variables(
    document: &json::Value,
    variable: ReadVariable<'_>,
) -> Result<BTreeMap<String, Value<'static>>, InputError> {
    let variables = document.as_object().ok_or_else(|| InputError::new("input is an object of variables"))?;
    let read = |(name, value): (&str, &json::Value)| {
        let value = variable(name, value).map_err(|error| InputError::new(format!("input `{name}`")).because(error))?;
        Ok((name.to_owned(), value))
    };
    variables.iter().map(read).collect()
}

fn read_taint(document: &json::Value) -> Result<OwnedTaint, InputError> {
    let text = |field: &str| document.str_at(&[field]).unwrap_or_default().to_owned();
    let time_added = document.str_at(&["timeAdded"]).map(read_timestamp).transpose()?;
    Ok(OwnedTaint { key: text("key"), value: text("value"), effect: text("effect"), time_added })
}

fn read_timestamp(text: &str) -> Result<Timestamp, InputError> {
    let misfit = || InputError::new(format!("`{text}` is not a timestamp"));
    Timestamp::parse(text).ok_or_else(misfit)?.map_err(|error| misfit().because(error))
}

/// The labels of a node: of its metadata, or directly of `node.labels`.
fn read_labels(document: &json::Value) -> Result<Labels, InputError> {
    let labels = document.at(&["metadata", "labels"]).or_else(|| document.get("labels"));
    let Some(labels) = labels else { return Ok(Labels::default()) };
    let labels = labels.as_object().ok_or_else(|| InputError::new("labels are an object"))?;
    let read = |(key, value): (&str, &json::Value)| match value.as_str() {
        Some(value) => Ok((key.to_owned(), value.to_owned())),
        None => Err(InputError::new(format!("label `{key}` is not text"))),
    };
    labels.iter().map(read).collect()
}

/// A device as ResourceSlices write it, and the driver that publishes it.
fn read_device(document: &json::Value) -> Result<Device, InputError> {
    let driver = document.str_at(&["driver"]).unwrap_or_default();
    let shared = document.get("allowMultipleAllocations").and_then(json::Value::as_bool).unwrap_or(false);
    let mut device = Device::new(driver).allow_multiple_allocations(shared);
    let entries = |field: &str| document.get(field).and_then(json::Value::as_object).map(json::Object::iter);
    for (name, attribute) in entries("attributes").into_iter().flatten() {
        let value =
            read_attribute(attribute).map_err(|error| InputError::new(format!("attribute `{name}`")).because(error))?;
        device.set_attribute(name, value);
    }
    for (name, capacity) in entries("capacity").into_iter().flatten() {
        let text = capacity.as_str().or_else(|| capacity.str_at(&["value"]));
        let quantity = text.ok_or_else(|| InputError::new(format!("capacity `{name}` is not a quantity")))?;
        let quantity =
            Quantity::parse(quantity).map_err(|error| InputError::new(format!("capacity `{name}`")).because(error))?;
        device.set_capacity(name, quantity);
    }
    Ok(device)
}

fn read_attribute(attribute: &json::Value) -> Result<Value<'static>, InputError> {
    let mut fields = attribute.as_object().into_iter().flat_map(json::Object::iter);
    Ok(match fields.next() {
        Some(("bool", json::Value::Bool(truth))) => Value::Bool(*truth),
        Some(("int", json::Value::Int(number))) => Value::Int(*number),
        Some(("string", json::Value::String(text))) => Value::string(text.as_str()),
        Some(("version", json::Value::String(text))) => {
            let version = Version::parse(text);
            let version =
                version.map_err(|error| InputError::new(format!("`{text}` is not a version")).because(error))?;
            Value::opaque(SemverValue(version))
        }
        _ => return Err(InputError::new("expected one of bool, int, string, version")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_found_by_its_name() {
        for place in Place::ALL {
            assert_eq!(Place::find(place.name()), Some(place));
        }
        assert_eq!(Place::find("nowhere"), None);
    }

    #[track_caller]
    fn check(place: Place, document: &str, expression: &str, truth: bool) {
        let environment = place.environment(Dialect::CELPLANE, None).unwrap();
        let compiled = environment.compile(expression).unwrap();
        let document = json::parse(document.as_bytes()).unwrap();
        let input = place.input(Some(document), None, &|_, _| Ok(Value::Null)).unwrap();
        let found = input.with(|input| compiled.eval(input).result.unwrap().as_bool());
        assert_eq!(found, Some(truth), "{expression}");
    }

    #[test]
    fn the_variable_may_be_named_or_left_out() {
        check(Place::Toleration, r#"{"key":"a","timeAdded":"2026-01-01T00:00:00Z"}"#, "has(taint.timeAdded)", true);
        check(Place::Toleration, r#"{"taint":{"key":"a"}}"#, "taint.key == 'a'", true);
        check(Place::Affinity, r#"{"metadata":{"labels":{"a":"b"}}}"#, "node.labels.a == 'b'", true);
        check(Place::Affinity, r#"{"node":{"labels":{"a":"b"}}}"#, "node.labels.a == 'b'", true);
        check(Place::Devices, r#"[{"driver":"d"}]"#, "devices[0].driver == 'd'", true);
    }

    #[test]
    fn what_is_no_input_is_named() {
        let read = |place: Place, document: &str| {
            let document = json::parse(document.as_bytes()).unwrap();
            place.input(Some(document), None, &|_, _| Ok(Value::Null)).unwrap_err().to_string()
        };
        assert_eq!(read(Place::Devices, r#"{"driver":"d"}"#), "devices are a list");
        assert_eq!(read(Place::Affinity, r#"{"labels":{"a":1}}"#), "label `a` is not text");
        assert_eq!(read(Place::Toleration, r#"{"timeAdded":"now"}"#), "`now` is not a timestamp");
        assert_eq!(read(Place::Device, r#"{"capacity":{"a":"1Qi"}}"#), "capacity `a`");
    }
}
