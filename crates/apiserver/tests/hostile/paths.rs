//! Paths, queries and heads that are not what they seem.

use apiserver::Options;

use super::running::{RunningServer, open_files, resident_kilobytes};

/// Requests that must be refused, with the code of the refusal.
#[test]
fn tricks_with_paths_lead_nowhere() {
    let running = RunningServer::start(Options::without_controllers());
    let long = format!("/api/v1/namespaces/default/pods/{}", "a".repeat(50_000));
    let deep = format!("/api/v1/namespaces/default/pods/a{}", "/b".repeat(20_000));
    let cases: &[(&str, &[u16])] = &[
        ("/api/v1/namespaces/default/pods/%2e%2e", &[400]),
        ("/api/v1/namespaces/%2e%2e/pods/a", &[404]),
        ("/api/v1/namespaces/default/pods/..%2f..%2fsecrets", &[404]),
        ("/api/v1/namespaces/default/pods/../../../nodes", &[404]),
        ("/api/v1/namespaces/default/pods/a%00b", &[404]),
        ("/api/v1/namespaces/default/pods/%ff%fe", &[404]),
        ("/api/v1/namespaces/default/pods/%zz", &[400]),
        ("//api/v1/pods", &[404]),
        ("/api//v1/pods", &[404]),
        ("/api/v1//pods", &[404]),
        ("/api/v1/namespaces//pods/a", &[404]),
        ("/apis/apps//deployments", &[404]),
        ("/registry/core/secrets/default/a", &[404]),
        (&long, &[404, 414]),
        (&deep, &[404, 414]),
        ("/api/v1/pods?labelSelector=%3D%3D%3D", &[400]),
        ("/api/v1/pods?labelSelector=a%20in%20(", &[400]),
        ("/api/v1/pods?labelSelector=((((((((((", &[400]),
        ("/api/v1/pods?fieldSelector=spec.none%3Da", &[400]),
        ("/api/v1/pods?fieldSelector=%3D", &[400]),
        ("/api/v1/pods?limit=x", &[400]),
        ("/api/v1/pods?limit=99999999999999999999", &[400]),
        ("/api/v1/pods?continue=x", &[400]),
        ("/api/v1/pods?continue=AAAAAAAAAAAA", &[400]),
        ("/api/v1/pods?resourceVersion=-1", &[400]),
        ("/api/v1/pods?resourceVersion=18446744073709551616", &[400]),
        ("/api/v1/pods?watch=1&resourceVersion=x", &[400, 500]),
        ("/api/v1/pods?watch=1&timeoutSeconds=x", &[400]),
    ];
    for (path, codes) in cases {
        let answer = running.ask("GET", path, "", b"");
        let shown: String = path.chars().take(80).collect();
        assert!(codes.contains(&answer.status), "{shown}: {} {}", answer.status, answer.text());
    }
    // Kubernetes: an escaped slash divides, for rights and for what is found alike.
    let plain = running.ask("GET", "/api/v1/namespaces/default/pods", "", b"");
    let escaped = running.ask("GET", "/api/v1/namespaces/default%2fpods", "", b"");
    assert_eq!((escaped.status, escaped.text()), (200, plain.text()));
    running.check_alive();
}

#[test]
fn a_selector_of_a_megabyte_is_refused_or_answered() {
    let running = RunningServer::start(Options::without_controllers());
    // Below the limit of a head, many requirements; above it, no answer but a refusal.
    let many = (0..4000).map(|n| format!("a{n}")).collect::<Vec<_>>().join(",");
    assert_eq!(running.ask("GET", &format!("/api/v1/pods?labelSelector={many}"), "", b"").status, 200);
    let path = format!("/api/v1/pods?labelSelector={}", "a,".repeat(1 << 19));
    match running.endpoint.request("GET", &path, &[], b"") {
        Ok(answer) => assert!(matches!(answer.status, 400 | 414 | 431), "{}", answer.status),
        // The connection was closed on us.
        Err(error) => drop(error),
    }
    running.check_alive();
}

#[test]
fn heads_that_are_too_long_are_refused() {
    let running = RunningServer::start(Options::without_controllers());
    let (files, kilobytes) = (open_files(), resident_kilobytes());
    let huge = "x".repeat(1 << 20);
    let many: Vec<String> = (0..2000).map(|n| format!("X-{n}")).collect();
    for round in 0..20 {
        let headers: Vec<(&str, &str)> = if round % 2 == 0 {
            vec![("X-Huge", huge.as_str())]
        } else {
            many.iter().map(|name| (name.as_str(), "y")).collect()
        };
        match running.endpoint.request("GET", "/readyz", &headers, b"") {
            Ok(answer) => assert!(matches!(answer.status, 400 | 431), "{}", answer.status),
            Err(error) => drop(error),
        }
    }
    running.check_alive();
    super::running::eventually("files are closed", || open_files() <= files + 2);
    assert!(resident_kilobytes() < kilobytes + (64 << 10), "{kilobytes} → {}", resident_kilobytes());
}

#[test]
fn methods_that_mean_nothing_are_refused() {
    let running = RunningServer::start(Options::without_controllers());
    for method in ["TRACE", "CONNECT", "PROPFIND", "X"] {
        match running.endpoint.request(method, "/api/v1/pods", &[], b"") {
            Ok(answer) => assert!((400..500).contains(&answer.status), "{method}: {}", answer.status),
            Err(error) => drop(error),
        }
    }
    // Two lengths, or a length and chunks, are how requests are smuggled past others.
    for head in ["Content-Length: 5\r\nContent-Length: 6", "Content-Length: 5\r\nTransfer-Encoding: chunked"] {
        let mut client = running.endpoint.connect();
        client.send(format!("POST /api/v1/pods HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n0\r\n\r\n").as_bytes()).unwrap();
        if let Ok(answer) = client.response() {
            assert!((400..500).contains(&answer.status), "{head}: {}", answer.status);
        }
    }
    running.check_alive();
}
