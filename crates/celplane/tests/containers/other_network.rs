//! A pod network other than the default bridge, by the configuration of its plugin.

use super::machine::Machine;
use super::{WEB, once};

/// The directories are in a file system of the machine's own.
pub(super) const FLAGS: &[&str] = &["--cni-conf-dir", "/run/netns/configurations", "--cluster-cidr", "10.99.0.0/16"];

const CONFIGURE: &str = "mkdir /run/netns/configurations && cat > /run/netns/configurations/10-points.conflist <<'END'\n\
    {\"cniVersion\": \"0.4.0\", \"name\": \"points\", \"plugins\": [\n\
    {\"type\": \"ptp\", \"ipMasq\": true, \"ipam\": {\"type\": \"host-local\", \"dataDir\": \"/run/netns/addresses\",\n\
    \"ranges\": [[{\"subnet\": \"10.99.0.0/24\"}]], \"routes\": [{\"dst\": \"0.0.0.0/0\"}]}}]}\nEND\n";

/// Writes the configuration of the plugin `ptp`, which connects each pod to the machine by a link of its own.
pub(super) fn configure(machine: &Machine) {
    machine.run("sh", &["-c", CONFIGURE]);
}

/// Pods have addresses and links of the plugin, and reach each other and Services.
pub(super) fn carries_pods(machine: &Machine) {
    machine.apply(WEB);
    machine.wait("deployment/web", "condition=Available");
    let addresses = machine.kubectl(&["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].status.podIP}"]);
    let addresses: Vec<&str> = addresses.split(' ').collect();
    assert!(addresses.len() == 2 && addresses.iter().all(|it| it.starts_with("10.99.0.")), "{addresses:?}");
    // The default bridge does not exist.
    let links = machine.run("ip", &["-o", "link"]);
    assert!(!links.contains("celplane0") && links.contains("veth"), "{links}");
    machine.kubectl(&["expose", "deployment", "web", "--port=80", "--target-port=8080"]);
    let service = machine.kubectl(&["get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"]);
    let fetch = format!(
        "for host in {}:8080 {}:8080 {service}; do until wget -qO- http://$host/index.html; do sleep 0.1; done; done; ip route",
        addresses[0], addresses[1]
    );
    machine.apply(&once("fetch", &fetch, ""));
    machine.wait("pod/fetch", "jsonpath={.status.phase}=Succeeded");
    let output = machine.kubectl(&["logs", "fetch"]);
    assert_eq!(output.matches("hello from a file\n").count(), 3, "{output}");
    // The plugin sets a route to the gateway; a bridge's network is on the link.
    assert!(output.contains("10.99.0.1 dev eth0"), "{output}");
    machine.kubectl(&["delete", "deployment/web", "service/web", "pod/fetch", "--wait"]);
}
