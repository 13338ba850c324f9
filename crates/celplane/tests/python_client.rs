//! Python's `kubernetes` package against the server.
//!
//! `cargo xtask test` fetches it into a virtual environment. Without it, the test prints a note and passes,
//! unless `CELPLANE_REQUIRE_TOOLS=1` is set.

use crate::cluster;

use std::path::Path;
use std::process::Command;

use cluster::{Cluster, is_installed};

#[test]
fn programs_in_python_work() {
    if !is_installed("python-kubernetes", &["-c", "import kubernetes"]) {
        return;
    }
    let cluster = Cluster::start_in(tempfile::tempdir().unwrap());
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python_client.py");
    let output = Command::new("python-kubernetes").arg(program).arg(cluster.kubeconfig()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text, "done\n");
}
