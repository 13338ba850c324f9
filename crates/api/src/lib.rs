//! Kubernetes objects as data: it parses and holds, it never decides.
//!
//! Scalars first ([`quantity`], [`semver`]); every component and every offline tool reads objects through this crate. It is
//! pure: no clock, file, socket or global.

pub mod duration;
pub mod features;
pub mod field;
pub mod go_text;
pub mod int_or_string;
pub mod json;
pub mod json_path;
pub mod quantity;
pub mod semver;
pub mod structural_schema;
pub mod time;
pub mod types;
pub mod yaml;

pub use quantity::Quantity;
