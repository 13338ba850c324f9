//! `cargo xtask`: development tasks.
fn main() {}
