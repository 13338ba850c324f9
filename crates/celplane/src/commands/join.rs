//! `celplane join`: certificates and a kubeconfig for a machine that is to be a node.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use apiserver::certificates::write_private;
use controlplane::roles::dns::ClusterNetwork;
use controlplane::roles::kubelet::join::{Pin, Token, discover};
use controlplane::roles::kubelet::machine;

use crate::output::print_line;

/// Join a cluster: get certificates for this machine with a bootstrap token
///
/// Reads kube-public/cluster-info of the server, verifies it by the token and the pinned key of the authority, requests a
/// client certificate and a serving certificate, and writes them with a kubeconfig. An administrator approves the serving
/// certificate; the client certificate is approved by itself if the token has the group
/// system:bootstrappers:kubeadm:default-node-token.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Address of the API server: https://HOST:PORT
    #[arg(value_name = "SERVER")]
    server: String,
    /// Bootstrap token: ID.SECRET
    #[arg(long, value_name = "TOKEN")]
    token: Token,
    /// Pinned key of the cluster's authority: sha256:HEX; may be repeated
    #[arg(long, value_name = "PIN", required_unless_present = "discovery_token_unsafe_skip_ca_verification")]
    discovery_token_ca_cert_hash: Vec<Pin>,
    /// Trust every server that knows the token, without a pin
    #[arg(long, conflicts_with = "discovery_token_ca_cert_hash")]
    discovery_token_unsafe_skip_ca_verification: bool,
    /// Node name; by default the machine's
    #[arg(long, value_name = "NAME")]
    hostname_override: Option<String>,
    /// Address of the node; by default the one from which it reaches other machines
    #[arg(long, value_name = "ADDRESS")]
    node_ip: Option<IpAddr>,
    /// Directory for the kubeconfig and certificates
    #[arg(long, value_name = "DIRECTORY", default_value = "/etc/celplane")]
    directory: PathBuf,
    /// Do not request a serving certificate; logs and exec of the node's pods then fail
    #[arg(long)]
    skip_serving_certificate: bool,
    /// Seconds to wait for the approval of each certificate
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
        runtime.block_on(self.join())?;
        Ok(ExitCode::SUCCESS)
    }

    async fn join(self) -> anyhow::Result<()> {
        let node = self.hostname_override.clone().unwrap_or_else(machine::name);
        let server = self.server.trim_end_matches('/');
        let server = if server.contains("://") { server.to_owned() } else { format!("https://{server}") };
        let patience = Duration::from_secs(self.timeout);
        let cluster = discover(&server, &self.token, &self.discovery_token_ca_cert_hash).await?;
        print_line!("Found the cluster at {}.", cluster.server)?;
        let own = cluster.client_certificate(&self.token, &node, patience).await?;
        let shown = self.directory.display().to_string();
        std::fs::create_dir_all(&self.directory).with_context(|| format!("cannot create `{shown}`"))?;
        let kubeconfig = self.directory.join("kubelet.kubeconfig");
        write_private(&kubeconfig, &cluster.kubeconfig(&node, &own))?;
        print_line!("Wrote {} for node {node}.", kubeconfig.display())?;
        let mut flags =
            format!("--kubeconfig {} --hostname-override {node} --rotate-certificates", kubeconfig.display());
        if !self.skip_serving_certificate {
            let address = self.node_ip.unwrap_or_else(|| machine::own_address(None));
            let announce = |name: &str| {
                // A closed output does not end the request.
                let _ = print_line!(
                    "Waiting for the approval of the serving certificate: kubectl certificate approve {name}"
                );
            };
            let serving = cluster.serving_certificate(&own, &node, address, patience, announce).await?;
            let (certificate, key) = (self.directory.join("kubelet.crt"), self.directory.join("kubelet.key"));
            write_private(&certificate, &serving.certificate)?;
            write_private(&key, &serving.key)?;
            print_line!("Wrote {} and {}.", certificate.display(), key.display())?;
            flags.push_str(&format!(
                " --node-ip {address} --tls-cert-file {} --tls-private-key-file {} --rotate-server-certificates",
                certificate.display(),
                key.display()
            ));
        }
        let (network, hint) = network_flags(cluster.network(&own).await?);
        print_line!("Start the node with:")?;
        print_line!("  celplane kubelet {flags} --container-runtime-endpoint unix:///run/containerd/containerd.sock --proxy-mode nftables {network}")?;
        if !hint.is_empty() {
            print_line!("{hint}")?;
        }
        Ok(())
    }
}

/// The flags of the agent for the network of the cluster, and a sentence about those whose values the cluster does not publish.
fn network_flags(network: ClusterNetwork) -> (String, String) {
    let (mut flags, mut unknown) = (String::new(), Vec::new());
    match network.dns {
        Some(address) => flags.push_str(&format!("--cluster-dns {address}")),
        None => {
            flags.push_str("--cluster-dns DNS-ADDRESS");
            unknown.push("DNS-ADDRESS by the address of the cluster's DNS server");
        }
    }
    match network.pods {
        Some(pods) => {
            flags.push_str(&format!(" --cluster-cidr {pods} --cni-conf-dir /etc/cni/net.d"));
            flags.push_str(if network.has_routes { " --node-routes" } else { "" });
        }
        None => {
            flags.push_str(" --cluster-cidr POD-NETWORK");
            unknown.push("POD-NETWORK by the network of all pods");
        }
    }
    let mut hint = String::new();
    if !unknown.is_empty() {
        hint = format!("Replace {}, which the cluster does not publish.", unknown.join(", and "));
    }
    if network.pods.is_none() {
        hint.push_str(
            " Install the cluster's CNI plugin, or add --cni-conf-dir /etc/cni/net.d if nodes have a podCIDR.",
        );
    }
    (flags, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_parts_of_the_network_are_placeholders() {
        let (flags, hint) = network_flags(ClusterNetwork::default());
        assert_eq!(flags, "--cluster-dns DNS-ADDRESS --cluster-cidr POD-NETWORK");
        assert!(hint.starts_with("Replace DNS-ADDRESS by ") && hint.contains("POD-NETWORK by "), "{hint}");
        let dns = "10.96.0.10".parse().ok();
        let (flags, hint) = network_flags(ClusterNetwork { dns, ..ClusterNetwork::default() });
        assert_eq!(flags, "--cluster-dns 10.96.0.10 --cluster-cidr POD-NETWORK");
        assert!(hint.starts_with("Replace POD-NETWORK by "), "{hint}");
        let (flags, hint) = network_flags(ClusterNetwork { dns, pods: "10.1.0.0/16".parse().ok(), has_routes: false });
        assert_eq!(flags, "--cluster-dns 10.96.0.10 --cluster-cidr 10.1.0.0/16 --cni-conf-dir /etc/cni/net.d");
        assert_eq!(hint, "");
    }
}
