//! The map of 5,000 nodes and 50,000 pods while 500 pods change each second: the page alone, fed by this test.
//!
//! Prints what the browser measures: `cargo test --package celplane --test integration console::feed -- --nocapture`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use crate::browser::Browser;

const NODES: usize = 5_000;
const PODS: usize = 50_000;
/// Ten lines of 50 pods each second, for six seconds.
const LINES: usize = 60;

fn node(at: usize) -> serde_json::Value {
    let labels = json!({"topology.kubernetes.io/zone": format!("zone-{}", at % 5), "kubernetes.io/hostname": format!("node-{at}")});
    json!([format!("node-{at}"), 16_000, 68_719_476_736_u64, 110, true, false, labels, []])
}

fn pod(at: usize, change: usize) -> serde_json::Value {
    json!([
        "default",
        format!("pod-{at}"),
        format!("node-{}", (at * 7_919 + change * 13) % NODES),
        200,
        268_435_456,
        "Running"
    ])
}

/// Answers one connection: the files of the page, and the feed.
fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut head, mut length) = (String::new(), 0);
    reader.read_line(&mut head)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.trim().is_empty() {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length])?;
    let path = head.split(' ').nth(1).unwrap_or("/").split('?').next().unwrap_or("/").to_owned();
    if path == "/c/map" {
        return feed(stream);
    }
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../console/page");
    let file = directory.join(if path == "/" { "index.html" } else { path.trim_start_matches('/') });
    let (media_type, content) = match std::fs::read(&file) {
        Ok(content) if file.extension().is_some_and(|it| it == "js") => ("text/javascript", content),
        Ok(content) if file.extension().is_some_and(|it| it == "css") => ("text/css", content),
        Ok(content) if file.extension().is_some_and(|it| it == "svg") => ("image/svg+xml", content),
        Ok(content) => ("text/html", content),
        Err(_) => {
            ("application/json", br#"{"key":"k","server":"","groups":[],"items":[],"rows":[],"metadata":{}}"#.to_vec())
        }
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        content.len()
    )?;
    stream.write_all(&content)
}

fn feed(mut stream: TcpStream) -> std::io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n")?;
    for start in (0..NODES).step_by(1_000) {
        let nodes: Vec<_> = (start..start + 1_000).map(node).collect();
        writeln!(stream, "{}", json!({"nodes": nodes}))?;
    }
    for start in (0..PODS).step_by(2_000) {
        let pods: Vec<_> = (start..start + 2_000).map(|at| pod(at, 0)).collect();
        writeln!(stream, "{}", json!({"pods": pods}))?;
    }
    writeln!(stream, "{}", json!({"synced": true}))?;
    for change in 1..=LINES {
        // The load that is measured has a rate.
        std::thread::sleep(Duration::from_millis(100));
        let pods: Vec<_> = (0..50).map(|at| pod((at * 991 + change * 50) % PODS, change)).collect();
        writeln!(stream, "{}", json!({"pods": pods}))?;
    }
    let gone: Vec<String> = (0..1_000).map(|at| format!("default/pod-{at}")).collect();
    writeln!(stream, "{}", json!({"gone": {"pods": gone}}))?;
    // The page keeps its stream until the browser ends.
    let _ = stream.read(&mut [0])?;
    Ok(())
}

#[test]
fn map_follows_500_changes_a_second() {
    let Some(browser) = Browser::start() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/#code=any", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(stream));
        }
    });
    browser.open(&url);
    browser.see("Why pending");
    browser.go("#/map");
    browser.wait("document.querySelector('.map-holder')?.dataset.firstPicture");
    browser.run(
        "window.frames_ = []; let last = performance.now(); const frame = (now) => { window.frames_.push(now - last); last = now; requestAnimationFrame(frame); }; \
         requestAnimationFrame(frame); document.querySelector('.map-holder').dataset.frameMax = '0'",
    );
    browser.see("5,000 nodes, 49,000 pods");
    let measured = browser.run(
        "const all = [...window.frames_].sort((a, b) => a - b); const at = (part) => Math.round(all[Math.floor((all.length - 1) * part)] * 10) / 10; \
         const map = document.querySelector('.map-holder').dataset; \
         return {frames: all.length, medianMs: at(0.5), p99Ms: at(0.99), maxMs: at(1), drawingMaxMs: Number(map.frameMax), firstPictureMs: Number(map.firstPicture), \
         elements: document.querySelectorAll('*').length}",
    );
    eprintln!("{measured}");
    assert!(measured["elements"].as_i64().unwrap() < 2_000, "{measured}");
}
