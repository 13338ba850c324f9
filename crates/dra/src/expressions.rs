//! Programs over devices: selectors of one device, attributes derived from one, constraints over a set.
//!
//! Each is compiled once and kept by its text. The texts of failures are Kubernetes'; costs and limits are the
//! environments' of `cel-kubernetes`, without the limit on the estimate, which the API server has judged.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::resource::v1::DeviceAttribute;
use cel::env::EnvError;
use cel::program::Verdict;
use cel::types::Type;
use cel::value::{EvalError, Value};
use cel_kubernetes::cache::{Cache, Clock};
use cel_kubernetes::compile::{CompileError, CompiledExpression, Environment, ResultRule, not_a_bool};
use cel_kubernetes::environments::device::Device;
use cel_kubernetes::environments::devices::Devices;
use cel_kubernetes::environments::{Dialect, device, devices};
use cel_kubernetes::libraries::semver::SemverValue;

/// All programs of a component.
#[derive(Debug)]
pub struct Expressions {
    device: Environment,
    derived: Environment,
    devices: Environment,
    selectors: Cache<Selector, CompileError>,
    attributes: Cache<DerivedAttribute, CompileError>,
    sets: Cache<SetExpression, CompileError>,
    next_id: AtomicU64,
}

/// `selectors[].cel` of a class or request.
#[derive(Debug)]
pub struct Selector {
    id: u64,
    compiled: CompiledExpression,
}

/// `derivedAttributes[].expression` of a request.
#[derive(Debug)]
pub struct DerivedAttribute {
    id: u64,
    compiled: CompiledExpression,
}

/// `constraints[].cel` of a claim.
#[derive(Debug)]
pub struct SetExpression {
    compiled: CompiledExpression,
    text: Arc<str>,
}

/// Result of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// True.
    Yes,
    /// False.
    No,
    /// Neither; with the reason.
    Fails(Arc<str>),
}

impl Expressions {
    /// Caches of at most `capacity` programs of each kind.
    ///
    /// # Errors
    /// Never, unless a library of ours contradicts another.
    pub fn new(capacity: NonZeroUsize, clock: Clock) -> Result<Self, EnvError> {
        let language = Dialect::CELPLANE.language()?;
        let device = device::environment_in(&language)?.without_estimate_limit();
        let derived = Environment { result: ResultRule::Any, ..device.clone() };
        Ok(Expressions {
            device,
            derived,
            devices: devices::environment_in(&language)?.without_estimate_limit(),
            selectors: Cache::new(capacity, clock.clone()),
            attributes: Cache::new(capacity, clock.clone()),
            sets: Cache::new(capacity, clock),
            next_id: AtomicU64::new(0),
        })
    }

    /// The program of a selector.
    ///
    /// # Errors
    /// Why it does not compile.
    pub fn selector(&self, text: &str) -> Result<Arc<Selector>, CompileError> {
        self.selectors
            .get_or_compile(text, || Ok(Selector { compiled: self.device.compile(text)?, id: self.fresh_id() }))
    }

    /// The program of a derived attribute.
    ///
    /// # Errors
    /// Why it does not compile.
    pub fn derived_attribute(&self, text: &str) -> Result<Arc<DerivedAttribute>, CompileError> {
        self.attributes.get_or_compile(text, || {
            let compiled = self.derived.compile(text)?;
            match compiled.result_type() {
                Type::List(of) if is_attribute(of) => {}
                scalar if is_attribute(scalar) => {}
                other => {
                    return Err(CompileError::WrongType(format!(
                        "must evaluate to a primitive scalar (string, integer, boolean, semver) or a list of these scalars, not {other}"
                    )));
                }
            }
            Ok(DerivedAttribute { compiled, id: self.fresh_id() })
        })
    }

    /// The program of a constraint over a set.
    ///
    /// # Errors
    /// Why it does not compile.
    pub fn set(&self, text: &str) -> Result<Arc<SetExpression>, CompileError> {
        self.sets
            .get_or_compile(text, || Ok(SetExpression { compiled: self.devices.compile(text)?, text: text.into() }))
    }

