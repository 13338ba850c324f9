//! Which server a tool asks, said as Kubernetes' tools say it: `--kubeconfig`, `KUBECONFIG`, `--context`.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use client::kubeconfig::Kubeconfig;
use client::{Client, Resource};

use crate::live;
use crate::manifests::Manifests;

/// Flags of tools that may ask a server.
#[derive(Debug, clap::Args)]
pub(crate) struct ConnectionArguments {
    /// Ask the server that this kubeconfig names
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Ask the server of this context; the kubeconfig is that of `--kubeconfig`, `KUBECONFIG` or `~/.kube/config`
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ConnectionArguments {
    /// Whether a server is meant at all.
    pub(crate) fn is_given(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    /// The kubeconfigs, which count as one: the flag's, then those of `KUBECONFIG`, then the user's own.
    fn paths(&self) -> Result<Vec<PathBuf>> {
        if let Some(path) = &self.kubeconfig {
            return Ok(vec![path.clone()]);
        }
        let list = std::env::var_os("KUBECONFIG").unwrap_or_default();
        let files: Vec<PathBuf> = std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect();
        if !files.is_empty() {
            return Ok(files);
        }
        let home = std::env::var_os("HOME").context("neither --kubeconfig nor KUBECONFIG nor HOME is set")?;
        Ok(vec![PathBuf::from(home).join(".kube/config")])
    }

    /// A connection to the server.
    async fn connect(&self) -> Result<Client> {
        let paths = self.paths()?;
        let kubeconfig = Kubeconfig::read_all(&paths, self.context.as_deref());
        let client = match kubeconfig {
            Ok(kubeconfig) => Client::configured(kubeconfig, "celplane").await,
            Err(error) => Err(error.into()),
        };
        client.map_err(|error| {
            let names: Vec<String> = paths.iter().map(|path| format!("`{}`", path.display())).collect();
            anyhow::Error::from_boxed(error).context(format!("cannot use {}", names.join(", ")))
        })
    }

    /// All objects of these resources, as manifests.
    pub(crate) fn read(&self, resources: &[Resource]) -> Result<Manifests> {
        live::read(async || self.connect().await, resources)
    }
}
