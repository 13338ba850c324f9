//! `celplane convert`: rewrites manifests between the proposals' fields and annotations.
//!
//! The text is edited in place: comments, order and style of everything else stay as they are, and a comment at an entry
//! moves with it. Each result is read again and compared with the original by the code that merges annotations; a document
//! that would mean something else is reported, and nothing is written.

mod edit;
mod places;
mod text;

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use self::edit::Direction;
use crate::manifests::{self, Source};
use crate::output::{complain_line, print_text};

/// Rewrite manifests between the proposals' fields and annotations
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Form of the result
    #[arg(long, value_enum, value_name = "FORM")]
    to: Direction,
    /// Files, directories, or `-` for standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
    /// Write the results into the files instead of printing them
    #[arg(short, long)]
    in_place: bool,
}

impl Arguments {
    /// Converts all files, or none.
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut results = Vec::new();
        for source in manifests::sources(&self.files)? {
            let (name, text) = read(&source)?;
            let converted = edit::convert(&text, self.to).with_context(|| format!("cannot convert `{name}`"))?;
            results.push((source, name, text, converted));
        }
        for (source, name, text, converted) in results {
            match source {
                Source::File(path) if self.in_place => {
                    if converted != text {
                        std::fs::write(&path, converted).with_context(|| format!("cannot write `{name}`"))?;
                        complain_line!("{name}: converted");
                    }
                }
                Source::StandardInput if self.in_place => bail!("standard input cannot be written"),
                _ => print_text!("{converted}")?,
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn read(source: &Source) -> Result<(String, String)> {
    let (name, bytes) = match source {
        Source::StandardInput => {
            let bytes = crate::input_file::read_standard_input().context("cannot read standard input")?;
            ("<stdin>".to_owned(), bytes)
        }
        Source::File(path) => {
            let name = path.display().to_string();
            let bytes = crate::input_file::read(path).with_context(|| format!("cannot read `{name}`"))?;
            (name, bytes)
        }
    };
    let text = String::from_utf8(bytes).with_context(|| format!("`{name}` is not UTF-8"))?;
    Ok((name, text))
}
