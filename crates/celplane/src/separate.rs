//! What all roles take that have a process of their own and speak to a server over the network.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow};
use api::features::Features;
use client::Client;
use client::kubeconfig::Kubeconfig;

use crate::control_plane::gate_lines;
use crate::dry_run::{DryRun, NOTHING_DONE};
use crate::roles::access::Access;
use crate::roles::status::{self, Place};

/// Flags that all such roles have.
#[derive(clap::Args)]
pub(crate) struct SeparateArguments {
    /// How to reach the server
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Features to turn on or off: Name=true,Name=false
    #[arg(long, value_name = "GATES", default_value = "")]
    pub(crate) feature_gates: String,
    /// The address at which health and metrics are served
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind_address: IpAddr,
    /// The port at which health and metrics are served; 0 for none
    #[arg(long, value_name = "PORT", alias = "healthz-port")]
    secure_port: Option<u16>,
    /// The certificate for that port with its chain; one is made if none is given
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Whose client certificates are accepted at that port, beside tokens of the API server
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) dry_run: DryRun,
    /// How much to log
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 0)]
    verbosity: u8,
    /// How to log
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"], default_value = "text")]
    logging_format: String,
}

impl SeparateArguments {
    /// Does `work` on threads of its own.
    pub(crate) fn block_on(&self, work: impl AsyncFnOnce(&Self) -> Result<()>) -> Result<ExitCode> {
        let format =
            if self.logging_format == "json" { telemetry::logs::Format::Json } else { telemetry::logs::Format::Text };
        telemetry::logs::start(format, self.verbosity);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
        runtime.block_on(work(self))?;
        Ok(ExitCode::SUCCESS)
    }

    /// Says what would run: as `component`, with these features. `leads` tells whether a lease is contended for, if it can be.
    pub(crate) async fn rehearse(
        &self,
        component: &str,
        features: Features,
        leads: Option<bool>,
        place: Option<&Place>,
    ) -> Result<()> {
        let kubeconfig = self.kubeconfig.as_ref().ok_or_else(|| anyhow!("--kubeconfig is needed"))?;
        let server = Kubeconfig::read(kubeconfig, None)?.server;
        let status = match place {
            Some(place) => {
                drop(status::listen(place.address).await?);
                format!("health and metrics at {}", place.address)
            }
            None => "health and metrics nowhere".to_owned(),
        };
        let leads = match leads {
            Some(true) => ", if it leads",
            Some(false) => ", whoever else does",
            None => "",
        };
        println!("{component} would work for {server}{leads}; {status}.");
        print!("{}", gate_lines(&[(component, features)]));
        println!("{NOTHING_DONE}");
        Ok(())
    }

    /// The connection that the kubeconfig describes.
    pub(crate) async fn connect(&self, component: &str) -> Result<Client> {
        let kubeconfig = self.kubeconfig.as_ref().ok_or_else(|| anyhow!("--kubeconfig is needed"))?;
        let client = Client::from_kubeconfig(kubeconfig, None, component).await;
        client
            .map_err(|error| anyhow::Error::from_boxed(error).context(format!("cannot use `{}`", kubeconfig.display())))
    }

    /// Where health and metrics are served: over TLS, to those whom the server of `client` lets.
    pub(crate) fn place(&self, default_port: u16, client: &Client) -> Result<Option<Place>> {
        let Some(address) = self.address(default_port) else { return Ok(None) };
        let own = self.tls_cert_file.as_deref().zip(self.tls_private_key_file.as_deref());
        let access = Access::new(client.clone(), self.bind_address, own, self.client_ca_file.as_deref())?;
        Ok(Some(Place { address, access: Some(access) }))
    }

    /// Where they are served to everybody, in plain text.
    pub(crate) fn open_place(&self, default_port: u16) -> Option<Place> {
        self.address(default_port).map(|address| Place { address, access: None })
    }

    fn address(&self, default_port: u16) -> Option<SocketAddr> {
        let port = self.secure_port.unwrap_or(default_port);
        (port != 0).then(|| SocketAddr::new(self.bind_address, port))
    }
}
