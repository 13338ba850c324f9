//! The map of 500 nodes and 5,000 pods: what it holds, and that it follows changes.

use std::fmt::Write as _;

use super::ConsoleProcess;
use crate::browser::Browser;
use crate::cluster::Cluster;

/// Nodes and pods as another cluster would list them.
pub(crate) fn dump(nodes: usize, pods: usize) -> String {
    let mut text = String::new();
    for node in 0..nodes {
        let zone = node % 5;
        let _ = write!(
            text,
            "---\n{{apiVersion: v1, kind: Node, metadata: {{name: node-{node}, labels: {{topology.kubernetes.io/zone: zone-{zone}, kubernetes.io/hostname: node-{node}}}}}, status: {{allocatable: {{cpu: '16', memory: 64Gi, pods: '110'}}, capacity: {{cpu: '16', memory: 64Gi, pods: '110'}}}}}}\n"
        );
    }
    for pod in 0..pods {
        let node = pod % nodes;
        let _ = write!(
            text,
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: pod-{pod}, namespace: default}}, spec: {{nodeName: node-{node}, containers: [{{name: c, image: c, resources: {{requests: {{cpu: 500m, memory: 1Gi}}}}}}]}}}}\n"
        );
    }
    text
}

#[test]
fn map_shows_500_nodes_and_5000_pods() {
    if Cluster::is_missing() {
        return;
    }
    let Some(browser) = Browser::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cluster.yaml");
    std::fs::write(&file, dump(500, 5_000)).unwrap();
    let cluster = Cluster::up(directory, &["--ephemeral", "--load", file.to_str().unwrap()]);
    let mut served = ConsoleProcess::start(&cluster.kubeconfig(), 0);
    browser.open(&served.url());
    browser.see("Why pending");
    browser.go("#/map");
    browser.see("500 nodes, 5,000 pods");
    browser.wait("document.querySelector('.map-holder').dataset.firstPicture");
    let elements = browser.run("return document.querySelectorAll('*').length").as_i64().unwrap();
    assert!(elements < 2_000, "{elements} elements");
    let bytes = browser.run("return performance.getEntriesByType('resource').filter((it) => it.name.includes('/k/') || it.name.endsWith('.js') || it.name.endsWith('.css')).reduce((sum, it) => sum + it.encodedBodySize, 0)");
    assert!(bytes.as_i64().unwrap() < 1_000_000, "{bytes} bytes besides the stream");
    cluster.kubectl(&["delete", "pod", "pod-0", "pod-1", "pod-2", "--force", "--grace-period=0"], "");
    browser.see("500 nodes, 4,997 pods");
    browser.run("const input = document.querySelector('input[placeholder=\"node-1\"]'); input.value = 'node-49'; input.dispatchEvent(new Event('input'))");
    browser.see("11 nodes match");
}
