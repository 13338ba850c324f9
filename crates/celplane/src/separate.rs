//! Common flags of roles that run in their own process and connect to a server over the network.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use api::coordination::v1::Lease;
use api::features::Features;
use client::Client;
use client::kubeconfig::Kubeconfig;
use controlplane::gates;
use controlplane::roles::access::Access;
use controlplane::roles::kubelet::rotation::Credentials;
use controlplane::roles::status::{self, Place};
use telemetry::logs::chain;

use crate::dry_run::{DryRun, NOTHING_DONE};
use crate::output::{complain_line, print_line, print_text};

/// Interval between checks of the server and of the lease.
const PAUSE: Duration = Duration::from_secs(2);

/// Flags common to all components that run in their own process.
#[derive(clap::Args)]
pub(crate) struct SeparateArguments {
    /// Kubeconfig of the API server to use; in a pod, its service account if not set
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Feature gates to enable or disable: Name=true,Name=false
    #[arg(long, value_name = "GATES", default_value = "")]
    pub(crate) feature_gates: String,
    /// Address for health checks and metrics
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind_address: IpAddr,
    /// Port for health checks and metrics; 0 disables them
    #[arg(long, value_name = "PORT", alias = "healthz-port")]
    secure_port: Option<u16>,
    /// Certificate for that port with its chain; generated if not set
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Private key of that certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// CA certificates for client certificates at that port, in addition to tokens of the API server
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) dry_run: DryRun,
    /// Log verbosity
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 0)]
    verbosity: u8,
    /// Log format
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"], default_value = "text")]
    logging_format: String,
}

impl SeparateArguments {
    /// Runs `work` on new threads.
    pub(crate) fn block_on(&self, work: impl AsyncFnOnce(&Self) -> Result<()>) -> Result<ExitCode> {
        let format =
            if self.logging_format == "json" { telemetry::logs::Format::Json } else { telemetry::logs::Format::Text };
        telemetry::logs::start(format, self.verbosity);
        controlplane::file_limit::raise();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
        runtime.block_on(work(self))?;
        Ok(ExitCode::SUCCESS)
    }

    /// Prints what would run: `component`, with these features. `leads` is set if it can use leader election.
    pub(crate) async fn rehearse(
        &self,
        component: &str,
        features: Features,
        leads: Option<bool>,
        place: Option<&Place>,
    ) -> Result<()> {
        let kubeconfig = self.kubeconfig.as_ref().ok_or_else(|| anyhow!("--kubeconfig is required"))?;
        let server = Kubeconfig::read(kubeconfig, None)?.server;
        let status = match place {
            Some(place) => {
                drop(status::listen(place.address).await?);
                format!("health and metrics at {}", place.address)
            }
            None => "no port for health and metrics".to_owned(),
        };
        let leads = match leads {
            Some(true) => " while it holds the lease",
            Some(false) => " without leader election",
            None => "",
        };
        print_line!("{component} would run against {server}{leads}; {status}.")?;
        print_text!("{}", gates::lines(&[(component, features)]))?;
        print_line!("{NOTHING_DONE}")?;
        Ok(())
    }

    /// The connection that the kubeconfig describes.
    pub(crate) async fn connect(&self, component: &str) -> Result<Client> {
        let Some(kubeconfig) = &self.kubeconfig else {
            let in_cluster = Kubeconfig::in_cluster()?.ok_or_else(|| anyhow!("--kubeconfig is required"))?;
            return Client::configured(in_cluster, component).await.map_err(anyhow::Error::from_boxed);
        };
        let client = Client::from_kubeconfig(kubeconfig, None, component).await;
        client
            .map_err(|error| anyhow::Error::from_boxed(error).context(format!("cannot use `{}`", kubeconfig.display())))
    }

    /// Prints in the background when the server answers, and who holds the lease, whenever that changes.
    pub(crate) fn announce(&self, component: &'static str, client: &Client, lease: Option<(String, String)>) {
        let server = self.kubeconfig.as_ref().and_then(|path| Kubeconfig::read(path, None).ok());
        let server = server.map(|it| it.server).unwrap_or_default();
        let client = client.clone();
        tokio::spawn(async move {
            let mut is_waiting = false;
            while let Err(error) = client.get_as("/version", "application/json").await {
                // A refusal is an answer, too.
                if matches!(error, client::Error::Refused(_)) {
                    break;
                }
                if !is_waiting {
                    complain_line!("{component}: waiting for {server}: {}", chain(&error));
                }
                is_waiting = true;
                tokio::time::sleep(PAUSE).await;
            }
            // A closed output does not end a component.
            let _ = print_line!("{component}: connected to {server}");
            let Some((namespace, name)) = lease else { return };
            let mut last = String::new();
            loop {
                let found = client.objects::<Lease>().get(&namespace, &name).await;
                let holder = found.map(|lease| lease.spec.holder_identity.unwrap_or_default().to_string());
                if let Some(holder) = holder.ok().filter(|it| !it.is_empty() && *it != last) {
                    let _ = print_line!("{component}: lease {namespace}/{name} is held by {holder}");
                    last = holder;
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    /// Address of health and metrics: over TLS, for clients that the server of `client` authorizes.
    pub(crate) fn place(&self, default_port: u16, client: &Client) -> Result<Option<Place>> {
        let Some(address) = self.address(default_port) else { return Ok(None) };
        let own = self.tls_cert_file.as_deref().zip(self.tls_private_key_file.as_deref());
        let access = Access::new(client.clone(), self.bind_address, own, self.client_ca_file.as_deref())?;
        Ok(Some(Place { address, access: Some(access) }))
    }

    /// Access to the port of a node agent. Client certificates are verified with the given authority, or with
    /// the server's.
    pub(crate) fn node_access(&self, client: &Client, address: IpAddr) -> Result<Access> {
        let own = self.tls_cert_file.as_deref().zip(self.tls_private_key_file.as_deref());
        if let Some(file) = &self.client_ca_file {
            return Access::new(client.clone(), address, own, Some(file));
        }
        let kubeconfig = self.kubeconfig.as_ref().ok_or_else(|| anyhow!("--kubeconfig is required"))?;
        let authority = Kubeconfig::read(kubeconfig, None)?.authority;
        let authority = authority.map(String::from_utf8).transpose()?;
        Access::with_authority(client.clone(), address, own, authority.as_deref())
    }

    /// The address to listen on.
    pub(crate) fn bind_address(&self) -> IpAddr {
        self.bind_address
    }

    /// The certificate of the flags and its key, if they are given.
    pub(crate) fn serving_certificate(&self) -> Result<Option<Credentials>> {
        let Some((certificate, key)) = self.tls_cert_file.as_ref().zip(self.tls_private_key_file.as_ref()) else {
            return Ok(None);
        };
        let read =
            |path: &PathBuf| std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()));
        Ok(Some(Credentials { certificate: read(certificate)?, key: read(key)? }))
    }

    /// Address of public health and metrics, without encryption.
    pub(crate) fn open_place(&self, default_port: u16) -> Option<Place> {
        self.address(default_port).map(|address| Place { address, access: None })
    }

    fn address(&self, default_port: u16) -> Option<SocketAddr> {
        let port = self.secure_port.unwrap_or(default_port);
        (port != 0).then(|| SocketAddr::new(self.bind_address, port))
    }
}
