//! The log lines of KEP-5254, at their levels.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::*;

/// Starts a cluster whose log goes to a file of its directory.
fn up_at_level(level: &str) -> Option<Cluster> {
    if Cluster::is_missing() {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let log = std::fs::File::create(directory.path().join("log")).unwrap();
    let mut process = Command::new(env!("CARGO_BIN_EXE_celplane"))
        .args(["up", "--port", "0", "--nodes", "1", "--devices", "ring:8", "-v", level, "--data-dir"])
        .arg(directory.path().join("data"))
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let cluster = Cluster { process, directory };
    assert!(line.starts_with("The API is served at"), "{line}");
    until(&cluster, &["get", "serviceaccount", "default", "-o", "name"], |text| text.contains("default"));
    cluster.apply(CLASS);
    Some(cluster)
}

/// Returns the log of a pod whose devices were found at the second attempt, and of one for whose devices an
/// expression failed.
fn told(level: &str) -> Option<Vec<String>> {
    let cluster = up_at_level(level)?;
    cluster.apply(&claim_and_pod("odd", 2, "devices[1].attributes['mla.example.com'].deviceid == 2"));
    runs(&cluster, "odd");
    cluster.apply(&claim_and_pod("wrong", 2, "devices[0].attributes['mla.example.com'].missing == 2"));
    says(&cluster, "wrong", "no such key");
    let directory = cluster.stop();
    let log = std::fs::read_to_string(directory.path().join("log")).unwrap();
    Some(log.lines().filter(|line| line.contains("odd") || line.contains("wrong")).map(ToOwned::to_owned).collect())
}

#[test]
fn log_levels_match_the_proposal() {
    let expected = [
        ("4", &["Searched devices for pod", "Expression evaluation failed"][..]),
        ("5", &["Ran plugin for pod"]),
        (
            "7",
            &[
                "devices added so far",
                "Collecting devices",
                "Evaluating expression",
                "Devices don't satisfy expression",
                "Reset constraint state for re-evaluation",
            ],
        ),
    ];
    for (level, _) in expected {
        let Some(lines) = told(level) else { return };
        for (from, texts) in expected {
            for text in texts {
                let is_told = lines.iter().any(|line| line.contains(text));
                assert_eq!(is_told, level >= from, "{text} at level {level}:\n{}", lines.join("\n"));
            }
        }
        if level == "7" {
            let has = |text: &str| lines.iter().any(|line| line.contains(text));
            assert!(has("current=1 expected=2") && has("actualCost="), "{}", lines.join("\n"));
        }
    }
}
