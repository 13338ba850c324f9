//! Evaluates an expression over a JSON document and prints the result as JSON:
//!
//! `cargo run --package celplane-cel --features serde_json --example json -- 'self.ports.filter(p, p < 1024)' '{"ports": [443, 8080]}'`

use std::error::Error;

use celplane_cel::env::Env;
use celplane_cel::library;
use celplane_cel::program::{Bindings, Limits, Program};
use celplane_cel::types::Type;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let expression = arguments.next().unwrap_or_else(|| "self.ports.filter(p, p < 1024)".to_owned());
    let document = arguments.next().unwrap_or_else(|| r#"{"ports": [443, 8080]}"#.to_owned());
    let document: serde_json::Value = serde_json::from_str(&document)?;

    let env = Env::builder().library(&library::standard()).variable("self", Type::Dyn).build()?;
    let program = Program::new(&env.compile(&expression)?)?;
    let input = Bindings::new().bind("self", &document);
    // Expressions of users run within a limit: past it the evaluation ends with an error.
    let evaluation = program.eval_within(&input, Limits::cost(1_000_000));
    println!("{}", serde_json::Value::try_from(&evaluation.result?)?);
    Ok(())
}
