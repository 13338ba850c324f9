//! Constraints of several kinds, and devices that satisfy them or do not.

use cel::value::Value;
use cel_kubernetes::compile::CompiledExpression;
use cel_kubernetes::environments::device::Device;
use cel_kubernetes::environments::{Dialect, devices};
use cel_kubernetes::libraries::semver::SemverValue;

/// A constraint, and devices for it.
#[derive(Debug)]
pub struct Scenario {
    /// Name of the scenario.
    pub name: &'static str,
    pub(super) expression: fn(usize) -> String,
    pub(super) device: fn(usize, usize) -> Option<Device>,
    counts: &'static [usize],
}

/// The canonical order of the devices, against their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// 1, 2, … 10
    Numeric,
    /// 1, 10, 2, …
    Text,
    /// Any.
    Random,
}

impl Order {
    /// Name of the order.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Order::Numeric => "numeric",
            Order::Text => "text",
            Order::Random => "random",
        }
    }

    pub(super) fn sort(self, devices: &mut [(usize, Device)]) {
        match self {
            Order::Numeric => {}
            Order::Text => devices.sort_by_key(|(index, _)| index.to_string()),
            Order::Random => devices.sort_by_key(|(index, _)| {
                let mixed = (*index as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 20
            }),
        }
    }
}

/// Numbers of devices.
pub(super) const SIZES: [usize; 5] = [8, 16, 32, 64, 128];

impl Scenario {
    /// Numbers of available and requested devices.
    pub fn sizes(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let counts = |devices: usize| self.counts.iter().map(move |count| (devices, *count));
        SIZES.into_iter().flat_map(counts).filter(|(devices, count)| count < devices)
    }

    pub(super) fn compile(&self, count: usize) -> Option<CompiledExpression> {
        let environment = devices::environment(Dialect::CELPLANE).ok()?;
        environment.compile(&(self.expression)(count)).ok()
    }
}

const DOMAIN: &str = "mla.example.com";

fn device(attributes: &[(&str, i64)]) -> Device {
    let mut device = Device::new(DOMAIN);
    for (name, value) in attributes {
        device.set_attribute(name, Value::Int(*value));
    }
    device
}

/// The expression with `d@name` written out for attributes of devices.
fn at_attributes(text: &str) -> String {
    let mut written = text.to_owned();
    for variable in ["d", "e", "a", "b"] {
        written = written.replace(&format!("{variable}@"), &format!("{variable}.attributes['{DOMAIN}']."));
    }
    written
}

fn contiguous(count: usize) -> String {
    at_attributes(&format!(
        "size(devices) == {count} && devices.map(d, d@deviceid).max() - devices.map(d, d@deviceid).min() == {}",
        count.saturating_sub(1)
    ))
}

fn grid(_: usize) -> String {
    at_attributes(
        "size(devices) == 4 && devices.all(d, devices.filter(e, d != e && ((d@row == e@row && (d@col == e@col + 1 || \
         d@col == e@col - 1)) || (d@col == e@col && (d@row == e@row + 1 || d@row == e@row - 1)))).size() >= 2)",
    )
}

fn numa(_: usize) -> String {
    at_attributes(
        "devices.all(d, d@numa == devices[0].attributes['mla.example.com'].numa) && \
         devices.all(d, devices.exists_one(e, e@parent == d@parent))",
    )
}

fn sum(count: usize) -> String {
    let gibibytes = (count as u64).saturating_mul(30);
    format!("devices.map(d, d.capacity['{DOMAIN}'].memory.asInteger()).sum() >= quantity('{gibibytes}Gi').asInteger()")
}

fn distance(_: usize) -> String {
    at_attributes("devices.all(a, devices.all(b, int(a@row) - int(b@row) <= 2 && int(a@col) - int(b@col) <= 2))")
}

fn spread(_: usize) -> String {
    at_attributes(
        "devices.map(d, d@fw.major()).max() - devices.map(d, d@fw.major()).min() <= 0 && \
         devices.map(d, d@fw.minor()).max() - devices.map(d, d@fw.minor()).min() <= 1",
    )
}

/// The side of a square of this many cells.
fn side(devices: usize) -> i64 {
    let mut side = 1_i64;
    while side.saturating_mul(side) < devices as i64 {
        side = side.saturating_add(1);
    }
    side
}

