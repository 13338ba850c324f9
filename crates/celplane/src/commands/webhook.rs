//! `celplane webhook`: admission of annotations that carry the proposals' fields, on clusters without the fields.

mod install;

use std::net::SocketAddr;
use std::process::ExitCode;

use api::features::Features;
use controlplane::roles::{self, webhook};

use crate::separate::SeparateArguments;

/// Validate placement annotations as an admission webhook
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    role: SeparateArguments,
    /// Address of the webhook
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8443")]
    listen: SocketAddr,
    /// Namespace of the Service and the Secret
    #[arg(long, value_name = "NAME", default_value = "celplane-system")]
    namespace: String,
    /// Service of the webhook, whose name its certificate has
    #[arg(long, value_name = "NAME", default_value = "celplane-webhook")]
    service: String,
    /// Secret with the certificate, which is generated and renewed
    #[arg(long, value_name = "NAME", default_value = "celplane-webhook-certificate")]
    secret: String,
    /// Name of the webhook configurations that get the authority of the certificate
    #[arg(long, value_name = "NAME", default_value = "celplane-placement")]
    configuration: String,
    /// Schedulers that read annotations; pods with annotations that name others are rejected
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "celplane")]
    scheduler_names: Vec<String>,
    /// Set the first of these schedulers for pods with annotations that name the default scheduler
    #[arg(long)]
    assign_scheduler: bool,
    /// Treat annotations of the volumes to which a pod's claims are bound as annotations of the pod
    #[arg(long)]
    volumes: bool,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print manifests of scheduler, toleration resolver, webhook, permissions and policy for `kubectl apply`
    Install(install::Arguments),
}

impl Arguments {
    /// Serves until a signal arrives.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(Command::Install(install)) = self.command {
            return install.run();
        }
        let features = Features::all_proposals().with_flag(&self.role.feature_gates)?;
        let settings = webhook::Settings {
            address: self.listen,
            namespace: self.namespace,
            service: self.service,
            secret: self.secret,
            configuration: self.configuration,
            schedulers: self.scheduler_names,
            assigns_scheduler: self.assign_scheduler,
            reads_volumes: self.volumes,
        };
        self.role.block_on(async |role| {
            let client = role.connect(webhook::NAME).await?;
            let place = role.place(10261, &client)?;
            if role.dry_run.is_on() {
                return role.rehearse(webhook::NAME, features, None, place.as_ref()).await;
            }
            roles::run_alone(webhook::start(client, features, settings.clone()), place).await
        })
    }
}
