//! The machine that figures come from.

/// Facts about the machine.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Model name of the processor.
    pub processor: String,
    /// Number of processors.
    pub processors: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Release of the kernel.
    pub kernel: String,
}

impl Machine {
    /// Reads `/proc`; facts that it does not hold are empty.
    #[must_use]
    pub fn read() -> Self {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = text("/proc/cpuinfo");
        let processor = value_of(&cpuinfo, "model name").unwrap_or("unknown processor").to_owned();
        let memory = text("/proc/meminfo");
        let kibibytes =
            value_of(&memory, "MemTotal").and_then(|value| value.trim_end_matches(" kB").parse::<u64>().ok());
        Self {
            processor,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kibibytes.unwrap_or_default().saturating_mul(1024),
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

/// The value behind `name:` in a file of `/proc`.
fn value_of<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.into_iter().find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

/// The load average of the last minute; the runnable threads of the measurement itself are part of it.
#[must_use]
pub fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_proc_files_are_found_by_name() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nMemTotal:       16 kB\n";
        assert_eq!(value_of(text, "model name"), Some("Some CPU @ 2 GHz"));
        assert_eq!(value_of(text, "MemTotal"), Some("16 kB"));
        assert_eq!(value_of(text, "MemFree"), None);
    }

    #[test]
    fn this_machine_has_a_load_and_memory() {
        assert!(load_average() >= 0.0);
        assert!(Machine::read().memory_bytes > 1 << 20);
    }
}
