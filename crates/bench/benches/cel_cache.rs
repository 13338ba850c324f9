//! What does a look into the compile cache cost when many threads look, and does the cache keep its bound?
//!
//! Under `cargo test` a tenth of the expressions goes through, and nothing is timed.

use cel_kubernetes::cache::Cache;
use cel_kubernetes::compile::{CompileError, CompiledExpression, Environment};
use cel_kubernetes::environments::{Dialect, toleration};
use celplane_bench::memory::{resident_bytes, size};
use celplane_bench::table::{NONE, Table, time};
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// Number of programs in the cache.
const CAPACITY: usize = 1_000;

/// Number of distinct expressions.
const EXPRESSIONS: usize = 100_000;

/// Memory limit of a full cache, regardless of the number of expressions.
const MEMORY_BYTES_MAX: u64 = 16_000_000;

/// Number of expressions that the threads look up.
const HOT: usize = 100;

const LOOKUPS_PER_THREAD: u32 = 400_000;

type Programs = Cache<CompiledExpression, CompileError>;

fn main() -> ExitCode {
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let Ok(environment) = toleration::environment(Dialect::CELPLANE) else { return ExitCode::FAILURE };
    let expressions = if measuring { EXPRESSIONS } else { EXPRESSIONS / 10 };
    let taken = fill(&environment, expressions, measuring);
    if measuring {
        look_up(&environment);
    }
    match taken {
        Some(taken) if taken > MEMORY_BYTES_MAX => {
            eprintln!("the cache takes {taken} bytes, more than {MEMORY_BYTES_MAX}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn cache() -> Programs {
    let start = Instant::now();
    let capacity = NonZeroUsize::new(CAPACITY).unwrap_or(NonZeroUsize::MIN);
    Cache::new(capacity, Arc::new(move || start.elapsed()))
}

/// No two are the same; one fits all places in the API that see a taint.
fn expression(number: usize) -> String {
    format!("taint.key == 'example.com/team-{number}' || taint.value.startsWith('v{number}.') && taint.effect != ''")
}

/// Sends distinct expressions through a cache; answers how much memory that took.
fn fill(environment: &Environment, count: usize, show: bool) -> Option<u64> {
    let before = resident_bytes();
    let cache = cache();
    let start = Instant::now();
    let mut full = None;
    for number in 0..count {
        let text = expression(number);
        _ = cache.get_or_compile(&text, || environment.compile(&text));
        if number == CAPACITY.saturating_mul(2) {
            full = resident_bytes();
        }
    }
    let took = start.elapsed();
    let after = resident_bytes();
    let grown = |after: Option<u64>| after.zip(before).map(|(after, before)| after.saturating_sub(before));
    if show {
        let statistics = cache.statistics();
        let bytes = |bytes: Option<u64>| bytes.map_or_else(|| NONE.to_owned(), |bytes| size(bytes as f64));
        println!("{count} distinct expressions through a cache of {CAPACITY}, one thread");
        let mut table = Table::new(
            ["kept", "compiled", "evicted", "each", "memory once full", "memory at the end"].map(str::to_owned),
        );
        table.row([
            cache.len().to_string(),
            statistics.misses.to_string(),
            statistics.evictions.to_string(),
            time(per(took, count as f64)),
            bytes(grown(full)),
            bytes(grown(after)),
        ]);
        println!("{table}stated bound: {}\n", size(MEMORY_BYTES_MAX as f64));
    }
    grown(after)
}

/// Looks up cached expressions from many threads.
fn look_up(environment: &Environment) {
    println!("How long does a look into the cache take, {HOT} expressions, all of them there?");
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut table = Table::new(["threads", "one look, of a core's time", "looks a second"].map(str::to_owned));
    let expressions: Vec<String> = (0..HOT).map(expression).collect();
    for threads in [1_usize, 2, 4, 8] {
        let cache = cache();
        for text in &expressions {
            _ = cache.get_or_compile(text, || environment.compile(text));
        }
        let took = timed(threads, || {
            let mut asked = expressions.iter().cycle();
            for _ in 0..LOOKUPS_PER_THREAD {
                if let Some(text) = asked.next() {
                    _ = std::hint::black_box(cache.get_or_compile(text, || environment.compile(text)));
                }
            }
        });
        let looks = f64::from(LOOKUPS_PER_THREAD) * threads as f64;
        let a_second = looks / took.as_secs_f64() / 1e6;
        table.row([
            threads.to_string(),
            // More threads than cores take turns.
            time(per(took, looks) * threads.min(cores) as f64),
            format!("{a_second:.1} million"),
        ]);
    }
    println!("{table}on {cores} cores");
}

/// Returns the time until all threads have done the work.
fn timed(threads: usize, work: impl Fn() + Sync) -> Duration {
    let barrier = Barrier::new(threads.saturating_add(1));
    let mut start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                barrier.wait();
                work();
            });
        }
        barrier.wait();
        start = Instant::now();
    });
    start.elapsed()
}

fn per(took: Duration, count: f64) -> f64 {
    took.as_secs_f64() * 1e9 / count
}
