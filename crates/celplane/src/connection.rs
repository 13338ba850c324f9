//! Flags for the server of a tool, as in Kubernetes' tools: `--kubeconfig`, `KUBECONFIG`, `--context`.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use api::features::{Features, Gate};
use client::kubeconfig::Kubeconfig;
use client::{Client, Resource};

use crate::live;
use crate::manifests::Manifests;

/// Flags of commands that can read a live cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct ConnectionArguments {
    /// Path to the kubeconfig of the cluster to read
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Kubeconfig context to use; the file is that of `--kubeconfig`, `KUBECONFIG` or `~/.kube/config`
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ConnectionArguments {
    /// Whether a server is given at all.
    pub(crate) fn is_given(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    /// Whether a kubeconfig is named in the environment.
    pub(crate) fn is_in_environment(&self) -> bool {
        std::env::var_os("KUBECONFIG").is_some_and(|list| !list.is_empty())
    }

    /// The namespace of the context.
    pub(crate) fn namespace(&self) -> Result<Option<String>> {
        Ok(Kubeconfig::read_all(&self.paths()?, self.context.as_deref()).ok().and_then(|it| it.namespace))
    }

    /// The gates of the scheduler behind the server, if the server shows them.
    pub(crate) fn scheduler_gates(&self) -> Result<Option<Features>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let metrics = runtime.block_on(async {
            let client = self.connect().await?;
            // Other servers do not have the path, and users may lack the right to read it.
            anyhow::Ok(client.get_as("/metrics/kube-scheduler", "text/plain").await.ok())
        })?;
        Ok(metrics.map(|text| gates_of(&String::from_utf8_lossy(&text))))
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

    /// The flags that lead another process to the same server.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        let mut flags = Vec::new();
        for (name, value) in [
            ("--kubeconfig=", self.kubeconfig.as_ref().map(|path| path.clone().into_os_string())),
            ("--context=", self.context.as_ref().map(OsString::from)),
        ] {
            if let Some(value) = value {
                let mut flag = OsString::from(name);
                flag.push(value);
                flags.push(flag);
            }
        }
        flags
    }

    /// The server and the credentials, for the console.
    pub(crate) async fn console_cluster(&self) -> Result<console::Cluster> {
        let client = self.connect().await?;
        let kubeconfig = Kubeconfig::read_all(&self.paths()?, self.context.as_deref())?;
        Ok(console::Cluster {
            client,
            server: kubeconfig.server,
            namespace: kubeconfig.namespace.unwrap_or_else(|| "default".to_owned()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }

    /// The arguments that name a kubeconfig.
    pub(crate) fn of_file(kubeconfig: PathBuf) -> Self {
        Self { kubeconfig: Some(kubeconfig), context: None }
    }

    /// A connection to the server.
    pub(crate) async fn connect(&self) -> Result<Client> {
        let paths = self.paths()?;
        if let ([path], false) = (paths.as_slice(), self.is_given() || self.is_in_environment())
            && !path.exists()
        {
            let path = path.display();
            bail!(
                "no cluster given: specify files with -f, or a server with --kubeconfig or KUBECONFIG (`{path}` does not exist)"
            );
        }
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

/// The gates that metrics show: `kubernetes_feature_enabled{name="A",stage="ALPHA"} 1`.
fn gates_of(metrics: &str) -> Features {
    let mut flags = Vec::new();
    for line in metrics.lines() {
        let Some(rest) = line.strip_prefix("kubernetes_feature_enabled{name=\"") else { continue };
        let Some((name, rest)) = rest.split_once('"') else { continue };
        // A gate that is not known here changes nothing here.
        if Gate::from_name(name).is_some() {
            flags.push(format!("{name}={}", rest.trim_end().ends_with(" 1")));
        }
    }
    Features::default().with_flag(&flags.join(",")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_read_from_metrics() {
        let metrics = "# HELP kubernetes_feature_enabled x\n\
            kubernetes_feature_enabled{name=\"TaintTolerationCEL\",stage=\"ALPHA\"} 1\n\
            kubernetes_feature_enabled{name=\"Unheard\",stage=\"\"} 1\n\
            kubernetes_feature_enabled{name=\"DRACELDeviceConstraint\",stage=\"ALPHA\"} 0\n";
        let features = gates_of(metrics);
        assert!(features.enabled(Gate::TaintTolerationCEL));
        assert!(!features.enabled(Gate::DRACELDeviceConstraint));
    }
}
