//! Tree + environment → typed tree.
//!
//! Follows cel-go's checker in its rules, in the order and the wording of its messages.

mod typed;

pub use typed::{OverloadSet, Reference, TypedAst};
