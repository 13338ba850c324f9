//! The cost of every kind of input: processor time, memory and bytes out, for the most expensive input that can be found.
//!
//! For each kind a hill climb over shapes (nesting, repetition, aliases, equal and distinct texts, counts) looks for the most
//! expensive input of 1 kB; the best are then tried with 10 kB and 100 kB. The bounds are in `bounds.tsv`, in units of
//! what an ordinary ConfigMap of the same size costs the same program on the same machine, with head room: an
//! input that exceeds them asks for more work than its size pays for. `CELPLANE_COST_FULL=1` tries more shapes and 1 MB, and
//! prints what was found, with bounds that leave the head room; `CELPLANE_COST_SHOW=1` only prints. `CELPLANE_BIN` names another
//! program to measure.

mod generators;
mod process;

use std::collections::BTreeMap;
use std::time::Duration;

use self::generators::{Input, KINDS, Kind, Shape};
use self::process::{Cost, Server, offline_cost};

/// Sizes in bytes.
const SIZES: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Larger ones are tried only on request: a build without optimizations takes minutes for them.
const USUAL_SIZE_MAX: usize = 100_000;
/// Shorter processor times are noise.
const NOISE: Duration = Duration::from_millis(4);
/// Bytes out that are always allowed: a message about errors.
const OUT_BASE: u64 = 640 << 10;
/// The bounds are this many times what was measured.
const HEAD_ROOM: f64 = 4.0;

/// The bounds of a kind.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Processor time: as much as this many ordinary requests of 1 kB,
    fixed: u64,
    /// and this many of the same size.
    times: u64,
    /// Memory in MiB,
    memory: u64,
    /// and bytes of it for each byte of input.
    memory_times: u64,
    /// Bytes out for each byte of input, behind what a message about errors may have.
    out_times: u64,
}

impl Bounds {
    /// Bytes of memory for an input of this size.
    fn memory_max(&self, size: usize) -> u64 {
        (self.memory << 20) + self.memory_times * size as u64
    }

    /// Bytes out for an input of this size.
    fn out_max(&self, size: usize) -> u64 {
        OUT_BASE + self.out_times * size as u64
    }
}

fn bounds() -> BTreeMap<&'static str, Bounds> {
    let lines = include_str!("cost_per_byte/bounds.tsv").lines().filter(|line| !line.starts_with('#'));
    let read = |line: &'static str| {
        let mut fields = line.split('\t');
        let name = fields.next().unwrap();
        let mut number = || fields.next().unwrap().parse().unwrap();
        let bounds =
            Bounds { fixed: number(), times: number(), memory: number(), memory_times: number(), out_times: number() };
        (name, bounds)
    };
    lines.map(read).collect()
}

/// The costs of an ordinary ConfigMap, by size.
struct Ordinary(Vec<Duration>);

impl Ordinary {
    fn of(&self, size: usize) -> Duration {
        let index = SIZES.iter().position(|it| *it >= size).unwrap_or(SIZES.len() - 1);
        self.0[index].max(NOISE)
    }
}

fn is_full() -> bool {
    std::env::var_os("CELPLANE_COST_FULL").is_some()
}

fn shows() -> bool {
    is_full() || std::env::var_os("CELPLANE_COST_SHOW").is_some()
}

/// A sequence of numbers that is the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// A measured input.
struct Measurement {
    shape: Shape,
    cost: Cost,
}

/// Complaints about an input that costs more than its bounds.
fn complaints(kind: &Kind, size: usize, measured: &Measurement, ordinary: &Ordinary, bounds: Bounds) -> Vec<String> {
    let Cost { time, memory, out } = measured.cost;
    let time_max = ordinary.of(SIZES[0]) * bounds.fixed as u32 + ordinary.of(size) * bounds.times as u32;
    let (memory_max, out_max) = (bounds.memory_max(size), bounds.out_max(size));
    let subject = format!("{} of {size} bytes, {:?}", kind.name, measured.shape);
    let mut complaints = Vec::new();
    if time > time_max {
        complaints.push(format!("{subject}: {time:?} of processor time, allowed are {time_max:?}"));
    }
    if memory > memory_max {
        complaints.push(format!("{subject}: {memory} bytes of memory, allowed are {memory_max}"));
    }
    if out > out_max {
        complaints.push(format!("{subject}: {out} bytes out, allowed are {out_max}"));
    }
    complaints
}

/// Climbs from every start at the smallest size; the best shapes, the most expensive first.
fn climb(kind: &Kind, measure: &mut dyn FnMut(&Shape, usize) -> Cost) -> Vec<Measurement> {
    let mut random = Random(7);
    let mut found: Vec<Measurement> = Vec::new();
    let by_cost = |found: &mut Vec<Measurement>| {
        found.sort_by_key(|it| std::cmp::Reverse(it.cost.weight()));
    };
    for form in 0..kind.forms {
        let shape = Shape { form, depth: 8, length: 16, distinct: true };
        let cost = measure(&shape, SIZES[0]);
        found.push(Measurement { shape, cost });
    }
    by_cost(&mut found);
    for _ in 0..if is_full() { 24 } else { 3 } {
        let base = &found[random.below(found.len().min(2))];
        let shape = base.shape.changed(random.below(5));
        if found.iter().any(|it| it.shape == shape) {
            continue;
        }
        let cost = measure(&shape, SIZES[0]);
        found.push(Measurement { shape, cost });
        by_cost(&mut found);
    }
    found
}

