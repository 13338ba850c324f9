//! CEL as Kubernetes speaks it: libraries, environments, schemas, limits, compile cache.
//!
//! An [`compile::Environment`] stands for a place in the API that accepts an expression; there is one per file in [`environments`].
//! It compiles text into a [`compile::Compiled`] expression, which a [`cache::Cache`] remembers, and [`reads::Reads`] tells
//! which parts of the input the expression depends on; [`order`] whether it depends on the order of a list, and
//! [`prospect`] whether it can be judged on a part of one.

pub mod cache;
pub mod compile;
pub mod declared;
pub mod environments;
pub mod libraries;
pub mod names;
pub mod order;
pub mod places;
pub mod prospect;
pub mod reads;
pub mod recorded;
pub mod schema;
