//! A real browser, driven over WebDriver with plain HTTP.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part of it")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// Conditions in the page are awaited for this long.
const WAIT_MS: u64 = 90_000;

/// A browser with one window; it ends when dropped.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser; none where there is no chromium, unless `CELPLANE_REQUIRE_BROWSER=1` is set.
    pub fn start() -> Option<Self> {
        let found = |program: &str| Command::new(program).arg("--version").output().is_ok_and(|it| it.status.success());
        if !found("chromium") || !found("chromedriver") {
            let is_required = std::env::var("CELPLANE_REQUIRE_BROWSER").as_deref() == Ok("1");
            assert!(!is_required, "chromium and chromedriver are not installed");
            eprintln!("skipped: chromium or chromedriver is not installed");
            return None;
        }
        let mut driver =
            Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let output = BufReader::new(driver.stdout.take().unwrap());
        let port = output
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok());
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Self { driver, port: port.expect("a port"), session: String::new(), _profile: profile };
        let arguments = json!([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            "--window-size=1440,900",
            format!("--user-data-dir={}", browser._profile.path().display()),
        ]);
        let capabilities = json!({
            "timeouts": {"script": WAIT_MS + 5_000, "pageLoad": 30_000},
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": arguments, "binary": "/usr/bin/chromium"},
        });
        let made = browser.request("POST", "/session", Some(json!({"capabilities": {"alwaysMatch": capabilities}})));
        browser.session = made["sessionId"].as_str().unwrap().to_owned();
        Some(browser)
    }

    fn request(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let length = body.len();
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        let mut reader = BufReader::new(stream);
        let mut expected = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                expected = value.trim().parse().unwrap();
            }
        }
        let mut text = vec![0; expected];
        reader.read_exact(&mut text).unwrap();
        let answer: Value = serde_json::from_slice(&text).unwrap();
        let value = answer["value"].clone();
        assert!(value["error"].is_null(), "{method} {path}: {value}");
        value
    }

    fn call(&self, what: &str, body: Value) -> Value {
        self.request("POST", &format!("/session/{}/{what}", self.session), Some(body))
    }

    /// Opens a page.
    pub fn open(&self, url: &str) {
        self.call("url", json!({"url": url}));
    }

    /// The value of a script's body.
    pub fn run(&self, script: &str) -> Value {
        self.call("execute/sync", json!({"script": script, "args": []}))
    }

    /// The value that a script passes to its last argument.
    pub fn run_async(&self, script: &str) -> Value {
        self.call("execute/async", json!({"script": script, "args": []}))
    }

    /// Waits in the page until an expression is truthy, and returns its value.
    #[track_caller]
    pub fn wait(&self, expression: &str) -> Value {
        let script = format!(
            "const done = arguments[arguments.length - 1]; const end = Date.now() + {WAIT_MS}; \
             const check = () => {{ let value; try {{ value = ({expression}); }} catch {{ value = null; }} \
             if (value) done(value); else if (Date.now() > end) done(null); else setTimeout(check, 40); }}; check();"
        );
        let value = self.call("execute/async", json!({"script": script, "args": []}));
        let is_true = !value.is_null();
        assert!(
            is_true,
            "not true in time: {expression}\npage: {}",
            self.run("return location.hash + '\\n' + document.body.innerText.slice(0, 3000)")
        );
        value
    }

    /// Waits for a text in the page.
    #[track_caller]
    pub fn see(&self, text: &str) {
        self.wait(&format!("document.body.innerText.includes({})", Value::from(text)));
    }

    /// Shows a page of the console.
    pub fn go(&self, hash: &str) {
        self.run(&format!("location.hash = {}", Value::from(hash)));
    }

    /// Presses keys one after another, as WebDriver writes them.
    pub fn press(&self, keys: &[&str]) {
        let actions: Vec<Value> = keys
            .iter()
            .flat_map(|key| [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})])
            .collect();
        self.call("actions", json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]}));
    }

    /// Sends a command to the browser itself, and returns its answer.
    pub fn command(&self, name: &str, parameters: Value) -> Value {
        self.call("goog/cdp/execute", json!({"cmd": name, "params": parameters}))
    }

    /// Sets the size of the page, and light or dark.
    pub fn look(&self, width: u32, height: u32, theme: &str) {
        let is_mobile = width < 500;
        self.command(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_mobile}),
        );
        self.command(
            "Emulation.setEmulatedMedia",
            json!({"features": [{"name": "prefers-color-scheme", "value": theme}]}),
        );
    }

    /// Errors that the page has logged since the last call.
    pub fn errors(&self) -> Vec<String> {
        let log = self.call("se/log", json!({"type": "browser"}));
        let lines = log.as_array().unwrap().iter().filter(|it| it["level"] == "SEVERE");
        lines.map(|it| it["message"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends a browser only with its session. A failing test ends it too, so that nothing here may panic.
        if !self.session.is_empty()
            && let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port))
        {
            let _ = stream.set_read_timeout(Some(std::time::Duration::from_secs(10)));
            let _ = write!(
                stream,
                "DELETE /session/{} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                self.session
            );
            let _ = stream.read_to_end(&mut Vec::new());
        }
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.driver),
            rustix::process::Signal::TERM,
        );
        let _ = self.driver.wait();
    }
}
