//! Sessions in a browser: wrong codes, other origins, the end of the server, users with few rights.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use super::{ConsoleProcess, ready};
use crate::browser::Browser;
use crate::cluster::Cluster;

#[test]
fn sessions_need_a_code_and_the_own_origin() {
    let Some((cluster, mut served, browser)) = ready() else { return };
    let next = served.url();
    let (base, code) = next.split_once("/#code=").unwrap();
    // A reload keeps the session of the tab, and the code is not in the address.
    assert_eq!(browser.run("return location.href.includes('code=')"), false);
    browser.command("Page.reload", serde_json::json!({}));
    browser.see("Live");
    // Without a session there is nothing to see.
    browser.run("sessionStorage.clear()");
    browser.open(&format!("{base}/#code=0000"));
    browser.see("This link has been used");
    assert_eq!(browser.run("return document.querySelector('nav')"), serde_json::Value::Null);
    // A page of another origin on loopback can neither read nor open a session, even with the code.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let foreign = format!("http://{}/", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 4096];
        let _ = stream.read(&mut head).unwrap();
        stream
            .write_all(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n",
            )
            .unwrap();
    });
    browser.open(&foreign);
    server.join().unwrap();
    let attempt = |path: &str, options: &str| {
        let script = format!(
            "const done = arguments[arguments.length - 1]; fetch('{base}{path}', {options}).then((it) => done('answered ' + it.status), () => done('blocked'))"
        );
        browser.run_async(&script)
    };
    assert_eq!(attempt("/c/info", "{}"), "blocked");
    assert_eq!(attempt("/c/session", &format!("{{method: 'POST', body: '{{\"code\":\"{code}\"}}'}}")), "blocked");
    assert_eq!(attempt("/c/info", "{headers: {'x-celplane-session': 'a'}}"), "blocked");
    // The code is still valid for the own page.
    browser.open(&next);
    browser.see("trainer");
    // The server ends and starts again: the page shows both.
    let port = base.rsplit(':').next().unwrap().parse().unwrap();
    drop(served);
    browser.see("Reconnecting");
    let mut served = ConsoleProcess::start(&cluster.kubeconfig(), port);
    let url = served.url();
    browser.see("The session has ended");
    browser.open(&url);
    browser.see("trainer");
}

#[test]
fn few_rights_are_explained() {
    if Cluster::is_missing() {
        return;
    }
    let Some(browser) = Browser::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens.csv");
    std::fs::write(&tokens, "few-rights-token,eve,1,\n").unwrap();
    let cluster =
        Cluster::up(directory, &["--ephemeral", "--nodes", "1", "--token-auth-file", tokens.to_str().unwrap()]);
    cluster.wait_for_nodes();
    cluster.kubectl(&["create", "role", "reader", "--verb=get,list,watch", "--resource=pods", "-n", "default"], "");
    cluster.kubectl(&["create", "rolebinding", "reader", "--role=reader", "--user=eve", "-n", "default"], "");
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: lonely}\nspec: {nodeSelector: {no: where}, containers: [{name: c, image: c}]}\n";
    cluster.apply(pod);
    let kubeconfig = cluster.directory.path().join("eve.kubeconfig");
    std::fs::copy(cluster.kubeconfig(), &kubeconfig).unwrap();
    let config = |arguments: &[&str]| {
        let kubeconfig = kubeconfig.display().to_string();
        cluster.kubectl(&[&["config", "--kubeconfig", &kubeconfig], arguments].concat(), "");
    };
    config(&["set-credentials", "eve", "--token=few-rights-token"]);
    config(&["set-context", "--current", "--user=eve", "--namespace=default"]);
    let mut served = ConsoleProcess::start(&kubeconfig, 0);
    browser.open(&served.url());
    browser.see("eve");
    browser.see("you may not list pods of all namespaces");
    browser.see("lonely");
    browser.go("#/why/default/lonely");
    browser.see("forbidden");
    browser.go("#/map");
    browser.see("You lack a permission");
    browser.go("#/resources/v1/nodes");
    browser.see("You lack a permission");
    browser.go("#/resources/v1/pods");
    browser.wait("[...document.querySelectorAll('.grid td a')].some((it) => it.textContent === 'lonely')");
}
