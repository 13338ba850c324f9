//! The Python package for tests, against this binary.

use std::path::Path;
use std::process::Command;

use crate::cluster::is_installed;

const PROGRAM: &str = r#"
import ssl, urllib.request
from celplane_testing import Cluster, StartError

with Cluster(nodes=1, feature_gates={"TaintTolerationCEL": False}) as cluster:
    context = ssl.create_default_context(cafile=str(cluster.directory / "data" / "pki" / "ca.crt"))
    print(urllib.request.urlopen(cluster.server + "/readyz", context=context, timeout=30).read().decode())
    directory, process = cluster.directory, cluster._process
print(process.returncode, directory.exists())
try:
    Cluster(arguments=["--no-such-flag"]).start()
except StartError as error:
    print("--no-such-flag" in str(error))
"#;

#[test]
fn python_package_starts_and_stops_a_cluster() {
    if !is_installed("python3", &["--version"]) {
        return;
    }
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/src");
    let output = Command::new("python3")
        .args(["-c", PROGRAM])
        .env("PYTHONPATH", package)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("CELPLANE_BIN", env!("CARGO_BIN_EXE_celplane"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "ok\n0 False\nTrue\n", "{}", String::from_utf8_lossy(&output.stderr));
}