fn cell(index: usize, devices: usize) -> (i64, i64) {
    let side = side(devices);
    let index = index as i64;
    (index.checked_div(side).unwrap_or_default(), index.checked_rem(side).unwrap_or_default())
}

fn with_memory(index: usize, gibibytes: u64) -> Option<Device> {
    let mut device = device(&[("deviceid", index as i64)]);
    device.set_capacity("memory", api::quantity::Quantity::parse(&format!("{gibibytes}Gi")).ok()?);
    Some(device)
}

fn with_version(index: usize, version: &str) -> Option<Device> {
    let mut device = device(&[("deviceid", index as i64)]);
    device.set_attribute("fw", Value::opaque(SemverValue(api::semver::Version::parse(version).ok()?)));
    Some(device)
}

const ALL_COUNTS: &[usize] = &[2, 4, 8, 16];
const FOUR: &[usize] = &[4];

/// All constraints that are measured.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "contiguous",
        expression: contiguous,
        device: |index, _| Some(device(&[("deviceid", index as i64)])),
        counts: ALL_COUNTS,
    },
    Scenario {
        name: "contiguous, even ids",
        expression: contiguous,
        device: |index, _| Some(device(&[("deviceid", index as i64 * 2)])),
        counts: ALL_COUNTS,
    },
    Scenario {
        name: "contiguous, runs one too short",
        expression: contiguous,
        // The runs are as long as the greatest number of devices that is not requested.
        device: |index, count| {
            let run = count.saturating_sub(1).max(1);
            Some(device(&[("deviceid", index.saturating_add(index.checked_div(run)?) as i64)]))
        },
        counts: ALL_COUNTS,
    },
    Scenario {
        name: "2×2 grid",
        expression: grid,
        device: |index, devices| {
            let (row, col) = cell(index, devices);
            Some(device(&[("row", row), ("col", col)]))
        },
        counts: FOUR,
    },
    Scenario {
        name: "2×2 grid, checkerboard",
        expression: grid,
        device: |index, devices| {
            let (row, col) = cell(index, devices);
            Some(device(&[("row", row), ("col", col * 2 + row % 2)]))
        },
        counts: FOUR,
    },
    Scenario {
        name: "2×2 grid, with holes",
        expression: grid,
        // Every second row is removed.
        device: |index, devices| {
            let (row, col) = cell(index, devices);
            Some(device(&[("row", row + (row / 2) * 2 + row % 2), ("col", col)]))
        },
        counts: FOUR,
    },
    Scenario {
        name: "same NUMA, different parents",
        expression: numa,
        device: |index, _| Some(device(&[("numa", index as i64 % 4), ("parent", index as i64 / 8)])),
        counts: ALL_COUNTS,
    },
    Scenario {
        name: "sum of capacities",
        expression: sum,
        device: |index, _| with_memory(index, if index % 4 == 3 { 40 } else { 16 + index as u64 % 4 * 8 }),
        counts: ALL_COUNTS,
    },
    Scenario {
        name: "sum of capacities, too little",
        expression: sum,
        device: |index, _| with_memory(index, if index % 4 == 3 { 28 } else { 16 + index as u64 % 2 * 8 }),
        counts: ALL_COUNTS,
    },
    Scenario {
        name: "distance of all pairs",
        expression: distance,
        device: |index, devices| {
            let (row, col) = cell(index, devices);
            Some(device(&[("row", row), ("col", col)]))
        },
        counts: ALL_COUNTS,
    },
    Scenario {
        name: "distance of all pairs, far apart",
        expression: distance,
        device: |index, devices| {
            let (row, col) = cell(index, devices);
            Some(device(&[("row", row * 3), ("col", col * 3)]))
        },
        counts: ALL_COUNTS,
    },
    Scenario {
        name: "version spread",
        expression: spread,
        device: |index, _| with_version(index, &format!("{}.{}.0", index % 3, index % 5)),
        counts: ALL_COUNTS,
    },
    Scenario {
        name: "version spread, too wide",
        expression: spread,
        device: |index, _| with_version(index, &format!("{}.{}.0", index, index % 5)),
        counts: ALL_COUNTS,
    },
];
