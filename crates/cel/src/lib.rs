//! The Common Expression Language: text → tree → types → cost → program → value.

pub mod checker;
pub mod cost;
pub mod env;
pub mod library;
pub mod program;
pub mod regex;
pub mod source;
pub mod syntax;
pub mod types;
pub mod value;
