//! `celplane store compact`: drops history, and gives room back to the file system.

use std::process::ExitCode;

use store::Embedded;

use super::{Place, explain};

/// Drop all history and make the file as small as it can be. A running server does this by itself when much is deleted
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let path = self.place.file();
        let (before, after) = Embedded::shrink(&path).map_err(|error| explain(error, "compact the store"))?;
        println!("{}: {before} bytes before, {after} bytes now", path.display());
        Ok(ExitCode::SUCCESS)
    }
}
