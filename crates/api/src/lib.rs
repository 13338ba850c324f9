//! Kubernetes objects as data: it parses and holds, it never decides.
//!
//! Every component and every offline tool reads objects through this crate, which is pure: no clock, file, socket or
//! global. In reading order:
//!
//! - **Scalars**: [`quantity`], [`semver`], [`time`], [`duration`], [`age`], [`int_or_string`], and the shapes of [`names`].
//! - **Documents**: [`mod@json`] is the one form in which objects are read, kept and written; [`yaml`] reads manifests into
//!   it; [`cbor`] is another form of it; [`json_path`] finds parts of it.
//! - **Types**: [`types`] is the table of all built-in types, [`structural_schema`] the schemas of custom ones.
//! - **Typed views** of what Celplane interprets, by API group: [`core`], [`apps`], [`batch`], [`resource`],
//!   [`apiextensions`] and others, with [`meta`] for what they share, and [`labels`] and [`field_selector`] to select by.
//!   Small maps are [`sorted_map`]s, and [`shared`] keeps once what many objects have in common.
//! - **User interface**: [`field`] errors, [`features`] gates, [`annotations`], [well-known names](well_known), and text [as Go prints it](go_text).

pub mod admissionregistration;
pub mod age;
pub mod annotations;
pub mod apiextensions;
pub mod apps;
pub mod autoscaling;
pub mod base64;
pub mod batch;
pub mod cbor;
pub mod certificates;
pub mod coordination;
pub mod core;
pub mod discovery;
pub mod duration;
pub mod features;
pub mod field;
pub mod field_selector;
pub mod go_text;
pub mod hash;
pub mod int_or_string;
pub mod json;
pub mod json_path;
pub mod kubernetes;
pub mod labels;
pub mod meta;
pub mod metadata;
pub mod names;
pub mod policy;
pub mod quantity;
pub mod rbac;
pub mod resource;
pub mod scheduling;
pub mod semver;
pub mod shared;
pub mod sorted_map;
pub mod storage;
pub mod structural_schema;
pub mod time;
pub mod types;
mod view;
pub mod well_known;
pub mod x509;
pub mod yaml;

pub use quantity::Quantity;
