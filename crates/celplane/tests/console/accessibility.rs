//! axe-core on every page, light and dark, wide and narrow. The test command fetches it; `CELPLANE_AXE` names its file.

use serde_json::Value;

use super::ready;

const PAGES: [(&str, &str); 7] = [
    ("#/why/default/trainer", "document.querySelector('.plugins')"),
    ("#/map", "document.querySelector('.map-list button')"),
    ("#/playground", "document.querySelector('.parts')"),
    ("#/simulate", "document.querySelector('form.form option')"),
    ("#/resources/v1/pods", "document.querySelector('.grid td')"),
    ("#/resources/v1/pods/default/big", "document.querySelector('.yaml')"),
    ("#/resources/apps%2Fv1/deployments", "document.querySelector('.grid td')"),
];

#[test]
fn axe_finds_nothing_serious() {
    let Some(path) = std::env::var_os("CELPLANE_AXE") else {
        assert_ne!(std::env::var("CELPLANE_REQUIRE_BROWSER").as_deref(), Ok("1"), "CELPLANE_AXE names no file");
        eprintln!("skipped: CELPLANE_AXE names no file");
        return;
    };
    let axe = std::fs::read_to_string(path).unwrap();
    let Some((_cluster, _served, browser)) = ready() else { return };
    let mut findings = Vec::new();
    for (width, theme) in [(1440, "light"), (1440, "dark"), (390, "light"), (390, "dark")] {
        browser.look(width, 900, theme);
        for (page, condition) in PAGES {
            browser.go(page);
            browser.wait(condition);
            browser.run(&axe);
            let found = browser.run_async(
                "const done = arguments[arguments.length - 1]; axe.run(document, {resultTypes: ['violations']}).then((it) => done(it.violations.filter((v) => v.impact === 'serious' || v.impact === 'critical').map((v) => v.id + ': ' + v.nodes.slice(0, 3).map((n) => n.html).join(' | '))), (e) => done([String(e)]))",
            );
            findings.extend(found.as_array().unwrap().iter().map(|it: &Value| format!("{width} {theme} {page}: {it}")));
            // A page that is wider than the screen cannot be read on a phone.
            let overflow =
                browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth");
            if overflow.as_i64() > Some(1) {
                findings.push(format!("{width} {theme} {page}: {overflow} pixels too wide"));
            }
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
