//! Names of annotations that carry fields of the proposals on clusters whose API server does not have the fields.
//!
//! `registry::annotations` reads them; components see the merged fields, and the two marks at the end.

/// Tolerations of a pod or pod template.
pub const TOLERATIONS: &str = "placement.celplane.dev/tolerations";
/// Node affinity of a pod, pod template or volume.
pub const NODE_AFFINITY: &str = "placement.celplane.dev/node-affinity";
/// Constraints of a claim.
pub const DEVICE_CONSTRAINTS: &str = "placement.celplane.dev/device-constraints";
/// Prefix of the printer columns of a version of a CustomResourceDefinition.
pub const COLUMNS: &str = "columns.celplane.dev/";
/// Suffix of the annotation that holds the indexes of the entries in the whole list, such as `0,2`.
pub const POSITIONS: &str = ".positions";
/// Prefix of all annotations about placement.
pub const PLACEMENT: &str = "placement.celplane.dev/";

/// Mark of an object whose annotations were merged. Set inside of components, never stored.
pub const MERGED: &str = "placement.celplane.dev/merged";
/// Mark of an object whose annotations are invalid, with the reason. Set inside of components, never stored: such a pod is
/// not scheduled, such a claim not allocated.
pub const REJECTED: &str = "placement.celplane.dev/rejected";
