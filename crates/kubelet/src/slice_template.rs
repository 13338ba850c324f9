//! Simulated devices: slices from a template, so that claims can be tried without hardware.
//!
//! A template is a short text such as `ring:8` or `grid:4x4`. It is expanded to slices as a driver would
//! publish them; nothing here depends on how devices are chosen.

use std::str::FromStr;

use api::json::{Object, Value};

/// Devices of a node, and how they are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SliceTemplate {
    /// `ring:8`: accelerators in a ring; neighbors have ids that follow each other.
    Ring {
        /// Number of devices.
        devices: usize,
    },
    /// `grid:4x4`: accelerators in rows and columns.
    Grid {
        /// Number of rows.
        rows: usize,
        /// Number of devices in each row.
        columns: usize,
    },
    /// `torus:2x4x4`: accelerators in three dimensions, each of them a ring.
    Torus {
        /// The extents.
        extents: [usize; 3],
    },
    /// `numa:2x4`: accelerators on several NUMA nodes.
    Numa {
        /// Number of NUMA nodes.
        nodes: usize,
        /// Number of accelerators on each.
        devices: usize,
    },
    /// `pcie:2x4x1`: GPUs and network cards behind PCIe roots.
    Pcie {
        /// Number of roots.
        roots: usize,
        /// Number of GPUs behind each root.
        gpus: usize,
        /// Number of network cards behind each root.
        nics: usize,
    },
}

/// A reason why a text is not a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The text has the wrong form.
    #[error("`{0}` is none of ring:N, grid:RxC, torus:XxYxZ, numa:NODESxDEVICES, pcie:ROOTSxGPUSxNICS")]
    Form(String),
    /// The template has no devices, or more than a node can have.
    #[error("`{template}` describes {devices} devices; a node has from 1 to {DEVICES_MAX}")]
    Count {
        /// The template.
        template: String,
        /// Number of devices of the template.
        devices: usize,
    },
}

/// Maximum number of simulated devices of one driver on a node.
const DEVICES_MAX: usize = 1024;

/// Maximum number of devices in a slice, as in Kubernetes.
const SLICE_MAX: usize = 128;

/// The driver of accelerators.
pub const ACCELERATORS: &str = "mla.example.com";
/// The driver of GPUs.
pub const GPUS: &str = "gpu.example.com";
/// The driver of network cards.
pub const NICS: &str = "nic.example.com";

const PCIE_ROOT: &str = "resource.kubernetes.io/pcieRoot";

impl FromStr for SliceTemplate {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        let form = || TemplateError::Form(text.to_owned());
        let (kind, extents) = text.split_once(':').ok_or_else(form)?;
        let numbers: Result<Vec<usize>, _> = extents.split('x').map(str::parse).collect();
        let template = match (kind, numbers.map_err(|_| form())?.as_slice()) {
            ("ring", [devices]) => SliceTemplate::Ring { devices: *devices },
            ("grid", [rows, columns]) => SliceTemplate::Grid { rows: *rows, columns: *columns },
            ("torus", [x, y, z]) => SliceTemplate::Torus { extents: [*x, *y, *z] },
            ("numa", [nodes, devices]) => SliceTemplate::Numa { nodes: *nodes, devices: *devices },
            ("pcie", [roots, gpus, nics]) => SliceTemplate::Pcie { roots: *roots, gpus: *gpus, nics: *nics },
            _ => return Err(form()),
        };
        let devices = template.device_count();
        if !(1..=DEVICES_MAX).contains(&devices) {
            return Err(TemplateError::Count { template: text.to_owned(), devices });
        }
        Ok(template)
    }
}

impl std::fmt::Display for SliceTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SliceTemplate::Ring { devices } => write!(f, "ring:{devices}"),
            SliceTemplate::Grid { rows, columns } => write!(f, "grid:{rows}x{columns}"),
            SliceTemplate::Torus { extents: [x, y, z] } => write!(f, "torus:{x}x{y}x{z}"),
            SliceTemplate::Numa { nodes, devices } => write!(f, "numa:{nodes}x{devices}"),
            SliceTemplate::Pcie { roots, gpus, nics } => write!(f, "pcie:{roots}x{gpus}x{nics}"),
        }
    }
}

impl SliceTemplate {
    fn device_count(self) -> usize {
        match self {
            SliceTemplate::Ring { devices } => devices,
            SliceTemplate::Grid { rows, columns } => rows.saturating_mul(columns),
            SliceTemplate::Torus { extents } => extents.into_iter().fold(1, usize::saturating_mul),
            SliceTemplate::Numa { nodes, devices } => nodes.saturating_mul(devices),
            SliceTemplate::Pcie { roots, gpus, nics } => roots.saturating_mul(gpus.saturating_add(nics)),
        }
    }

