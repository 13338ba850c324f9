//! `celplane version`: which program this is, and which Kubernetes it speaks.

use std::process::ExitCode;

use crate::output::Output;

/// The release of Kubernetes whose API is spoken.
const KUBERNETES: &str = "v1.38.0-alpha.0";

/// Say which version this is, and which Kubernetes it speaks
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: Output,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let version = env!("CARGO_PKG_VERSION");
        let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
        self.output.print(&format!("celplane {version}, speaks Kubernetes {KUBERNETES}, {platform}"), || {
            api::json!({"version": version, "kubernetesVersion": KUBERNETES, "platform": (platform.as_str())})
        });
        Ok(ExitCode::SUCCESS)
    }
}
