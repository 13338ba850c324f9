//! Two server processes on one etcd, over TLS with client certificates, as an operator would run them.
//!
//! Without `kubectl` and `etcd` the test prints a note and passes, unless `CELPLANE_REQUIRE_TOOLS=1` is set.

use crate::cluster;
#[path = "../../store/tests/support/etcd_server.rs"]
pub(crate) mod etcd_server;

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use apiserver::serving::certificates::{Authority, Pair};
use cluster::Cluster;

#[test]
fn two_processes_share_one_etcd_and_say_when_it_is_away() {
    if Cluster::is_missing() || etcd_server::is_missing("two_processes_share_one_etcd_and_say_when_it_is_away") {
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let authority = Authority::generate().unwrap();
    let write = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let pair = |name: &str, pair: &Pair| {
        (write(&format!("{name}.crt"), &pair.certificate), write(&format!("{name}.key"), &pair.key))
    };
    let authority_path = write("ca.crt", authority.certificate());
    let (certificate, key) = pair("etcd", &authority.server(&[IpAddr::V4(Ipv4Addr::LOCALHOST)]).unwrap());
    let (client_certificate, client_key) = pair("client", &authority.client("celplane", "celplane").unwrap());
    let certificates = etcd_server::Certificates { authority: authority_path.clone(), certificate, key };
    let mut etcd = etcd_server::Server::start(1, Some(&certificates));
    let signing = files.path().join("sa.key");
    let flags: Vec<String> = vec![
        format!("--etcd-servers={}", etcd.endpoints().join(",")),
        format!("--etcd-cafile={}", authority_path.display()),
        format!("--etcd-certfile={}", client_certificate.display()),
        format!("--etcd-keyfile={}", client_key.display()),
        "--etcd-prefix=/celplane".to_owned(),
        // Both must accept each other's tokens.
        format!("--service-account-signing-key-file={}", signing.display()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let one = Cluster::start_with(tempfile::tempdir().unwrap(), &flags);
    let other = Cluster::start_with(tempfile::tempdir().unwrap(), &flags);
    one.kubectl(&["create", "configmap", "shared", "--from-literal=a=b"], "");
    assert_eq!(other.kubectl(&["get", "configmap", "shared", "-o", "jsonpath={.data.a}"], ""), "b");
    other.kubectl(&["create", "serviceaccount", "robot"], "");
    let token = one.kubectl(&["create", "token", "robot"], "");
    let review = format!(
        r#"{{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{{"token":"{}"}}}}"#,
        token.trim()
    );
    let review =
        other.kubectl(&["create", "--validate=false", "-f", "-", "-o", "jsonpath={.status.user.username}"], &review);
    assert_eq!(review, "system:serviceaccount:default:robot");
    assert_eq!(one.kubectl(&["get", "--raw", "/readyz"], ""), "ok");

    etcd.kill(0);
    let ready = one.refused(&["get", "--raw", "/readyz"], "");
    assert!(ready.contains("[-]etcd failed"), "{ready}");
    let refused = other.refused(&["create", "configmap", "lost"], "");
    assert!(refused.contains("the storage is unavailable"), "{refused}");
    let cached = other.kubectl(&["get", "--raw", "/api/v1/namespaces/default/configmaps/shared?resourceVersion=0"], "");
    assert!(cached.contains("\"a\":\"b\""), "{cached}");
    etcd.run(0);
    let started = Instant::now();
    while !other.run(&["get", "--raw", "/readyz"], "").status.success() {
        assert!(started.elapsed() < Duration::from_secs(60), "etcd is not found again");
    }
    other.kubectl(&["create", "configmap", "found"], "");
    assert_eq!(one.kubectl(&["get", "configmap", "found", "-o", "name"], ""), "configmap/found\n");
}
