//! `celplane gates`: the feature gates, their stages and defaults.

use std::process::ExitCode;

use api::features::Features;

use crate::output::Output;

/// List the feature gates, with their stages and defaults
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: Output,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let text = table();
        self.output.print(&text, || {
            let items = rows().map(|(name, stage, default, up)| {
                api::json!({"name": name, "stage": stage, "default": default, "up": up})
            });
            api::json!({"featureGates": (items.collect::<Vec<_>>())})
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Name, stage, default, and default of `celplane up`.
fn rows() -> impl Iterator<Item = (&'static str, &'static str, bool, bool)> {
    let up = Features::all_proposals().states();
    let both = Features::default().states().zip(up);
    both.map(|((name, stage, default), (_, _, up))| (name, if stage.is_empty() { "GA" } else { stage }, default, up))
}

/// The gates as a table.
pub(crate) fn table() -> String {
    let width = rows().map(|(name, ..)| name.len()).max().unwrap_or(0);
    let mut text = format!("{:width$}  {:10}  {:7}  UP\n", "NAME", "STAGE", "DEFAULT");
    for (name, stage, default, up) in rows() {
        text.push_str(&format!("{name:width$}  {stage:10}  {default:<7}  {up}\n"));
    }
    text.trim_end().to_owned()
}
