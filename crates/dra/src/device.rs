//! A device in the form of claims: devices with equal properties for expressions share a model.
//!
//! Nodes of a kind have devices of a kind: a selector is evaluated once per model, not once per device.

use locks::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Weak};

use api::json::{self, Text};
use api::resource::v1::{self, DeviceAttribute, DeviceCapacity};
use api::semver::Version;
use cel::value::Value;
use cel_kubernetes::environments::device::Device as Seen;
use cel_kubernetes::libraries::semver::SemverValue;

use crate::expressions::{Answer, Selector};

/// Names a device in the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId {
    /// The driver.
    pub driver: Text,
    /// The pool.
    pub pool: Text,
    /// The device.
    pub device: Text,
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// Properties of a device that expressions and constraints can read.
#[derive(Debug)]
pub struct Model {
    /// Differs from that of every other model of a catalog.
    pub(crate) id: u64,
    pub(crate) driver: Text,
    pub(crate) attributes: BTreeMap<Text, Arc<DeviceAttribute>>,
    pub(crate) capacity: BTreeMap<Text, DeviceCapacity>,
    pub(crate) allow_multiple_allocations: bool,
    /// The device in the form of expressions, or the reason why there is none.
    seen: Result<Seen, Arc<str>>,
    /// By selector.
    answers: RwLock<HashMap<u64, Answer>>,
}

/// Maximum number of cached selector results of one model.
const ANSWERS_MAX: usize = 1024;

impl Model {
    /// The model of a driver's device.
    #[must_use]
    pub fn new(driver: &str, device: &v1::Device) -> Self {
        let attributes = device.attributes.iter().map(|(name, value)| (name.clone(), Arc::new(value.clone())));
        Model {
            id: 0,
            driver: driver.into(),
            attributes: attributes.collect(),
            capacity: device.capacity.clone(),
            allow_multiple_allocations: device.allow_multiple_allocations == Some(true),
            seen: seen(driver, device),
            answers: RwLock::default(),
        }
    }

    /// The device in the form of expressions.
    ///
    /// # Errors
    /// An attribute has no value that could be shown.
    pub fn seen(&self) -> Result<&Seen, &Arc<str>> {
        self.seen.as_ref()
    }

    /// Evaluates a selector for the device, once.
    pub(crate) fn answer(&self, selector: &Selector) -> Answer {
        let known = self.answers.read().get(&selector.id()).cloned();
        if let Some(known) = known {
            return known;
        }
        let answer = match &self.seen {
            Ok(seen) => selector.ask(seen),
            Err(problem) => Answer::Fails(problem.clone()),
        };
        let mut answers = self.answers.write();
        if answers.len() >= ANSWERS_MAX {
            answers.clear();
        }
        answers.insert(selector.id(), answer.clone());
        answer
    }

    /// An attribute by its full name; the driver's own may be published without domain.
    pub(crate) fn attribute(&self, full_name: &str) -> Option<&Arc<DeviceAttribute>> {
        if let Some(found) = self.attributes.get(full_name) {
            return Some(found);
        }
        let (domain, name) = full_name.split_once('/')?;
        if domain == self.driver { self.attributes.get(name) } else { None }
    }
}

fn seen(driver: &str, device: &v1::Device) -> Result<Seen, Arc<str>> {
    let mut seen = Seen::new(driver).allow_multiple_allocations(device.allow_multiple_allocations == Some(true));
    for (name, attribute) in &device.attributes {
        let value = attribute_value(attribute).map_err(|problem| format!("attribute {name}: {problem}"))?;
        seen.set_attribute(name, value);
    }
    for (name, capacity) in &device.capacity {
        seen.set_capacity(name, capacity.value.clone());
    }
    Ok(seen)
}

fn attribute_value(attribute: &DeviceAttribute) -> Result<Value<'static>, String> {
    let version = |text: &Text| match Version::parse(text) {
        Ok(version) => Ok(Value::opaque(SemverValue(version))),
        Err(error) => Err(format!("parse semantic version: {error}")),
    };
    Ok(match attribute {
        it if !it.ints.is_empty() => Value::list(it.ints.iter().copied().map(Value::Int).collect()),
        it if !it.bools.is_empty() => Value::list(it.bools.iter().copied().map(Value::Bool).collect()),
        it if !it.strings.is_empty() => {
            Value::list(it.strings.iter().map(|text| Value::string(text.as_str())).collect())
        }
        it if !it.versions.is_empty() => Value::list(it.versions.iter().map(version).collect::<Result<_, _>>()?),
        DeviceAttribute { int: Some(number), .. } => Value::Int(*number),
        DeviceAttribute { bool: Some(truth), .. } => Value::Bool(*truth),
        DeviceAttribute { string: Some(text), .. } => Value::string(text.as_str()),
        DeviceAttribute { version: Some(text), .. } => version(text)?,
        _ => return Err("unsupported attribute value".to_owned()),
    })
}

/// Models by their content, as long as a slice has a device of that model.
#[derive(Debug, Default)]
pub(crate) struct Models(Mutex<ModelTable>);

#[derive(Debug, Default)]
struct ModelTable {
    models: HashMap<String, Weak<Model>>,
    last_id: u64,
}

impl Models {
    pub(crate) fn intern(&self, driver: &str, device: &v1::Device) -> Arc<Model> {
        let key = content_key(driver, device);
        let mut known = self.0.lock();
        if let Some(model) = known.models.get(&key).and_then(Weak::upgrade) {
            return model;
        }
        known.last_id = known.last_id.wrapping_add(1);
        let model = Arc::new(Model { id: known.last_id, ..Model::new(driver, device) });
        known.models.retain(|_, model| model.strong_count() > 0);
        known.models.insert(key, Arc::downgrade(&model));
        model
    }
}

/// Returns all contents of a model as text: equal texts mean equal models.
fn content_key(driver: &str, device: &v1::Device) -> String {
    let part = v1::Device {
        name: driver.into(),
        attributes: device.attributes.clone(),
        capacity: device.capacity.clone(),
        allow_multiple_allocations: device.allow_multiple_allocations.filter(|it| *it),
        ..Default::default()
    };
    // Views consist of texts, numbers, lists and maps by name: they can always be converted to a document.
    json::to_value(&part).map_or_else(|_| format!("{part:?}"), |document| json::to_string(&document))
}