    fn fresh_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}

fn is_attribute(value_type: &Type) -> bool {
    matches!(value_type, Type::Bool | Type::Int | Type::String | Type::Any | Type::Dyn)
        || *value_type == Type::object("kubernetes.Semver")
}

impl Selector {
    /// Differs from that of every other program of these expressions.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Evaluates the expression on a device.
    pub(crate) fn ask(&self, device: &Device) -> Answer {
        match self.compiled.verdict(device) {
            Verdict::TRUE => Answer::Yes,
            Verdict::FALSE => Answer::No,
            _ => Answer::of(self.compiled.eval(device).result, |other| not_a_bool(other).unwrap_or_default()),
        }
    }
}

impl DerivedAttribute {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Evaluates the expression to an attribute of a device.
    pub(crate) fn derive(&self, device: &Device) -> Result<DeviceAttribute, String> {
        match self.compiled.eval(device).result {
            Ok(value) => to_attribute(&value),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl SetExpression {
    /// The program, for analyses and partial runs.
    pub fn compiled(&self) -> &CompiledExpression {
        &self.compiled
    }

    /// Source text.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Evaluates the expression on a set of devices; returns the cost, too.
    pub fn ask(&self, devices: &[&Device]) -> (Answer, u64) {
        let devices = Devices(devices);
        let evaluation = self.compiled.eval(&devices);
        let misfit = |other: &Value<'_>| format!("result of type {} is not a bool", other.type_name());
        (Answer::of(evaluation.result, misfit), evaluation.cost)
    }
}

impl Answer {
    fn of(result: Result<Value<'_>, EvalError>, misfit: impl FnOnce(&Value<'_>) -> String) -> Answer {
        match result {
            Ok(Value::Bool(true)) => Answer::Yes,
            Ok(Value::Bool(false)) => Answer::No,
            Ok(other) => Answer::Fails(misfit(&other).into()),
            Err(error) => Answer::Fails(error.message().into()),
        }
    }
}

/// A value as an attribute; only scalars that attributes have, and lists of them.
fn to_attribute(value: &Value<'_>) -> Result<DeviceAttribute, String> {
    let mut attribute = DeviceAttribute::default();
    match value {
        Value::Bool(truth) => attribute.bool = Some(*truth),
        Value::Int(number) => attribute.int = Some(*number),
        Value::List(list) => {
            let mut expected = None;
            for (index, element) in list.iter().enumerate() {
                let kind = kind(&element).ok_or_else(|| match expected {
                    None => format!("unsupported list element type: {}", element.go_type_name()),
                    Some(expected) => misfit(index, expected, &element),
                })?;
                let expected = *expected.get_or_insert(kind);
                match &element {
                    _ if kind != expected => return Err(misfit(index, expected, &element)),
                    Value::Bool(truth) => attribute.bools.push(*truth),
                    Value::Int(number) => attribute.ints.push(*number),
                    other => match (other.as_str(), other.as_opaque::<SemverValue>()) {
                        (Some(text), _) => attribute.strings.push(text.into()),
                        (None, Some(version)) => attribute.versions.push(version.0.to_string().into()),
                        (None, None) => return Err(misfit(index, expected, &element)),
                    },
                }
            }
        }
        other => match (other.as_str(), other.as_opaque::<SemverValue>()) {
            (Some(text), _) => attribute.string = Some(text.into()),
            (None, Some(version)) => attribute.version = Some(version.0.to_string().into()),
            (None, None) => return Err(format!("unsupported CEL return type: {}", other.go_type_name())),
        },
    }
    Ok(attribute)
}

fn kind(value: &Value<'_>) -> Option<&'static str> {
    match value {
        Value::Bool(_) => Some("bool"),
        Value::Int(_) => Some("int"),
        Value::String(_) => Some("string"),
        other => other.as_opaque::<SemverValue>().map(|_| "semver"),
    }
}

fn misfit(index: usize, expected: &str, found: &Value<'_>) -> String {
    format!("expected list element at index {index} to be {expected}, got {}", found.go_type_name())
}
