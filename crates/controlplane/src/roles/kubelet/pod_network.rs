//! The default pod network of a machine: a bridge with addresses of the Node's `podCIDR`, and host ports.
//!
//! The file is written when the controller manager has allocated the `podCIDR`. Until then the runtime has no network, and the node is
//! not ready.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use api::core::v1::Node;
use client::objects::Selection;
use client::{Client, Informer, Shutdown};
use proxy::network::Network;
use telemetry::logs::chain;
use tracing::{error, info};

/// The file in the directory of network configurations.
pub const FILE: &str = "10-celplane.conflist";
/// The default bridge.
pub const BRIDGE: &str = "celplane0";

/// The pod network of one machine.
#[derive(Debug, Clone)]
pub struct PodNetwork {
    /// Directory of network configurations, which the runtime reads.
    pub directory: PathBuf,
    /// Directory for the addresses that are in use.
    pub addresses: PathBuf,
    /// Whether the network masquerades traffic of pods to other machines; otherwise the proxy does.
    pub masquerades: bool,
    /// Largest packet; by default that of the machine's default route.
    pub mtu: Option<u32>,
}

impl PodNetwork {
    /// Writes the configuration whenever the Node's `podCIDR` changes, until shutdown.
    pub async fn follow(self, client: &Client, node: &str, shutdown: &Shutdown) {
        let own = Selection { fields: format!("metadata.name={node}"), ..Selection::default() };
        let nodes = Informer::<Node>::start(client, own);
        let mut changes = nodes.changes();
        let mut written = None;
        loop {
            let change = tokio::select! {
                () = shutdown.requested() => return,
                (_, change) = changes.next() => change,
            };
            let network: Option<Network> = change.newest().spec.pod_cidr.parse().ok();
            let Some(network) = network.filter(|it| written != Some(*it)) else { continue };
            match self.write(network) {
                Ok(()) => {
                    info!(network = %network, path = %self.directory.display(), "Wrote pod network configuration");
                    written = Some(network);
                }
                Err(failure) => error!(err = %chain(&*failure), "Could not write pod network configuration"),
            }
        }
    }

    /// Replaces the file at once: the runtime never reads a part of it.
    fn write(&self, network: Network) -> Result<()> {
        let mtu = self.mtu.or_else(proxy::machine::default_mtu);
        let text = configuration(network, mtu, self.masquerades, &self.addresses);
        let path = self.directory.join(FILE);
        if std::fs::read_to_string(&path).is_ok_and(|known| known == text) {
            return Ok(());
        }
        std::fs::create_dir_all(&self.directory)
            .with_context(|| format!("cannot create `{}`", self.directory.display()))?;
        // The runtime reads only files with the extensions of network configurations.
        let part = path.with_extension("part");
        std::fs::write(&part, text).with_context(|| format!("cannot write `{}`", part.display()))?;
        std::fs::rename(&part, &path).with_context(|| format!("cannot write `{}`", path.display()))
    }
}

/// A bridge, addresses of a network, and host ports.
fn configuration(network: Network, mtu: Option<u32>, masquerades: bool, addresses: &Path) -> String {
    let ipam = api::json!({
        "type": "host-local", "dataDir": (addresses.display().to_string()),
        "ranges": [[{"subnet": (network.to_string())}]], "routes": [{"dst": "0.0.0.0/0"}],
    });
    let mut bridge = api::json!({
        "type": "bridge", "bridge": BRIDGE, "isGateway": true, "ipMasq": masquerades, "hairpinMode": true, "ipam": ipam,
    });
    if let (Some(mtu), Some(fields)) = (mtu, bridge.as_object_mut()) {
        fields.insert("mtu", i64::from(mtu));
    }
    api::json::to_string(&api::json!({
        "cniVersion": "0.4.0", "name": "celplane",
        "plugins": [bridge, {"type": "portmap", "capabilities": {"portMappings": true}}],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_has_the_range_of_the_node() {
        let directory = tempfile::tempdir().unwrap();
        let network = PodNetwork {
            directory: directory.path().join("cni"),
            addresses: "/data/addresses".into(),
            masquerades: true,
            mtu: Some(1400),
        };
        network.write("10.244.3.0/24".parse().unwrap()).unwrap();
        let text = std::fs::read(network.directory.join(FILE)).unwrap();
        let file = api::json::parse(&text).unwrap();
        let [bridge, portmap] = file.list("plugins") else { panic!("{file:?}") };
        assert_eq!((bridge.int("mtu"), portmap.text("type")), (1400, "portmap"));
        let range = &bridge.list_at(&["ipam", "ranges"])[0];
        assert_eq!(range.as_array().unwrap()[0].text("subnet"), "10.244.3.0/24");
        assert_eq!(std::fs::read_dir(&network.directory).unwrap().count(), 1);
    }
}
