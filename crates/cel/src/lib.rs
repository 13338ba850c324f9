//! The Common Expression Language: text → tree → types → cost → program → value.

pub mod regex;
pub mod source;
pub mod syntax;
