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

/// Copies the files of the package: a build writes beside its sources.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Runs `python-pytest`, which must succeed; returns its output.
#[track_caller]
fn python(arguments: &[&str], path: &Path, directory: &Path) -> String {
    let output = Command::new("python-pytest")
        .args(arguments)
        .env("PYTHONPATH", path)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("CELPLANE_BIN", env!("CARGO_BIN_EXE_celplane"))
        // The files of a killed test stay: they are removed with this directory.
        .env("TMPDIR", directory)
        .current_dir(directory)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Builds the wheel, installs it into a directory, and runs the package's tests with its plugin for pytest.
#[test]
fn wheel_passes_the_tests_of_the_package() {
    if !is_installed("python-pytest", &["-c", "import setuptools, pip, pytest"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (sources, installed) = (directory.path().join("sources"), directory.path().join("installed"));
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python"), &sources);
    let run = |arguments: &[&str]| python(arguments, &installed, directory.path());
    let offline = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"];
    let build = ["-m", "pip", "wheel", "--no-build-isolation", "--wheel-dir", "wheels", "./sources"];
    run(&[&build[..], &offline].concat());
    let wheel = "wheels/celplane_testing-0.1.0-py3-none-any.whl";
    run(&[&["-m", "pip", "install", "--target", "installed", wheel][..], &offline].concat());
    assert!(installed.join("celplane_testing/py.typed").exists());
    std::fs::remove_dir_all(sources.join("src")).unwrap();
    let text = run(&["-m", "pytest", "-q", "-p", "no:cacheprovider", "sources/tests"]);
    assert!(text.contains("4 passed"), "{text}");
}
