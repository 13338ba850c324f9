//! `--dry-run`: commands that start or change something say what they would do, and do nothing.

/// The flag, as `kubectl` has it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DryRun {
    /// Check everything and say what would be done, but do nothing: none or client
    #[arg(
        id = "dry-run",
        long = "dry-run",
        value_name = "MODE",
        value_parser = ["none", "client"],
        default_value = "none",
        default_missing_value = "client",
        num_args = 0..=1,
        require_equals = true,
        hide_possible_values = true
    )]
    mode: String,
}

impl DryRun {
    /// Whether nothing is to be done.
    pub(crate) fn is_on(&self) -> bool {
        self.mode != "none"
    }
}

/// What ends such a report.
pub(crate) const NOTHING_DONE: &str = "Nothing was started or changed (dry run).";
