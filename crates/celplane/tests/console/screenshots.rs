//! Pictures of every page, as the documentation shows them. `cargo xtask screenshots` sets `CELPLANE_SCREENSHOTS` to keep them.

use base64::Engine as _;
use serde_json::json;

use super::ready_with;

/// File, page, condition, width, theme.
const PICTURES: [(&str, &str, &str, u32, &str); 8] = [
    ("why", "#/why/default/trainer", "document.querySelector('.plugins')", 1280, "light"),
    ("why-dark", "#/why/default/square", "document.querySelector('.picture svg')", 1280, "dark"),
    (
        "map",
        "#/map",
        "document.querySelector('.map-list button') && (document.querySelector('.map-list button').click(), true)",
        1280,
        "light",
    ),
    ("playground", "#/playground", "document.querySelector('.parts')", 1280, "light"),
    (
        "simulate",
        "#/simulate",
        "document.querySelector('form.form option') && (document.querySelector('form.form').requestSubmit(), true)",
        1280,
        "light",
    ),
    ("resources", "#/resources/v1/pods", "document.querySelector('.grid td')", 1280, "light"),
    ("yaml", "#/resources/v1/pods/default/big", "document.querySelector('.yaml')", 1280, "light"),
    ("phone", "#/why/default/trainer", "document.querySelector('.plugins')", 390, "light"),
];

#[test]
fn pictures_of_every_page_are_taken() {
    let Some((cluster, _served, browser)) = ready_with("24") else { return };
    cluster.kubectl(&["scale", "deployment", "web", "--replicas=160"], "");
    cluster.kubectl(&["wait", "--for=condition=Available", "deployment/web", "--timeout=60s"], "");
    for (nodes, labels) in [
        (4..14, ["topology.kubernetes.io/zone=east-1", "pool=gpu"]),
        (14..24, ["topology.kubernetes.io/zone=west-2", "pool=general"]),
    ] {
        let names: Vec<String> = nodes.map(|node| format!("node-{node}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        cluster.kubectl(&[&["label", "node"], names.as_slice(), &labels].concat(), "");
    }
    let directory = std::env::var_os("CELPLANE_SCREENSHOTS").map(std::path::PathBuf::from);
    for (name, page, condition, width, theme) in PICTURES {
        // The first picture also shows the values of sub-expressions.
        let height = if name == "why" { 1040 } else { 800 };
        browser.look(width, height, theme);
        browser.go(page);
        browser.wait(condition);
        if name == "simulate" {
            browser.see("Pending after the change");
        }
        // Two frames later everything is drawn.
        browser.run_async("const done = arguments[arguments.length - 1]; requestAnimationFrame(() => requestAnimationFrame(() => done(1)))");
        let picture = browser.command("Page.captureScreenshot", json!({"format": "webp", "quality": 85}));
        let picture = base64::engine::general_purpose::STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
        assert!(
            picture.starts_with(b"RIFF") && (4_000..=150_000).contains(&picture.len()),
            "{name}: {} bytes",
            picture.len()
        );
        if let Some(directory) = &directory {
            std::fs::write(directory.join(format!("{name}.webp")), picture).unwrap();
        }
    }
}
