//! What does a printer column cost as an expression, and what as a path, on the same object?

use celplane_bench::column::{ALL, EXPRESSION, PATH};
use celplane_bench::harness::on_this_machine;
use celplane_bench::table::{NONE, Table, ratio, time};

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    println!("What does a printer column cost as an expression, and what as a path?\n\n{EXPRESSION}\n{PATH}\n");
    let harness = on_this_machine();
    let header = ["work", "CEL", "JSONPath", "CEL / JSONPath", "Go: CEL*", "Go: JSONPath*"];
    let mut table = Table::new(header.map(str::to_owned));
    for work in ALL {
        let timings = harness.side_by_side(&mut [(work.expression)(), (work.path)()]);
        let times: Vec<Option<f64>> = timings.iter().map(|timing| timing.map(|it| it.min_ns)).collect();
        let [expression, path] = [0, 1].map(|index| times.get(index).copied().flatten());
        let recorded = [work.recorded.map(|it| it.0), work.recorded.map(|it| it.1)];
        let shown = |ns: Option<f64>| ns.map_or_else(|| NONE.to_owned(), time);
        let compared = expression.zip(path).map_or_else(|| NONE.to_owned(), |(ours, path)| ratio(ours, path));
        let [go_expression, go_path] = recorded.map(shown);
        table.row([work.name.to_owned(), shown(expression), shown(path), compared, go_expression, go_path]);
    }
    println!("fastest sample\n{table}");
    println!("\"all of it\" is compile, find and print; Go builds the environment each time, too");
    println!("* recorded on another run, on an object of the same shape");
}
