//! Which server a tool asks, said as Kubernetes' tools say it: `--kubeconfig`, `KUBECONFIG`, `--context`.

use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow};
use client::{Client, Resource};

use crate::live;
use crate::manifests::Manifests;

/// Flags of tools that may ask a server.
#[derive(clap::Args)]
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

    /// The kubeconfig: the flag, then `KUBECONFIG`, then the user's own.
    pub(crate) fn path(&self) -> Result<PathBuf> {
        if let Some(path) = &self.kubeconfig {
            return Ok(path.clone());
        }
        let listed = std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty());
        if let Some(list) = listed {
            // Several files are merged by kubectl; the first that exists is what is meant in nearly all cases.
            let files: Vec<PathBuf> =
                std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect();
            let existing = files.iter().find(|path| path.exists()).or_else(|| files.first());
            return existing.cloned().context("KUBECONFIG names no file");
        }
        let home = std::env::var_os("HOME").context("neither --kubeconfig nor KUBECONFIG nor HOME is set")?;
        Ok(PathBuf::from(home).join(".kube/config"))
    }

    /// A connection to the server.
    pub(crate) async fn connect(&self) -> Result<Client> {
        let path = self.path()?;
        let client = Client::from_kubeconfig(&path, self.context.as_deref(), "celplane").await;
        client.map_err(|error| anyhow!("cannot use `{}`: {error}", path.display()))
    }

    /// All objects of these resources, as manifests.
    pub(crate) fn read(&self, resources: &[Resource]) -> Result<Manifests> {
        live::read_from(async || self.connect().await, resources)
    }
}
