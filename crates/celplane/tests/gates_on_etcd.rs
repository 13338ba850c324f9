//! API servers with different gates on one etcd: an object written on one and updated through the other keeps its fields.

use crate::cluster::Cluster;
use crate::etcd::etcd_server;

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  tolerations: [{expression: \"taint.key == 'a'\"}]\n  containers: [{name: c, image: i}]\n";
const DEFINITION: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/printer-columns/story-3-combined-fields.yaml"));
const TEMPLATE: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/device-constraints/story-1-connected.yaml"));

#[test]
fn servers_with_different_gates_keep_each_others_fields() {
    if Cluster::is_missing() || etcd_server::is_missing("servers_with_different_gates_keep_each_others_fields") {
        return;
    }
    let etcd = etcd_server::Server::start(1, None);
    let files = tempfile::tempdir().unwrap();
    let servers = format!("--etcd-servers={}", etcd.endpoints().join(","));
    let signing = format!("--service-account-signing-key-file={}", files.path().join("sa.key").display());
    let start =
        |gates: &[&str]| Cluster::start_with(tempfile::tempdir().unwrap(), &[&[&*servers, &*signing], gates].concat());
    let (new, old) = (start(&[]), start(&["--feature-gates", "AllAlpha=false"]));
    new.kubectl(&["create", "serviceaccount", "default"], "");
    new.apply(POD);
    new.apply(DEFINITION);
    new.apply(TEMPLATE.split("\n---\n").next().unwrap());
    let fields = [
        (["pod", "p"], "jsonpath={.spec.tolerations[0].expression}", "taint.key == 'a'"),
        (
            ["crd", "combineds.stories.example.com"],
            "jsonpath={.spec.versions[0].additionalPrinterColumns[0].expression}",
            "format(",
        ),
        (
            ["resourceclaimtemplate", "4-connected-devices"],
            "jsonpath={.spec.spec.devices.constraints[0].cel.expression}",
            "size(devices) == 4",
        ),
    ];
    for ([kind, name], path, expected) in fields {
        // A patch, an apply and a whole update through the server that does not open the field.
        old.kubectl(&["label", kind, name, "through=old"], "");
        let whole = old.kubectl(&["get", kind, name, "-o", "json"], "");
        old.kubectl(&["replace", "-f", "-"], &whole.replace("\"through\": \"old\"", "\"through\": \"replaced\""));
        for server in [&new, &old] {
            let kept = server.kubectl(&["get", kind, name, "-o", path], "");
            assert!(kept.contains(expected), "{kind}: {kept}");
            let label = server.kubectl(&["get", kind, name, "-o", "jsonpath={.metadata.labels.through}"], "");
            assert_eq!(label, "replaced");
        }
    }
    let refused = old.refused(&["create", "-f", "-"], &POD.replace("name: p", "name: q"));
    assert!(refused.contains("require feature gate TaintTolerationCEL"), "{refused}");
    new.apply(&POD.replace("name: p", "name: q"));
    old.kubectl(&["delete", "pod", "q", "--force", "--grace-period=0"], "");
}
