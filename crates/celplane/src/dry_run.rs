//! `--dry-run`: commands that start or change something print the planned actions without performing them.

/// The `--dry-run` flag, with the values that `kubectl` accepts.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DryRun {
    /// Check everything and print the planned actions without performing them: none or client
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

/// Last line of the report of a dry run.
pub(crate) const NOTHING_DONE: &str = "Nothing was started or changed (dry run).";
