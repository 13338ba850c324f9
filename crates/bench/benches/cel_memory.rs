//! How much memory does a compiled expression take?

use celplane_bench::cases;
use celplane_bench::memory::{resident_bytes, size};
use celplane_bench::ours;
use celplane_bench::table::{NONE, Table};

/// Number of copies for measuring the size of one.
const COPIES: u32 = 4_000;

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    println!("How much memory does a compiled expression take?");
    let mut table = Table::new(["case", "program", "program, tree and types, resident"].map(str::to_owned));
    for case in cases::all() {
        let Some(environment) = ours::environment(&case) else { continue };
        let Ok(compiled) = environment.compile(case.expression) else { continue };
        let before = resident_bytes();
        let kept: Vec<_> = (0..COPIES).map(|_| environment.compile(case.expression)).collect();
        let grown = resident_bytes().zip(before).map(|(after, before)| after.saturating_sub(before));
        let resident = grown.map_or_else(|| NONE.to_owned(), |grown| size(grown as f64 / f64::from(COPIES)));
        table.row([case.name.to_owned(), size(compiled.memory_bytes() as f64), resident]);
        // Kept to the end, so that the next case does not find the memory of this one.
        std::mem::forget(kept);
    }
    println!("{table}regular expressions are built at first use, and not counted");
}
