//! `celplane man`: manual pages, made from the flags themselves.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;

/// Print the manual pages: `celplane man | man -l -`
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Directory to write one page per command to
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let Some(directory) = self.dir else {
            clap_mangen::Man::new(crate::command()).render(&mut crate::output::stdout())?;
            return Ok(ExitCode::SUCCESS);
        };
        let context = || format!("cannot write to `{}`", directory.display());
        std::fs::create_dir_all(&directory).with_context(context)?;
        clap_mangen::generate_to(crate::command(), &directory).with_context(context)?;
        Ok(ExitCode::SUCCESS)
    }
}
