//! `celplane version`: version of this program, and of Kubernetes.

use std::process::ExitCode;

use crate::output::Output;

/// The release of Kubernetes whose API is spoken.
pub(crate) const KUBERNETES: &str = api::kubernetes::RELEASE;

/// Print version information
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: Output,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let version = env!("CARGO_PKG_VERSION");
        let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
        // Set by the build script in release builds.
        let commit = option_env!("CELPLANE_COMMIT").unwrap_or("unknown");
        let date = option_env!("CELPLANE_DATE").unwrap_or("unknown");
        let text = format!(
            "celplane {version} (commit {commit}, built {date}), Kubernetes {KUBERNETES}, {platform}"
        );
        self.output.print(&text, || {
            api::json!({
                "version": version, "commit": commit, "buildDate": date, "kubernetesVersion": KUBERNETES,
                "platform": (platform.as_str()),
            })
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