    /// The slices that drivers on a node publish: whole documents without owner and version.
    #[must_use]
    pub fn slices(self, node: &str) -> Vec<Value> {
        let accelerators = |devices: Vec<Value>| slices_of(ACCELERATORS, node, devices);
        match self {
            SliceTemplate::Ring { devices } => accelerators((0..devices).map(|id| device("mla", id, &[])).collect()),
            SliceTemplate::Grid { rows, columns } => {
                let places = (0..rows).flat_map(|row| (0..columns).map(move |col| [("row", row), ("col", col)]));
                accelerators(places.enumerate().map(|(id, place)| device("mla", id, &place)).collect())
            }
            SliceTemplate::Torus { extents: [x, y, z] } => {
                let rows = (0..x).flat_map(|x| (0..y).map(move |y| (x, y)));
                let places = rows.flat_map(|(x, y)| (0..z).map(move |z| [("x", x), ("y", y), ("z", z)]));
                accelerators(places.enumerate().map(|(id, place)| device("mla", id, &place)).collect())
            }
            SliceTemplate::Numa { nodes, devices } => {
                let places = (0..nodes).flat_map(|numa| (0..devices).map(move |_| [("numa", numa)]));
                accelerators(places.enumerate().map(|(id, place)| device("mla", id, &place)).collect())
            }
            SliceTemplate::Pcie { roots, gpus, nics } => {
                let behind = |kind: &str, count: usize| -> Vec<Value> {
                    let places = (0..roots).flat_map(|root| (0..count).map(move |_| root));
                    places.enumerate().map(|(id, root)| behind_root(device(kind, id, &[]), root)).collect()
                };
                let mut slices = slices_of(GPUS, node, behind("gpu", gpus));
                slices.extend(slices_of(NICS, node, behind("nic", nics)));
                slices
            }
        }
    }
}

/// A device with an id and further numbers.
fn device(kind: &str, id: usize, numbers: &[(&str, usize)]) -> Value {
    let mut attributes = Object::new();
    for (name, number) in [("deviceid", id)].iter().chain(numbers) {
        let number = i64::try_from(*number).unwrap_or(i64::MAX);
        attributes.insert(*name, api::json!({"int": (number)}));
    }
    api::json!({"name": (format!("{kind}-{id}")), "attributes": (Value::Object(attributes))})
}

fn behind_root(mut device: Value, root: usize) -> Value {
    if let Some(attributes) = device.get_mut("attributes").and_then(Value::as_object_mut) {
        attributes.insert(PCIE_ROOT, api::json!({"string": (format!("pci0000:{root:02x}"))}));
    }
    device
}

/// A pool of a driver, in slices that are not too large.
fn slices_of(driver: &str, node: &str, devices: Vec<Value>) -> Vec<Value> {
    let chunks: Vec<&[Value]> = devices.chunks(SLICE_MAX).collect();
    let count = i64::try_from(chunks.len()).unwrap_or(i64::MAX);
    let slice = |(index, devices): (usize, &&[Value])| {
        api::json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": (format!("{node}-{driver}-{index}"))},
            "spec": {
                "driver": (driver),
                "nodeName": (node),
                "pool": {"name": (node), "generation": 1, "resourceSliceCount": (count)},
                "devices": (Value::Array(devices.to_vec()))
            }
        })
    };
    chunks.iter().enumerate().map(slice).collect()
}

#[cfg(test)]
mod tests {
    use api::json::{from_value, to_string};
    use api::resource::v1::ResourceSlice;

    use super::*;

    fn published(template: &str) -> Vec<ResourceSlice> {
        let template: SliceTemplate = template.parse().unwrap();
        template.slices("node-1").iter().map(|slice| from_value(slice).unwrap()).collect()
    }

    #[track_caller]
    fn check(template: &str, device: usize, expected: &str) {
        let slices = published(template);
        let devices: Vec<_> = slices.iter().flat_map(|slice| &slice.spec.devices).collect();
        let found = api::json::to_value(devices[device]).unwrap();
        assert_eq!(to_string(&found), expected);
    }

    #[test]
    fn devices_say_where_they_are() {
        check("ring:8", 3, r#"{"name":"mla-3","attributes":{"deviceid":{"int":3}}}"#);
        check("grid:2x4", 5, r#"{"name":"mla-5","attributes":{"col":{"int":1},"deviceid":{"int":5},"row":{"int":1}}}"#);
        check(
            "torus:2x2x2",
            6,
            r#"{"name":"mla-6","attributes":{"deviceid":{"int":6},"x":{"int":1},"y":{"int":1},"z":{"int":0}}}"#,
        );
        check("numa:2x4", 4, r#"{"name":"mla-4","attributes":{"deviceid":{"int":4},"numa":{"int":1}}}"#);
        check(
            "pcie:2x2x1",
            5,
            r#"{"name":"nic-1","attributes":{"deviceid":{"int":1},"resource.kubernetes.io/pcieRoot":{"string":"pci0000:01"}}}"#,
        );
    }

    #[test]
    fn large_pools_are_several_slices() {
        let slices = published("grid:20x10");
        let sizes: Vec<usize> = slices.iter().map(|slice| slice.spec.devices.len()).collect();
        assert_eq!(sizes, [128, 72]);
        assert!(slices.iter().all(|slice| slice.spec.pool.resource_slice_count == 2));
        assert_ne!(slices[0].metadata.name, slices[1].metadata.name);
    }

    #[test]
    fn invalid_template_is_rejected() {
        for text in ["", "ring", "ring:", "ring:x", "ring:8x8", "grid:4", "star:5", "ring:-1"] {
            assert!(matches!(text.parse::<SliceTemplate>(), Err(TemplateError::Form(_))), "{text}");
        }
        for text in ["ring:0", "grid:0x4", "ring:2000", "torus:99999999999x99999999999x99999999999"] {
            assert!(matches!(text.parse::<SliceTemplate>(), Err(TemplateError::Count { .. })), "{text}");
        }
    }
}
