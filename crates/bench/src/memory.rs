//! Memory use of the process, and its display.

/// Resident memory of the process in bytes; `None` if the system does not report it.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    read("self")
}

/// The same of another process.
#[must_use]
pub fn resident_bytes_of(process: u32) -> Option<u64> {
    read(&process.to_string())
}

fn read(process: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Bytes in the unit that reads best.
#[must_use]
pub fn size(bytes: f64) -> String {
    const UNITS: [(f64, &str); 3] = [(1e6, "MB"), (1e3, "kB"), (1.0, "B")];
    let (unit, name) = UNITS.into_iter().find(|(unit, _)| bytes >= *unit).unwrap_or((1.0, "B"));
    let digits = usize::from(unit > 1.0);
    format!("{:.digits$} {name}", bytes / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_the_unit_that_reads_best() {
        assert_eq!([512.0, 2_345.0, 12_340_000.0].map(size), ["512 B", "2.3 kB", "12.3 MB"]);
    }
}
