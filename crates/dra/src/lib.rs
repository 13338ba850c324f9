//! Which devices satisfy which claims, and in which order sets are tried.

pub mod constraints;
