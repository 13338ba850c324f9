//! Compiles a toleration's expression, reports its cost, and evaluates it for two taints.

use std::error::Error;

use celplane_cel_kubernetes::environments::toleration::Taint;
use celplane_cel_kubernetes::environments::{Dialect, toleration};

fn main() -> Result<(), Box<dyn Error>> {
    let environment = toleration::environment(Dialect::KUBERNETES)?;
    let expression = environment
        .compile("taint.key == 'gpu.example.com/driver' && semver(taint.value).isGreaterThan(semver('1.28.0'))")?;
    println!("estimated cost: {} to {}", expression.cost().min, expression.cost().max);
    for value in ["1.30.2", "1.27.0"] {
        let taint = Taint { key: "gpu.example.com/driver", value, effect: "NoSchedule", time_added: None };
        println!("{value}: {}", expression.eval(&taint).result?);
    }
    Ok(())
}
