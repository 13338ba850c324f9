//! Every page shows what the cluster has, also by keyboard alone.

use super::ready;

/// WebDriver's code of a key.
const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";
const DOWN: &str = "\u{e015}";
const RIGHT: &str = "\u{e014}";

#[test]
fn pages_show_a_live_cluster() {
    let Some((cluster, _served, browser)) = ready() else { return };
    // Why pending: the verdict, the taint with its sub-expressions, and the change that would help.
    browser.see("trainer");
    browser.go("#/why/default/trainer");
    browser.see("No node fits");
    browser.see("Any one of these changes would help");
    browser.see("gpu.example.com/generation=6:NoSchedule");
    browser.see("int(taint.value) >= 5");
    browser.go("#/why/default/square");
    browser.see("class mla.example.com selector #0");
    browser.wait("document.querySelector('.picture svg').getAttribute('aria-label').includes('drawn as grid')");
    // Live: a label lets the pod run, and it leaves the list.
    browser.go("#/why/default/trainer");
    browser.see("No node fits");
    cluster.kubectl(&["label", "node", "node-1", "disk=ssd"], "");
    browser.wait(
        "![...document.querySelectorAll('.side .card-title')].some((it) => it.textContent.startsWith('trainer'))",
    );
    browser.go("#/why/node/node-0");
    browser.see("pending pods are kept away by this node");
    // Resources: tables, YAML without values of Secrets, related objects, events, logs.
    browser.go("#/resources/v1/pods");
    browser.wait("[...document.querySelectorAll('.grid td a')].some((it) => it.textContent.startsWith('web-'))");
    // Secrets cannot be watched through the console: the table is read again instead, without an error.
    browser.go("#/resources/v1/secrets");
    browser.wait("[...document.querySelectorAll('.grid td a')].some((it) => it.textContent === 'credentials')");
    browser.go("#/resources/v1/secrets/default/credentials");
    browser.see("password: <hidden>");
    assert_eq!(browser.run("return document.body.innerText.includes('aHVudGVyMg')"), false);
    browser.go("#/resources/v1/services/default/web");
    browser.wait("document.getElementById('tab-related')");
    browser.run("document.getElementById('tab-related').click()");
    browser.see("EndpointSlice");
    browser.go("#/resources/v1/pods/default/big");
    browser.wait("document.querySelector('.yaml') && document.body.innerText.includes('managedFields')");
    browser.run("document.getElementById('tab-events').click()");
    browser.see("FailedScheduling");
    browser.go("#/resources/apps%2Fv1/deployments/default/web");
    browser.wait("document.getElementById('tab-logs')");
    browser.run("document.getElementById('tab-logs').click()");
    browser.wait("document.querySelector('.log') || document.body.innerText.includes('No log lines')");
    // Playground: values of parts, errors under the caret.
    browser.go("#/playground");
    browser.wait("document.querySelector('.parts') && document.querySelector('.facts .v-true')");
    browser.run("const area = document.getElementById('expression'); area.value = 'taint.kee == 1'; area.dispatchEvent(new Event('input'))");
    browser.see("undefined field 'kee'");
    // Simulate.
    browser.go("#/simulate");
    browser.wait("document.querySelector('form.form')");
    browser.run("document.querySelector('form.form').requestSubmit()");
    browser.see("Pending after the change");
    // Map: the list beside it has the nodes, an expression highlights some.
    browser.go("#/map");
    browser.see("4 nodes");
    browser.run("const input = document.querySelector('input[aria-label=Expression]'); input.value = \"node.labels['pool'] == 'gpu'\"; input.dispatchEvent(new Event('input'))");
    browser.see("2 nodes match");
    let errors = browser.errors();
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn pages_work_by_keyboard() {
    let Some((_cluster, _served, browser)) = ready() else { return };
    browser.wait("document.querySelectorAll('.cards .card').length >= 3");
    let focus = |selector: &str| {
        for _ in 0..80 {
            browser.press(&[TAB]);
            if browser.run(&format!("return document.activeElement.matches({})", serde_json::Value::from(selector)))
                == true
            {
                return;
            }
        }
        panic!("{selector} cannot be reached with the Tab key");
    };
    browser.run("document.body.tabIndex = -1; document.body.focus()");
    focus(".skip");
    focus(".cards .card[href$='trainer']");
    browser.press(&[ENTER]);
    browser.see("No node fits");
    focus(".row-head[aria-expanded=false]");
    browser.press(&[ENTER]);
    browser.wait("document.activeElement.getAttribute('aria-expanded') === 'true'");
    // Tabs are moved through with arrows.
    browser.go("#/resources/v1/pods/default/big");
    browser.wait("document.querySelector('.yaml')");
    focus("#tab-yaml");
    browser.press(&[RIGHT]);
    browser.see("FailedScheduling");
    // Completion is offered, and taken, without a pointer.
    browser.go("#/playground");
    browser.wait("document.querySelector('.parts')");
    browser.run("document.getElementById('expression').focus(); document.getElementById('expression').select()");
    browser.press(&["t", "a", "i"]);
    browser.wait("document.querySelector('.offers [aria-selected=true]')");
    browser.press(&[ENTER, "."]);
    browser.wait("[...document.querySelectorAll('.offers .mono')].some((it) => it.textContent === 'key')");
    assert_eq!(browser.run("return document.getElementById('expression').value"), "taint.");
    // The map: arrows choose a node, Enter opens it.
    browser.go("#/map");
    browser.see("4 nodes");
    browser.run("document.querySelector('canvas').focus()");
    browser.press(&[DOWN]);
    browser.wait("document.querySelector('.node-card')");
    browser.press(&[ENTER]);
    browser.wait("location.hash.startsWith('#/resources/v1/nodes')");
}