/// Tries a kind at all sizes; what exceeds its bounds.
fn try_kind(
    kind: &Kind,
    ordinary: &Ordinary,
    bounds: Bounds,
    measure: &mut dyn FnMut(&Shape, usize) -> Cost,
) -> Vec<String> {
    let mut found = climb(kind, measure);
    let (mut complaints_all, mut all) = (Vec::new(), Vec::new());
    for size in SIZES {
        if size > kind.size_max || size > USUAL_SIZE_MAX && !is_full() {
            break;
        }
        if size > SIZES[0] {
            // Forms that are cheap when short may be the expensive ones when long.
            let tried = if is_full() || size == SIZES[1] { kind.forms.max(2) } else { 3 };
            let mut next: Vec<Measurement> = Vec::new();
            for it in found.iter().take(tried) {
                next.push(Measurement { shape: it.shape, cost: measure(&it.shape, size) });
            }
            next.sort_by_key(|it| std::cmp::Reverse(it.cost.weight()));
            found = next;
        }
        for measured in &found {
            complaints_all.extend(complaints(kind, size, measured, ordinary, bounds));
        }
        if shows() {
            let best = &found[0];
            println!("{}\t{size}\t{:?}\t{:?}\tordinary {:?}", kind.name, best.shape, best.cost, ordinary.of(size));
        }
        all.extend(found.iter().map(|it| (size, it.cost)));
    }
    if shows() {
        println!("bounds\t{}\t{}", kind.name, suggestion(&all, ordinary));
    }
    complaints_all
}

/// The bounds that leave the head room: fixed ones by short inputs, those for each byte by long ones.
fn suggestion(all: &[(usize, Cost)], ordinary: &Ordinary) -> String {
    let most = |is_long: bool, of: &dyn Fn(usize, &Cost) -> f64| {
        let values = all.iter().filter(|(size, _)| (*size > SIZES[1]) == is_long).map(|(size, cost)| of(*size, cost));
        (values.fold(0.0, f64::max) * HEAD_ROOM).ceil()
    };
    let fixed = most(false, &|_, cost| cost.time.as_secs_f64() / ordinary.of(SIZES[0]).as_secs_f64());
    let times = most(true, &|size, cost| cost.time.as_secs_f64() / ordinary.of(size).as_secs_f64());
    let memory = most(false, &|_, cost| cost.memory as f64 / f64::from(1 << 20));
    let memory_times = most(true, &|size, cost| cost.memory as f64 / size as f64);
    let out = |size: usize, cost: &Cost| cost.out.saturating_sub(OUT_BASE) as f64 / size as f64;
    let out_times = most(false, &out).max(most(true, &out));
    format!("{fixed}\t{times}\t{memory}\t{memory_times}\t{out_times}")
}

#[tokio::test(flavor = "multi_thread")]
async fn cost_of_every_request_is_bounded_by_its_size() {
    let table = bounds();
    let mut server = Server::start().await;
    let mut ordinary = Vec::new();
    // The first request also opens a connection.
    server.cost(&Input::ordinary(SIZES[0])).await;
    for size in SIZES {
        ordinary.push(server.cost(&Input::ordinary(size)).await.time);
    }
    let ordinary = Ordinary(ordinary);
    let mut complaints = Vec::new();
    for kind in KINDS.iter().filter(|kind| kind.command.is_empty()) {
        let bounds = *table.get(kind.name).unwrap_or_else(|| panic!("no bounds for {}", kind.name));
        server.prepare(kind).await;
        // The first object of a kind also loads schemas, for example for the type check of policies, once for all.
        server.cost(&(kind.generate)(&Shape { form: 0, depth: 1, length: 1, distinct: false }, SIZES[0])).await;
        let runtime = tokio::runtime::Handle::current();
        let mut measure = |shape: &Shape, size: usize| {
            let input = (kind.generate)(shape, size);
            tokio::task::block_in_place(|| runtime.block_on(server.cost(&input)))
        };
        complaints.extend(try_kind(kind, &ordinary, bounds, &mut measure));
    }
    server.settle().await;
    assert!(server.is_well().await);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn cost_of_every_file_is_bounded_by_its_size() {
    let table = bounds();
    let directory = tempfile::tempdir().unwrap();
    let mut complaints = Vec::new();
    for kind in KINDS.iter().filter(|kind| !kind.command.is_empty()) {
        let bounds = *table.get(kind.name).unwrap_or_else(|| panic!("no bounds for {}", kind.name));
        let file = directory.path().join("input.yaml");
        let cost_of = |text: &str| {
            std::fs::write(&file, text).unwrap();
            offline_cost(kind, &file)
        };
        let ordinary = SIZES.map(|size| cost_of(&generators::ordinary_file(kind, size)).time);
        let ordinary = Ordinary(ordinary.to_vec());
        let mut measure = |shape: &Shape, size: usize| cost_of(&(kind.generate)(shape, size).body);
        complaints.extend(try_kind(kind, &ordinary, bounds, &mut measure));
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
