//! Bodies that are broken, too deep, too long, or grow when they are used.

use std::time::Instant;

use apiserver::Options;

use super::running::{RunningServer, open_files, resident_kilobytes};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";

#[test]
fn broken_documents_are_bad_requests() {
    let running = RunningServer::start(Options::without_controllers());
    let deep_json = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let deep_object = format!("{}1{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    let deep_in_field =
        format!("{{\"kind\":\"ConfigMap\",\"data\":{}1{}}}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    let deep_flow = format!("a: {}{}", "[".repeat(10_000), "]".repeat(10_000));
    let deep_block: String = (0..1500).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    let deep_dashes = "- ".repeat(10_000);
    let laughs = "a: &a [x,x,x,x,x,x,x,x,x,x]\n".to_owned()
        + &(b'b'..=b'z')
            .map(|c| {
                let (now, before) = (char::from(c), char::from(c - 1));
                format!("{now}: &{now} [{}]\n", vec![format!("*{before}"); 10].join(","))
            })
            .collect::<String>();
    let long_number = format!("{{\"data\":{}}}", "9".repeat(100_000));
    let cases: &[(&str, &[u8])] = &[
        (JSON, b""),
        (JSON, b"{"),
        (JSON, b"}"),
        (JSON, b"nul"),
        (JSON, b"{\"kind\":\"ConfigMap\",}"),
        (JSON, b"{\"a\":\"\xff\xfe\"}\0"),
        (JSON, b"\"\\ud800\""),
        (JSON, b"\"unterminated"),
        (JSON, b"[1,2,3]"),
        (JSON, b"{\"kind\":\"ConfigMap\"}{\"kind\":\"ConfigMap\"}"),
        (JSON, deep_json.as_bytes()),
        (JSON, deep_object.as_bytes()),
        (JSON, deep_in_field.as_bytes()),
        (JSON, long_number.as_bytes()),
        (YAML, b"a: [1"),
        (YAML, b"\t- x: {"),
        (YAML, b"a: *nowhere"),
        (YAML, b"&a a: *a"),
        (YAML, b"%TAG ! !"),
        (YAML, b"\xff\xfe\xfd"),
        (YAML, deep_flow.as_bytes()),
        (YAML, deep_block.as_bytes()),
        (YAML, deep_dashes.as_bytes()),
        (YAML, laughs.as_bytes()),
        ("application/xml", b"<a/>"),
        ("application/vnd.kubernetes.protobuf", b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff"),
    ];
    for (content_type, body) in cases {
        let started = Instant::now();
        let answer = running.ask("POST", CONFIG_MAPS, content_type, body);
        let shown: String = String::from_utf8_lossy(body).chars().take(60).collect();
        assert!(
            matches!(answer.status, 400 | 413 | 415 | 422),
            "{content_type} {shown}: {} {}",
            answer.status,
            answer.text()
        );
        assert!(started.elapsed().as_secs() < 10, "{content_type} {shown}: {:?}", started.elapsed());
    }
    running.check_alive();
}

#[test]
fn a_hundred_megabytes_are_not_read() {
    let running = RunningServer::start(Options::without_controllers());
    let kilobytes = resident_kilobytes();
    // The length is announced: the answer comes before the body.
    let mut client = running.endpoint.connect();
    let head =
        format!("POST {CONFIG_MAPS} HTTP/1.1\r\nHost: a\r\nContent-Type: {JSON}\r\nContent-Length: 104857600\r\n\r\n");
    client.send(head.as_bytes()).unwrap();
    assert_eq!(client.response().unwrap().status, 413);
    // In chunks: it comes once the limit is passed.
    let mut client = running.endpoint.connect();
    let head =
        format!("POST {CONFIG_MAPS} HTTP/1.1\r\nHost: a\r\nContent-Type: {JSON}\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(head.as_bytes()).unwrap();
    let chunk = [b"10000\r\n".as_slice(), &vec![b' '; 0x10000], b"\r\n"].concat();
    let mut sent = 0;
    while sent < 100 << 20 && client.send(&chunk).is_ok() {
        sent += 0x10000;
    }
    assert!(sent < 50 << 20, "all of {sent} bytes were taken");
    if let Ok(answer) = client.response() {
        assert_eq!(answer.status, 413);
    }
    assert!(resident_kilobytes() < kilobytes + (48 << 10), "{kilobytes} → {}", resident_kilobytes());
    running.check_alive();
}

/// Applies a patch to an object made for it.
#[track_caller]
fn patch(running: &RunningServer, content_type: &str, patch: &str, codes: &[u16]) {
    let name = "patched";
    let object = format!(r#"{{"metadata":{{"name":"{name}","annotations":{{"a":"b"}}}},"data":{{"a":"b"}}}}"#);
    running.ask("POST", CONFIG_MAPS, JSON, object.as_bytes());
    let started = Instant::now();
    let answer = running.ask("PATCH", &format!("{CONFIG_MAPS}/{name}"), content_type, patch.as_bytes());
    let shown: String = patch.chars().take(100).collect();
    assert!(codes.contains(&answer.status), "{shown}: {} {}", answer.status, answer.text());
    assert!(started.elapsed().as_secs() < 15, "{shown}: {:?}", started.elapsed());
}

#[test]
fn patches_that_grow_or_lead_nowhere_are_refused() {
    let running = RunningServer::start(Options::without_controllers());
    let kilobytes = resident_kilobytes();
    let json_patch = "application/json-patch+json";
    let bad = &[400, 413, 422];
    // Each copy doubles the document.
    let copies: Vec<String> =
        (0..200).map(|n| format!(r#"{{"op":"copy","from":"/metadata","path":"/metadata/c{n}"}}"#)).collect();
    patch(&running, json_patch, &format!("[{}]", copies.join(",")), bad);
    let too_many = vec![r#"{"op":"test","path":"/kind","value":"ConfigMap"}"#; 10_001];
    patch(&running, json_patch, &format!("[{}]", too_many.join(",")), bad);
    // A document that could not be read again.
    let mut path = String::new();
    let deep: Vec<String> = (0..1000)
        .map(|_| {
            path.push_str("/d");
            format!(r#"{{"op":"add","path":"{path}","value":{{}}}}"#)
        })
        .collect();
    patch(&running, json_patch, &format!("[{}]", deep.join(",")), bad);
    let far = "/a".repeat(500_000);
    patch(&running, json_patch, &format!(r#"[{{"op":"add","path":"{far}","value":1}}]"#), bad);
    patch(&running, json_patch, &format!(r#"[{{"op":"remove","path":"{far}"}}]"#), bad);
    for operation in [
        r#"{"op":"add","path":"/data/-9223372036854775808","value":{}}"#,
        r#"{"op":"remove","path":""}"#,
        r#"{"op":"move","from":"/data","path":"/data/x"}"#,
        r#"{"op":"replace","path":"","value":[]}"#,
        r#"{"op":"replace","path":"/kind","value":"Secret"}"#,
        r#"{"op":"add","path":"/metadata/name","value":"other"}"#,
        r#"{"op":"explode","path":"/a"}"#,
        r#"{"op":7}"#,
        r#"7"#,
    ] {
        patch(&running, json_patch, &format!("[{operation}]"), bad);
    }
    for body in ["", "{", "null", "7", "[]", "{\"metadata\":7}", "{\"data\":[1]}"] {
        patch(&running, "application/merge-patch+json", body, bad);
        patch(&running, "application/strategic-merge-patch+json", body, &[200, 400, 413, 422]);
    }
    let deep = format!("{}1{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    for content_type in ["application/merge-patch+json", "application/strategic-merge-patch+json"] {
        patch(&running, content_type, &deep, bad);
        patch(&running, content_type, r#"{"$patch":"explode"}"#, &[200, 400, 422, 500]);
    }
    patch(
        &running,
        "application/strategic-merge-patch+json",
        r#"{"metadata":{"$retainKeys":7,"$setElementOrder/finalizers":{}}}"#,
        &[200, 400, 422, 500],
    );
    patch(&running, "text/plain", "x", &[415]);
    assert!(resident_kilobytes() < kilobytes + (128 << 10), "{kilobytes} → {}", resident_kilobytes());
    running.check_alive();
}

#[test]
fn refused_bodies_leave_nothing_behind() {
    let running = RunningServer::start(Options::without_controllers());
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let long = "x".repeat(1 << 20);
    let round = || {
        for body in [deep.as_str(), long.as_str(), "{\"metadata\":{\"name\":\"UPPER\"}}"] {
            assert!(running.ask("POST", CONFIG_MAPS, JSON, body.as_bytes()).status >= 400);
        }
    };
    for _ in 0..10 {
        round();
    }
    let (files, kilobytes) = (open_files(), resident_kilobytes());
    for _ in 0..100 {
        round();
    }
    super::running::eventually("files are closed", || open_files() <= files + 2);
    assert!(resident_kilobytes() < kilobytes + (24 << 10), "{kilobytes} → {}", resident_kilobytes());
    running.check_alive();
}

#[test]
fn oversized_upload_receives_413_after_sending() {
    let running = RunningServer::start(Options::without_controllers());
    let body = vec![b' '; 12 << 20];
    for _ in 0..5 {
        let mut client = running.endpoint.connect();
        let head = format!("POST /api/v1/namespaces HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
        client.send(head.as_bytes()).unwrap();
        client.send(&body).unwrap();
        let answer = client.response().unwrap();
        assert_eq!((answer.status, answer.header("connection").as_deref()), (413, Some("close")));
    }
    running.check_alive();
}
