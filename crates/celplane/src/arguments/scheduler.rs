//! Flags and files of the scheduler.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use api::features::Features;
use controlplane::roles::scheduler::Limits;
use scheduling::config::Configuration;

/// Limits specific to this scheduler.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct LimitArguments {
    /// CEL cost limit for device constraints in one scheduling attempt, over all nodes; beyond it the pod stays
    /// pending
    #[arg(long, value_name = "COST", default_value_t = dra::Budget::COST_LIMIT)]
    device_constraint_budget: u64,
}

impl From<LimitArguments> for Limits {
    fn from(flags: LimitArguments) -> Self {
        Limits { device_constraint_budget: flags.device_constraint_budget }
    }
}

/// Reads a file with a `KubeSchedulerConfiguration`, and checks that its plugins can be made with these features.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn read_configuration(path: &Path, features: Features) -> Result<Configuration> {
    let read = || {
        let text = crate::input_file::read_text(path)?;
        let (documents, error) = api::yaml::parse_documents(&text);
        if let Some(error) = error {
            return Err(anyhow!("{}", error.message));
        }
        let [document] = documents.as_slice() else {
            return Err(anyhow!("expected one document, found {}", documents.len()));
        };
        let configuration = Configuration::read(&document.value)?;
        scheduler::check(&configuration, features)?;
        Ok(configuration)
    };
    read().with_context(|| format!("cannot use `{}`", path.display()))
}
