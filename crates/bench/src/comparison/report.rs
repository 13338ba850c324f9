//! The report: Markdown with a table and a plot per group.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::Size;
use super::figures::{Figure, Group, Spread, Unit};
use super::machine::{Machine, load_average};
use super::plot::plot;
use super::programs::Programs;
use crate::memory;
use crate::table::NONE;

/// Name of the report's file.
const REPORT: &str = "report.md";

/// Writes the report and one plot per group.
///
/// # Errors
/// Files that cannot be written.
pub fn write(out: &Path, machine: &Machine, programs: &Programs, size: Size, groups: &[Group]) -> Result<()> {
    let write = |name: &str, text: &str| {
        let path = out.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))
    };
    std::fs::create_dir_all(out).with_context(|| format!("cannot create `{}`", out.display()))?;
    let mut text = head(machine, &programs.versions(), size);
    for group in groups.iter().filter(|group| !group.figures.is_empty()) {
        section(&mut text, group);
        write(&format!("{}.svg", group.id), &plot(group))?;
    }
    write(REPORT, &text)?;
    eprintln!("wrote {}", out.join(REPORT).display());
    Ok(())
}

fn head(machine: &Machine, versions: &[String], size: Size) -> String {
    let mut text = String::from(
        "# Benchmark report\n\nWritten by `cargo xtask bench`; do not edit. Figures are medians with the least and the \
         greatest sample in parentheses. The programs take turns in every round. A ratio above one means that the first \
         program is better. *Load* is the range of one-minute load averages at the samples, the measurement included: on \
         an idle machine of two processors it stays near 2. [benchmarks.md](../benchmarks.md) describes the single \
         benchmarks.\n\n",
    );
    let _ = writeln!(
        text,
        "Machine: {}, {} processors, {} of memory, Linux {}. {} rounds; load average at the end {:.1}.\n",
        machine.processor,
        machine.processors,
        memory::size(machine.memory_bytes as f64),
        machine.kernel,
        size.rounds,
        load_average()
    );
    for version in versions {
        let _ = writeln!(text, "- {version}");
    }
    text
}

fn section(text: &mut String, group: &Group) {
    let _ = writeln!(text, "\n## {}\n\n{}\n\n![{}]({}.svg)\n", group.title, group.setup, group.title, group.id);
    let _ = write!(text, "| measurement |");
    let (first, others) = match group.contestants.split_first() {
        Some((first, others)) => (first.as_str(), others),
        None => ("", &[][..]),
    };
    for contestant in &group.contestants {
        let _ = write!(text, " {contestant} |");
    }
    for other in others {
        let _ = write!(text, " {first} compared with {other} |");
    }
    let columns = group.contestants.len().saturating_add(others.len()).saturating_add(2);
    let _ = writeln!(text, " load |\n|{}", "---|".repeat(columns));
    for figure in &group.figures {
        let _ = writeln!(text, "{}", row(figure, group.contestants.len()));
    }
}

fn row(figure: &Figure, contestants: usize) -> String {
    let none = || NONE.to_owned();
    let mut row = format!("| {} |", figure.name);
    for contestant in 0..contestants {
        let shown = figure.spread(contestant).map_or_else(none, |spread| shown(figure.unit, spread));
        let _ = write!(row, " {shown} |");
    }
    for contestant in 1..contestants {
        let ratio = figure.ratio(contestant).map_or_else(none, |ratio| format!("{ratio:.2} ×"));
        let _ = write!(row, " {ratio} |");
    }
    let load = figure.load().map_or_else(none, |load| format!("{:.1} to {:.1}", load.min, load.max));
    let _ = write!(row, " {load} |");
    row
}

fn shown(unit: Unit, spread: Spread) -> String {
    let median = unit.show(spread.median);
    if spread.min.total_cmp(&spread.max).is_eq() {
        return median;
    }
    format!("{median} ({} to {})", unit.show(spread.min), unit.show(spread.max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> Group {
        let mut group = Group::new("rates", "Rates", &["ours".to_owned(), "theirs".to_owned()]);
        for (contestant, value) in [(0, 30.0), (0, 40.0), (0, 35.0), (1, 7.0)] {
            group.add("creates", Unit::PerSecond, contestant, value);
        }
        group.add("ours alone", Unit::Bytes, 0, 2e6);
        group
    }

    #[test]
    fn rows_have_medians_spreads_and_ratios() {
        let group = group();
        let rows: Vec<String> = group.figures.iter().map(|figure| row(figure, 2)).collect();
        assert!(rows[0].starts_with("| creates | 35/s (30/s to 40/s) | 7/s | 5.00 × | "), "{rows:?}");
        assert!(rows[1].starts_with("| ours alone | 2.0 MB | – | – | "), "{rows:?}");
    }

    #[test]
    fn every_group_with_figures_has_a_section_and_a_plot() {
        let folder = tempfile::tempdir().unwrap();
        let programs = Programs { celplane: "/no/such/celplane".into(), kubernetes: None };
        let empty = Group::new("empty", "Empty", &["ours".to_owned()]);
        let out = folder.path().join("new/report");
        write(&out, &Machine::read(), &programs, Size::QUICK, &[group(), empty]).unwrap();
        let text = std::fs::read_to_string(out.join(REPORT)).unwrap();
        assert!(
            text.contains(
                "| measurement | ours | theirs | ours compared with theirs | load |\n|---|---|---|---|---|\n"
            )
        );
        assert!(text.contains("- celplane: unknown version\n") && !text.contains("Empty"), "{text}");
        assert!(out.join("rates.svg").exists() && !out.join("empty.svg").exists());
    }
}
