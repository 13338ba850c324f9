//! `DeviceConstraint.cel`: reads a set of devices, yields whether they may be allocated together (KEP-5254).

use std::ops::RangeInclusive;

use cel::env::EnvError;
use cel::program::Activation;
use cel::value::{HostList, List, PartialList, Value};

use super::device::{self, Device};
use super::{Dialect, Language};
use crate::compile::Environment;
use crate::declared::DeclaredType;

/// Name of the variable.
pub const VARIABLE: &str = "devices";

/// Maximum number of devices that a claim allocates.
const DEVICES_MAX: u64 = 32;

/// The environment of device constraints.
pub fn environment(dialect: Dialect) -> Result<Environment, EnvError> {
    environment_in(&dialect.language()?)
}

/// Like `environment`, in a language that other environments share: takes a fraction of the time.
pub fn environment_in(language: &Language) -> Result<Environment, EnvError> {
    device::with_bindings(language, VARIABLE, DeclaredType::list(device::declared(), DEVICES_MAX))
}

/// A set of devices, as constraints see it.
#[derive(Debug, Clone, Copy)]
pub struct Devices<'d>(pub &'d [&'d Device]);

impl HostList for Devices<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, index: usize) -> Option<Value<'_>> {
        self.0.get(index).map(|device| Value::Object(*device))
    }
}

impl Activation for Devices<'_> {
    fn resolve(&self, name: &str) -> Option<Value<'_>> {
        (name == VARIABLE).then_some(Value::List(List::Host(self)))
    }
}

/// A set of devices of which some are chosen, and others still to be.
///
/// Numbers identify devices: a number must denote the same device as long as results are cached.
#[derive(Debug, Clone)]
pub struct PartialDevices<'d>(Value<'d>);

impl<'d> PartialDevices<'d> {
    /// Devices that are chosen, and those that this many more are drawn from.
    ///
    /// The first this many of the chosen devices precede all others, in their order. The order of the rest is
    /// unknown.
    pub fn new(
        chosen: impl IntoIterator<Item = (u32, &'d Device)>,
        candidates: impl IntoIterator<Item = (u32, &'d Device)>,
        open: RangeInclusive<usize>,
        front: usize,
    ) -> Self {
        fn seen<'d>((number, device): (u32, &'d Device)) -> (u32, Value<'d>) {
            (number, Value::Object(device))
        }
        let list = PartialList::new(chosen.into_iter().map(seen), candidates.into_iter().map(seen), open);
        PartialDevices(list.with_front(front).into_value())
    }
}

impl Activation for PartialDevices<'_> {
    fn resolve(&self, name: &str) -> Option<Value<'_>> {
        (name == VARIABLE).then(|| self.0.clone())
    }
}
