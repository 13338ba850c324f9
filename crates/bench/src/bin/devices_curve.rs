//! What does a search for a set of devices cost, beside trying every set?
//!
//! ```
//! cargo run --release -p celplane-bench --bin devices_curve                          # a table
//! cargo run --release -p celplane-bench --bin devices_curve -- --svg docs/devices.svg  # and a plot
//! ```
//! Costs are metered CEL costs: of complete sets, of partial sets, and of conditions on single devices and
//! pairs. If there are too many sets to try, the cost of trying all is estimated as the number of sets times
//! the mean cost of a thousand of them (`~`).

use std::process::ExitCode;

use celplane_bench::curve::{self, Measurement, Order};
use celplane_bench::table::Table;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let svg = arguments.iter().position(|it| it == "--svg").and_then(|at| arguments.get(at.saturating_add(1)));
    let mut table = Table::new(
        ["constraint", "order", "n", "k", "result", "sets", "cost of all", "visits", "cost", "of all", "remembered"]
            .map(str::to_owned),
    );
    let mut points = Vec::new();
    for scenario in curve::SCENARIOS {
        for (devices, count) in scenario.sizes() {
            for order in [Order::Numeric, Order::Text, Order::Random] {
                let Some(measured) = curve::measure(scenario, devices, count, order) else { continue };
                let Measurement { result, sets, all, is_estimate, visits, cost, remembered } = measured;
                let share = cost as f64 / all.max(1) as f64 * 100.0;
                table.row([
                    scenario.name.to_owned(),
                    order.name().to_owned(),
                    devices.to_string(),
                    count.to_string(),
                    result.to_owned(),
                    sets.to_string(),
                    format!("{}{all}", if is_estimate { "~" } else { "" }),
                    visits.to_string(),
                    cost.to_string(),
                    format!("{share:.4} %"),
                    remembered.to_string(),
                ]);
                points.push((scenario.name, order, devices, count, all, cost));
            }
        }
    }
    println!("{table}");
    if let Some(path) = svg
        && let Err(error) = std::fs::write(path, curve::plot(&points))
    {
        eprintln!("{path}: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
