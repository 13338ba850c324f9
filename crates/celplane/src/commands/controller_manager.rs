//! `celplane controller-manager`: the controllers alone, over a kubeconfig.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use api::features::Features;
use client::Client;
use controllers::settings::Settings;

use crate::roles::connections::groups_of;
use crate::roles::{self, controller_manager};
use crate::separate::SeparateArguments;

/// Run the controllers of the cluster that a kubeconfig names
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    role: SeparateArguments,
    /// Contend for a lease, so that several can run
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    leader_elect: bool,
    /// Which controllers run: `*` for all, `name`, `-name` for all but that one
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    controllers: Vec<String>,
    /// Let each controller act under a service account of its own, which the kubeconfig's user must be allowed to
    /// impersonate
    #[arg(long)]
    use_service_account_credentials: bool,
    /// The certificates by which pods know the API server; they are published in every namespace
    #[arg(long, value_name = "FILE")]
    root_ca_file: Option<PathBuf>,
}

impl Arguments {
    /// Runs until a signal comes.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let features = Features::default().with_flag(&self.role.feature_gates)?;
        let root_ca = self.root_ca_file.as_ref().map(|path| {
            std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))
        });
        let settings = Settings { root_ca: root_ca.transpose()?.unwrap_or_default(), ..Settings::default() };
        self.role.block_on(async |role| {
            let own = role.connect(controller_manager::NAME).await?;
            let place = role.place(10257, &own)?;
            let (shared, by_account) = (own.clone(), self.use_service_account_credentials);
            let clients = Arc::new(move |user: &str| client_for(&shared, user, by_account));
            let role_at_work =
                controller_manager::start(own, clients, self.controllers.clone(), settings, features, self.leader_elect);
            roles::run_alone(role_at_work, place).await
        })
    }
}

fn client_for(own: &Client, user: &str, by_account: bool) -> Client {
    if !by_account || !user.starts_with("system:serviceaccount:") {
        return own.clone();
    }
    let groups = groups_of(user);
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    // The names of service accounts can stand in headers.
    own.impersonating(user, &groups).unwrap_or_else(|_| own.clone())
}
