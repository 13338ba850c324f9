//! Flags of a node's certificates: bootstrap and renewal.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use apiserver::certificates::write_private;
use client::Client;
use client::kubeconfig::Kubeconfig;
use controlplane::roles::access::Access;
use controlplane::roles::kubelet;
use controlplane::roles::kubelet::rotation::{
    self, CertificateFile, Credentials, Rotation, is_valid, request_client, request_serving,
};

use crate::output::print_line;

/// Flags of a node's certificates.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct NodeCertificateArguments {
    /// Kubeconfig with a bootstrap token; used to request a client certificate if the one of --kubeconfig does not exist
    /// or has expired, which is then written
    #[arg(long, value_name = "FILE", requires = "kubeconfig", requires = "hostname_override")]
    bootstrap_kubeconfig: Option<PathBuf>,
    /// Request a new client certificate when 70 to 90 % of its lifetime have passed
    #[arg(long, requires = "container_runtime_endpoint")]
    rotate_certificates: bool,
    /// Request the serving certificate from the cluster, and a new one when 70 to 90 % of its lifetime have passed; an
    /// administrator approves it
    #[arg(long, requires = "container_runtime_endpoint")]
    rotate_server_certificates: bool,
    /// Directory for certificates that the agent requests; by default `pki` in the root directory
    #[arg(long, value_name = "DIRECTORY")]
    cert_dir: Option<PathBuf>,
}

/// The certificates of one node.
pub(crate) struct NodeCertificates<'a> {
    pub(crate) flags: &'a NodeCertificateArguments,
    pub(crate) node: &'a str,
    /// The agent's directory.
    pub(crate) root: &'a Path,
    pub(crate) kubeconfig: Option<&'a Path>,
}

impl NodeCertificates<'_> {
    fn file(&self, name: &str) -> CertificateFile {
        let default = || self.root.join("pki");
        let directory = self.flags.cert_dir.clone().unwrap_or_else(default);
        // The kubeconfig names the file, and paths in it are relative to the kubeconfig.
        CertificateFile::new(&std::path::absolute(&directory).unwrap_or(directory), name)
    }

    /// Requests a client certificate with the bootstrap kubeconfig, unless there is a valid one.
    pub(crate) async fn bootstrap(&self) -> Result<()> {
        let (Some(bootstrap), Some(path)) = (&self.flags.bootstrap_kubeconfig, self.kubeconfig) else { return Ok(()) };
        let file = self.file("kubelet-client");
        let known = if path.exists() { Some(Kubeconfig::read(path, None)?) } else { None };
        // A user without a certificate has other credentials.
        let is_usable = |known: &Kubeconfig| {
            let certificate = known.user.certificate.as_ref();
            certificate.is_none_or(|(chain, _)| is_valid(&String::from_utf8_lossy(chain)))
        };
        let has_file = std::fs::read_to_string(file.path()).is_ok_and(|text| is_valid(&text));
        if known.is_some_and(|known| is_usable(&known) || has_file) {
            return Ok(());
        }
        let with_token =
            Kubeconfig::read(bootstrap, None).with_context(|| format!("cannot use `{}`", bootstrap.display()))?;
        let (server, authority) = (with_token.server.clone(), with_token.authority.clone());
        let client = Client::configured(with_token, kubelet::NAME).await.map_err(anyhow::Error::from_boxed)?;
        print_line!("kubelet: requesting a client certificate for {} from {server}", self.node)?;
        let own = request_client(&client, self.node).await?;
        file.write(&own)?;
        write_private(path, &rotation::kubeconfig(&server, authority.as_deref(), self.node, &file))?;
        Ok(())
    }

    /// Starts the renewal of the client certificate. A certificate in the directory precedes the kubeconfig's.
    pub(crate) async fn rotate_client(&self, client: &Client) -> Result<()> {
        if !self.flags.rotate_certificates {
            return Ok(());
        }
        let path = self.kubeconfig.ok_or_else(|| anyhow!("--rotate-certificates needs --kubeconfig"))?;
        let file = self.file("kubelet-client");
        let given = Kubeconfig::read(path, None)?.user.certificate;
        let given = given.with_context(|| format!("`{}` has no client certificate to renew", path.display()))?;
        let mut current = Credentials { certificate: String::from_utf8(given.0)?, key: String::from_utf8(given.1)? };
        if let Some(kept) = file.read(client.clock().now()).filter(|kept| *kept != current) {
            use_certificate(client, &kept).await?;
            current = kept;
        }
        let rotation = Rotation { purpose: "client", file, clock: client.clock().clone() };
        let (client, node) = (client.clone(), self.node.to_owned());
        tokio::spawn(async move {
            let obtain = || {
                let (client, node) = (client.clone(), node.clone());
                async move { request_client(&client, &node).await }
            };
            let replace = |new: Credentials| {
                let client = client.clone();
                async move { use_certificate(&client, &new).await }
            };
            rotation.run(Some(current), obtain, replace).await;
        });
        Ok(())
    }

    /// Starts the renewal of the serving certificate. `given` is the one that the agent was started with.
    pub(crate) fn rotate_serving(
        &self,
        client: &Client,
        access: &Arc<Access>,
        address: IpAddr,
        given: Option<Credentials>,
    ) -> Result<()> {
        if !self.flags.rotate_server_certificates {
            return Ok(());
        }
        let file = self.file("kubelet-server");
        let kept = file.read(client.clock().now());
        if let Some(kept) = &kept {
            access.replace_certificate(&kept.certificate, &kept.key)?;
        }
        let rotation = Rotation { purpose: "serving", file, clock: client.clock().clone() };
        let (client, node, access) = (client.clone(), self.node.to_owned(), access.clone());
        tokio::spawn(async move {
            let obtain = || {
                let (client, node) = (client.clone(), node.clone());
                async move { request_serving(&client, &node, address).await }
            };
            let replace = |new: Credentials| {
                let access = access.clone();
                async move { access.replace_certificate(&new.certificate, &new.key) }
            };
            rotation.run(kept.or(given), obtain, replace).await;
        });
        Ok(())
    }
}

async fn use_certificate(client: &Client, new: &Credentials) -> Result<()> {
    let (chain, key) = (new.certificate.clone().into_bytes(), new.key.clone().into_bytes());
    client.replace_certificate(chain, key).await.map_err(anyhow::Error::from_boxed)
}
