//! `celplane`: one binary, one subcommand per role and tool.
fn main() {}
