//! `DeviceSelector.cel`: reads one device, yields whether it can be allocated (dynamic resource allocation, as
//! upstream).

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use cel::env::EnvError;
use cel::program::Activation;
use cel::syntax::ast::Name;
use cel::types::Type;
use cel::value::{HostMap, HostObject, Map, Value};

use super::{Dialect, Language};
use crate::compile::{Environment, ExpressionLimits, ResultRule};
use crate::declared::DeclaredType;
use crate::libraries;

const TYPE_NAME: &str = "kubernetes.DRADevice";
const VARIABLE: &str = "device";

/// Maximum number of attributes and capacities of a device.
const ENTRIES_MAX: u64 = 32;
const DOMAIN_LENGTH_MAX: u64 = 63;
const NAME_LENGTH_MAX: u64 = 32;
const ATTRIBUTE_LENGTH_MAX: u64 = 64;

/// The environment of device selectors.
pub fn environment(dialect: Dialect) -> Result<Environment, EnvError> {
    environment_in(&dialect.language()?)
}

/// Like `environment`, in a language that other environments share: takes a fraction of the time.
pub fn environment_in(language: &Language) -> Result<Environment, EnvError> {
    with_bindings(language, VARIABLE, declared())
}

pub(super) fn with_bindings(
    language: &Language,
    variable: &'static str,
    declared: DeclaredType,
) -> Result<Environment, EnvError> {
    let mut environment = super::with_variables(
        language,
        [(variable, declared)],
        ResultRule::BoolOrUnknown,
        ExpressionLimits::PLACEMENT,
    )?;
    environment.env = environment.env.extend().library(&cel::library::bindings()).build()?;
    Ok(environment)
}

pub(super) fn declared() -> DeclaredType {
    let name = || DeclaredType::string(NAME_LENGTH_MAX);
    let domain = || DeclaredType::string(DOMAIN_LENGTH_MAX);
    let attribute = DeclaredType::scalar(Type::Any, ATTRIBUTE_LENGTH_MAX, 1);
    let attributes = DeclaredType::map(domain(), DeclaredType::map(name(), attribute, ENTRIES_MAX), ENTRIES_MAX);
    let quantity = DeclaredType::scalar(Type::object("kubernetes.Quantity"), 0, 8);
    let capacity = DeclaredType::map(domain(), DeclaredType::map(name(), quantity, ENTRIES_MAX), ENTRIES_MAX);
    DeclaredType::object(
        TYPE_NAME,
        [
            (Name::from_static("driver"), DeclaredType::string(63)),
            (Name::from_static("allowMultipleAllocations"), DeclaredType::scalar(Type::Bool, 1, 4)),
            (Name::from_static("attributes"), attributes),
            (Name::from_static("capacity"), capacity),
        ],
    )
}

/// A device, as expressions see it.
#[derive(Debug, Clone, Default)]
pub struct Device {
    driver: Box<str>,
    allow_multiple_allocations: bool,
    attributes: Domains,
    capacity: Domains,
}

/// Values by domain and name. A missing domain reads as an empty one.
#[derive(Debug, Clone, Default)]
struct Domains(BTreeMap<Box<str>, Names>);

#[derive(Debug, Clone, Default)]
struct Names(BTreeMap<Box<str>, Value<'static>>);

impl Device {
    /// A device of a driver, without attributes and capacities.
    pub fn new(driver: &str) -> Self {
        Device { driver: driver.into(), ..Device::default() }
    }

    /// Sets whether the device can be allocated to several claims at once.
    #[must_use]
    pub fn allow_multiple_allocations(mut self, allowed: bool) -> Self {
        self.allow_multiple_allocations = allowed;
        self
    }

    /// Sets an attribute: a truth value, a number, a text, a version. A name without domain belongs to the driver's.
    pub fn set_attribute(&mut self, qualified_name: &str, value: Value<'static>) {
        let (domain, name) = split(qualified_name, &self.driver);
        self.attributes.0.entry(domain).or_default().0.insert(name.into(), value);
    }

    /// Sets a capacity. A name without domain belongs to the driver's.
    pub fn set_capacity(&mut self, qualified_name: &str, quantity: api::quantity::Quantity) {
        let (domain, name) = split(qualified_name, &self.driver);
        let value = Value::opaque(libraries::quantity::QuantityValue(quantity));
        self.capacity.0.entry(domain).or_default().0.insert(name.into(), value);
    }
}

/// Domain and name of a qualified name.
fn split<'n>(qualified_name: &'n str, driver: &str) -> (Box<str>, &'n str) {
    match qualified_name.split_once('/') {
        Some((domain, name)) => (domain.into(), name),
        None => (driver.into(), qualified_name),
    }
}

static NO_NAMES: Names = Names(BTreeMap::new());

impl HostMap for Domains {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &Value<'_>) -> Option<Value<'_>> {
        let names = self.0.get(key.as_str()?).unwrap_or(&NO_NAMES);
        Some(Value::Map(Map::Host(names)))
    }

    fn contains(&self, key: &Value<'_>) -> bool {
        key.as_str().is_some_and(|domain| self.0.contains_key(domain))
    }

    fn for_each<'v>(&'v self, visit: &mut dyn FnMut(Value<'v>, Value<'v>) -> ControlFlow<()>) {
        for (domain, names) in &self.0 {
            if visit(Value::str(domain), Value::Map(Map::Host(names))).is_break() {
                return;
            }
        }
    }
}

impl HostMap for Names {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &Value<'_>) -> Option<Value<'_>> {
        self.0.get(key.as_str()?).map(Value::borrowed)
    }

    fn for_each<'v>(&'v self, visit: &mut dyn FnMut(Value<'v>, Value<'v>) -> ControlFlow<()>) {
        for (name, value) in &self.0 {
            if visit(Value::str(name), value.borrowed()).is_break() {
                return;
            }
        }
    }
}

impl Activation for Device {
    fn resolve(&self, name: &str) -> Option<Value<'_>> {
        (name == VARIABLE).then_some(Value::Object(self))
    }
}

impl HostObject for Device {
    fn type_name(&self) -> &str {
        TYPE_NAME
    }

    fn get(&self, field: &str) -> Option<Value<'_>> {
        match field {
            "driver" => Some(Value::str(&self.driver)),
            "attributes" => Some(Value::Map(Map::Host(&self.attributes))),
            "capacity" => Some(Value::Map(Map::Host(&self.capacity))),
            "allowMultipleAllocations" => Some(Value::Bool(self.allow_multiple_allocations)),
            _ => None,
        }
    }

    fn for_each<'v>(&'v self, visit: &mut dyn FnMut(&'v str, Value<'v>) -> ControlFlow<()>) {
        super::visit_fields(self, &["driver", "allowMultipleAllocations", "attributes", "capacity"], visit);
    }
}
