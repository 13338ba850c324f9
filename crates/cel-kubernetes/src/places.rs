//! The places in the API that accept an expression, by the names that users type: their environments and their input.
//!
//! Tools read the input from documents here; components pass their own data, see [`crate::environments`].

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
use crate::environments::{
    Dialect, Language, base, device, devices, node_affinity, printer_column, toleration, validation_rule,
};
use crate::libraries::semver::SemverValue;
use crate::schema::TypedSchema;

/// A place in the API that accepts an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// `Toleration.expression`: sees `taint`.
    Toleration,
    /// `NodeSelectorTerm.matchCELExpressions`: sees `node`.
    NodeAffinity,
    /// `DeviceSelector.cel`: sees `device`.
    DeviceSelector,
    /// `DeviceConstraint.cel`: sees `devices`.
    DeviceConstraint,
    /// A printer column: sees `self`, typed by a schema.
    PrinterColumn,
    /// A validation rule: sees `self` and `oldSelf`, typed by a schema.
    ValidationRule,
    /// No place: Kubernetes' functions and a variable of each kind.
    Base,
}

/// A document is not valid input for an expression.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct InputError {
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl InputError {
    /// An error with a message.
    pub fn new(message: impl Into<String>) -> InputError {
        InputError { message: message.into(), source: None }
    }

    /// Adds the cause.
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

/// Converts the value of a variable, given by name and document, in places that accept variables of any type.
pub type ReadVariable<'r> = &'r dyn Fn(&str, &json::Value) -> Result<Value<'static>, InputError>;

impl Place {
    /// All places.
    pub const ALL: [Place; 7] = [
        Place::Toleration,
        Place::NodeAffinity,
        Place::DeviceSelector,
        Place::DeviceConstraint,
        Place::PrinterColumn,
        Place::ValidationRule,
        Place::Base,
    ];

    /// Name of the place on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Place::Toleration => "toleration",
            Place::NodeAffinity => "affinity",
            Place::DeviceSelector => "device",
            Place::DeviceConstraint => "devices",
            Place::PrinterColumn => "column",
            Place::ValidationRule => "rule",
            Place::Base => "base",
        }
    }

    /// The place with this name.
    pub fn find(name: &str) -> Option<Place> {
        Place::ALL.into_iter().find(|place| place.name() == name)
    }

    /// Name and description of the variable that expressions at this place see; none where there are several.
    pub fn variable(self) -> Option<(&'static str, &'static str)> {
        Some(match self {
            Place::Toleration => ("taint", "`taint`, with key, value, effect and timeAdded"),
            Place::NodeAffinity => ("node", "`node`, with labels"),
            Place::DeviceSelector => ("device", "`device`, with driver, attributes and capacity"),
            Place::DeviceConstraint => ("devices", "`devices`, a list with driver, attributes and capacity of each"),
            Place::PrinterColumn => (printer_column::VARIABLE, "`self`, the object"),
            Place::ValidationRule | Place::Base => return None,
        })
    }

    /// Whether the place's input is a custom resource.
    pub fn needs_schema(self) -> bool {
        matches!(self, Place::PrinterColumn | Place::ValidationRule)
    }

    /// Returns the environment of expressions at this place.
    pub fn environment(self, dialect: Dialect, schema: Option<&TypedSchema>) -> Result<Environment, InputError> {
        self.environment_in(&dialect.language()?, schema)
    }

    /// Like [`Place::environment`], in a language that other environments share: takes a fraction of the time.
    pub fn environment_in(self, language: &Language, schema: Option<&TypedSchema>) -> Result<Environment, InputError> {
        let schema = || schema.ok_or_else(|| InputError::new(format!("a {} needs a schema", self.name())));
        Ok(match self {
            Place::Toleration => toleration::environment_in(language)?,
            Place::NodeAffinity => node_affinity::environment_in(language)?,
            Place::DeviceSelector => device::environment_in(language)?,
            Place::DeviceConstraint => devices::environment_in(language)?,
            Place::Base => base::environment_in(language)?,
            Place::PrinterColumn => printer_column::environment_in(language, schema()?)?,
            Place::ValidationRule => validation_rule::environment_in(language, schema()?, false, ResultRule::Bool)?,
        })
    }

    /// Reads the input of an expression at this place. Without a document, variables have no value.
    ///
    /// The document is the value of the place's one variable (a taint, a node, an object), or names it:
    /// `{"taint": …}`.
    pub fn input(
        self,
        document: Option<json::Value>,
        schema: Option<TypedSchema>,
        variable: ReadVariable<'_>,
    ) -> Result<Input, InputError> {
        let Some(document) = document else { return Ok(Input(InputValue::Variables(BTreeMap::new()))) };
        let schema = || schema.ok_or_else(|| InputError::new("an object needs a schema"));
        let named = |variable| document.get(variable).unwrap_or(&document);
        Ok(Input(match self {
            Place::Base => InputValue::Variables(read_variables(&document, variable)?),
            Place::Toleration => InputValue::Taint(read_taint(named("taint"))?),
            Place::NodeAffinity => InputValue::Node(read_labels(named("node"))?),
            Place::DeviceSelector => InputValue::Device(read_device(named("device"))?),
            Place::DeviceConstraint => {
                let list = named("devices").as_array().ok_or_else(|| InputError::new("devices are a list"))?;
                InputValue::Devices(list.iter().map(read_device).collect::<Result<_, _>>()?)
            }
            Place::PrinterColumn => InputValue::Object(schema()?, named(printer_column::VARIABLE).clone()),
            Place::ValidationRule => {
                let old = document.get(validation_rule::OLD_VARIABLE).cloned();
                InputValue::Change(schema()?, named(printer_column::VARIABLE).clone(), old)
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

/// Input of an expression.
#[derive(Debug)]
pub struct Input(InputValue);

#[derive(Debug)]
enum InputValue {
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
        Input(InputValue::Variables(variables))
    }

    /// Lends the input to an evaluation.
    pub fn with<T>(&self, run: impl FnOnce(&dyn Activation) -> T) -> T {
        match &self.0 {
            InputValue::Variables(variables) => run(&Variables(variables)),
            InputValue::Taint(OwnedTaint { key, value, effect, time_added }) => {
                run(&Taint { key, value, effect, time_added: *time_added })
            }
            InputValue::Node(labels) => run(&Node { labels }),
            InputValue::Device(device) => run(device),
            InputValue::Devices(list) => run(&Devices(&list.iter().collect::<Vec<_>>())),
            InputValue::Object(schema, document) => run(&printer_column::Object { schema, document }),
            InputValue::Change(schema, new, old) => {
                run(&Change { schema, new, old: old.as_ref(), optional_old_self: false })
            }
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
    let variables = document.as_object().ok_or_else(|| InputError::new("input must be an object of variables"))?;
    let read = |(name, value): (&str, &json::Value)| {
        let value = variable(name, value).map_err(|error| InputError::new(format!("input `{name}`")).because(error))?;
        Ok((name.to_owned(), value))
    };
    variables.iter().map(read).collect()
}

fn read_taint(document: &json::Value) -> Result<OwnedTaint, InputError> {
    let text = |field: &str| document.text(field).to_owned();
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
    let driver = document.text("driver");
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
        check(Place::NodeAffinity, r#"{"metadata":{"labels":{"a":"b"}}}"#, "node.labels.a == 'b'", true);
        check(Place::NodeAffinity, r#"{"node":{"labels":{"a":"b"}}}"#, "node.labels.a == 'b'", true);
        check(Place::DeviceConstraint, r#"[{"driver":"d"}]"#, "devices[0].driver == 'd'", true);
    }

    #[test]
    fn invalid_input_is_named() {
        let read = |place: Place, document: &str| {
            let document = json::parse(document.as_bytes()).unwrap();
            place.input(Some(document), None, &|_, _| Ok(Value::Null)).unwrap_err().to_string()
        };
        assert_eq!(read(Place::DeviceConstraint, r#"{"driver":"d"}"#), "devices are a list");
        assert_eq!(read(Place::NodeAffinity, r#"{"labels":{"a":1}}"#), "label `a` is not text");
        assert_eq!(read(Place::Toleration, r#"{"timeAdded":"now"}"#), "`now` is not a timestamp");
        assert_eq!(read(Place::DeviceSelector, r#"{"capacity":{"a":"1Qi"}}"#), "capacity `a`");
    }
}
