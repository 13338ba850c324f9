//! `celplane man`: manual pages and the reference of all flags, generated from the flags themselves.

mod reference;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;

/// Print the manual pages: `celplane man | man -l -`
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Directory to write one page per command to
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
    /// Print the flags of all commands as Markdown
    #[arg(long, conflicts_with = "dir")]
    markdown: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if self.markdown {
            crate::output::print_text!("{}", reference::markdown(&crate::command()))?;
            return Ok(ExitCode::SUCCESS);
        }
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
