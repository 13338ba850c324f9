//! CEL in Kubernetes: libraries, environments, schemas, limits, compile cache.
//!
//! A [`compile::Environment`] describes a place in the API that accepts an expression; there is one per file in
//! [`environments`]. It compiles text into a [`compile::CompiledExpression`] expression, which a [`cache::Cache`] keeps.
//! [`reads::Reads`] lists the parts of the input that the expression depends on, [`order`] determines whether
//! it depends on the order of a list, and [`prospect`] whether it can be evaluated on a part of one.

pub mod cache;
pub mod compile;
pub mod declared;
pub mod environments;
pub mod libraries;
pub mod names;
pub mod object_limits;
pub mod order;
pub mod places;
pub mod prospect;
pub mod reads;
#[cfg(feature = "recorded")]
#[doc(hidden)]
pub mod recorded;
pub mod schema;
pub mod unstructured;
