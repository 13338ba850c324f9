//! What all roles take that have a process of their own and speak to a server over the network.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow};
use client::Client;

/// Flags that all such roles have.
#[derive(clap::Args)]
pub(crate) struct SeparateArguments {
    /// How to reach the server
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Features to turn on or off: Name=true,Name=false
    #[arg(long, value_name = "GATES", default_value = "")]
    pub(crate) feature_gates: String,
    /// The address at which health and metrics are served
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind_address: IpAddr,
    /// The port at which health and metrics are served; 0 for none
    #[arg(long, value_name = "PORT")]
    healthz_port: Option<u16>,
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

    /// The connection that the kubeconfig describes.
    pub(crate) async fn connect(&self, component: &str) -> Result<Client> {
        let client = Client::from_kubeconfig(&self.kubeconfig, None, component).await;
        client.map_err(|error| anyhow!("cannot use `{}`: {error}", self.kubeconfig.display()))
    }

    /// Where health and metrics are served.
    pub(crate) fn address(&self, default_port: u16) -> Result<Option<SocketAddr>> {
        let port = self.healthz_port.unwrap_or(default_port);
        Ok((port != 0).then(|| SocketAddr::new(self.bind_address, port)))
    }
}
