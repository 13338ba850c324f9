//! Upstream's programs and ours, as processes on loopback.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(200);
/// The namespace of the manifests.
const NAMESPACE: &str = "celplane-system";

/// A running cluster; its processes end when dropped.
pub(crate) struct Cluster {
    directory: PathBuf,
    programs: PathBuf,
    celplane: PathBuf,
    processes: RefCell<Vec<(String, Child)>>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (_, child) in self.processes.borrow_mut().iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The output of a command that runs until this is dropped.
pub(crate) struct FollowedCommand {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl FollowedCommand {
    /// Reads one line, which must be this one.
    pub(crate) fn expect(&mut self, expected: &str) -> Result<()> {
        let line = self.lines.next().context("the output ended")??;
        ensure!(line == expected, "expected `{expected}`, not `{line}`");
        Ok(())
    }
}

impl Drop for FollowedCommand {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Users with static tokens: name of the kubeconfig, user, groups.
const USERS: [(&str, &str, &str); 3] = [
    ("admin", "admin", "system:masters"),
    ("kube-controller-manager", "system:kube-controller-manager", ""),
    ("kube-scheduler", "system:kube-scheduler", ""),
];

impl Cluster {
    /// Starts upstream's programs and simulated nodes.
    pub(crate) fn start(programs: &Path, celplane: &Path, directory: &Path) -> Result<Self> {
        let cluster = Self {
            directory: directory.to_owned(),
            programs: programs.to_owned(),
            celplane: celplane.to_owned(),
            processes: RefCell::default(),
        };
        cluster.certificates()?;
        let mut tokens = String::new();
        for (name, user, groups) in USERS {
            tokens.push_str(&format!("token-of-{name},{user},{name},\"{groups}\"\n"));
            cluster.write_kubeconfig(name, &format!("token-of-{name}"))?;
        }
        std::fs::write(directory.join("tokens.csv"), tokens)?;
        cluster.start_etcd()?;
        cluster.start_apiserver()?;
        cluster.start_controllers()?;
        cluster.start_kube_scheduler()?;
        cluster.role("kubelet", "admin", &["kubelet", "--nodes", "3", "--adopt-nodes", "!real"])?;
        cluster.until("three nodes are ready", || {
            Ok(cluster.kubectl(&["get", "nodes"], "")?.matches(" Ready ").count() == 3)
        })?;
        cluster.until("the account `default` exists", || {
            Ok(cluster.run(&["get", "serviceaccount", "default"], "")?.status.success())
        })?;
        Ok(cluster)
    }

    fn certificates(&self) -> Result<()> {
        let openssl = |arguments: &str| -> Result<()> {
            let output = Command::new("openssl").args(arguments.split(' ')).current_dir(&self.directory).output()?;
            ensure!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
            Ok(())
        };
        std::fs::write(
            self.directory.join("names"),
            "subjectAltName=DNS:localhost,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:198.18.0.1,IP:10.96.0.1\n",
        )?;
        openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=throwaway",
        )?;
        openssl(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out server.csr -subj /CN=kube-apiserver",
        )?;
        openssl(
            "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 2 -extfile names",
        )?;
        openssl("ecparam -genkey -name prime256v1 -noout -out accounts.key")
    }

    fn write_kubeconfig(&self, name: &str, token: &str) -> Result<()> {
        let authority = self.directory.join("ca.crt");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:6443', certificate-authority: '{}'}}}}]\n\
             users: [{{name: u, user: {{token: '{token}'}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n",
            authority.display()
        );
        Ok(std::fs::write(self.kubeconfig(name), text)?)
    }

    pub(crate) fn kubeconfig(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.kubeconfig"))
    }

    /// Starts a process whose output goes to `NAME.log`.
    fn spawn(&self, name: &str, command: &mut Command) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.directory.join(format!("{name}.log")))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        self.processes.borrow_mut().push((name.to_owned(), child));
        Ok(())
    }

    /// Ends a process at once.
    pub(crate) fn kill(&self, name: &str) -> Result<()> {
        let mut processes = self.processes.borrow_mut();
        let index = processes.iter().position(|(known, _)| known == name);
        let (_, mut child) = processes.remove(index.with_context(|| format!("{name} does not run"))?);
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    fn start_etcd(&self) -> Result<()> {
        // Streams of lists need an etcd of 3.4.25 or later; Debian's may be older.
        let own = self.programs.join("etcd");
        let mut etcd = Command::new(if own.is_file() { own.as_os_str() } else { OsStr::new("etcd") });
        etcd.arg("--data-dir").arg(self.directory.join("etcd"));
        self.spawn("etcd", etcd.arg("--unsafe-no-fsync"))
    }

    fn start_apiserver(&self) -> Result<()> {
        let file = |name: &str| self.directory.join(name).display().to_string();
        let mut server = Command::new(self.programs.join("kube-apiserver"));
        server.args([
            "--etcd-servers=http://127.0.0.1:2379",
            "--bind-address=127.0.0.1",
            "--secure-port=6443",
            "--advertise-address=198.18.0.1",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
        ]);
        for (flag, name) in [
            ("tls-cert-file", "server.crt"),
            ("tls-private-key-file", "server.key"),
            ("client-ca-file", "ca.crt"),
            ("token-auth-file", "tokens.csv"),
            ("service-account-key-file", "accounts.key"),
            ("service-account-signing-key-file", "accounts.key"),
        ] {
            server.arg(format!("--{flag}={}", file(name)));
        }
        self.spawn("kube-apiserver", &mut server)?;
        self.until("kube-apiserver is ready", || Ok(self.run(&["get", "--raw", "/readyz"], "")?.status.success()))
    }

    pub(crate) fn start_kube_scheduler(&self) -> Result<()> {
        let kubeconfig = self.kubeconfig("kube-scheduler");
        let mut scheduler = Command::new(self.programs.join("kube-scheduler"));
        for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
            scheduler.arg(format!("--{flag}={}", kubeconfig.display()));
        }
        self.spawn("kube-scheduler", scheduler.args(["--leader-elect=false", "--bind-address=127.0.0.1"]))
    }

    pub(crate) fn start_controllers(&self) -> Result<()> {
        let kubeconfig = self.kubeconfig("kube-controller-manager");
        let mut manager = Command::new(self.programs.join("kube-controller-manager"));
        for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
            manager.arg(format!("--{flag}={}", kubeconfig.display()));
        }
        manager.arg(format!("--service-account-private-key-file={}", self.directory.join("accounts.key").display()));
        manager.arg(format!("--root-ca-file={}", self.directory.join("ca.crt").display()));
        // Clients of the default 20 requests per second create no load.
        manager.args([
            "--kube-api-qps=500",
            "--kube-api-burst=500",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
        ]);
        self.spawn("kube-controller-manager", manager.arg("--use-service-account-credentials"))
    }

    /// Starts a role of ours with a kubeconfig.
    pub(crate) fn role(&self, name: &str, user: &str, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.celplane);
        command.args(arguments).arg("--kubeconfig").arg(self.kubeconfig(user));
        self.spawn(name, command.args(["--secure-port", "0"]))
    }

    /// The output of `celplane` with the administrator's kubeconfig.
    pub(crate) fn celplane(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.celplane);
        let output = command.args(arguments).env("KUBECONFIG", self.kubeconfig("admin")).output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "celplane {}: {errors}", arguments.join(" "));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Starts `celplane` with the administrator's kubeconfig, for its output line by line.
    pub(crate) fn follow(&self, arguments: &[&str]) -> Result<FollowedCommand> {
        let mut command = Command::new(&self.celplane);
        command.args(arguments).env("KUBECONFIG", self.kubeconfig("admin"));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("the output is a pipe")?).lines();
        Ok(FollowedCommand { child, lines })
    }

    /// Runs `kubectl` as the administrator.
    pub(crate) fn run(&self, arguments: &[&str], input: &str) -> Result<Output> {
        let mut child = Command::new("kubectl")
            .args(arguments)
            .env("KUBECONFIG", self.kubeconfig("admin"))
            .env("KUBECACHEDIR", self.directory.join("cache"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run `kubectl`")?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes())?;
        }
        Ok(child.wait_with_output()?)
    }

    /// The output of `kubectl`, which must succeed.
    pub(crate) fn kubectl(&self, arguments: &[&str], input: &str) -> Result<String> {
        let output = self.run(arguments, input)?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {}: {}", arguments.join(" "), errors.trim_end());
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The error output of `kubectl`, which must fail and contain a text.
    pub(crate) fn refused(&self, arguments: &[&str], input: &str, expected: &str) -> Result<()> {
        let output = self.run(arguments, input)?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success(), "kubectl {} succeeded", arguments.join(" "));
        ensure!(errors.contains(expected), "expected `{expected}`, not `{}`", errors.trim_end());
        Ok(())
    }

    pub(crate) fn apply(&self, manifests: &str) -> Result<()> {
        self.kubectl(&["apply", "-f", "-"], manifests).map(drop)
    }

    /// The items of a list.
    pub(crate) fn items(&self, arguments: &[&str]) -> Result<Vec<Value>> {
        let text = self.kubectl(&[&["get", "-o", "json"], arguments].concat(), "")?;
        let mut list: Value = serde_json::from_str(&text)?;
        match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(items),
            _ => Ok(vec![list]),
        }
    }

    /// Waits until a condition holds.
    pub(crate) fn until(&self, condition: &str, holds: impl Fn() -> Result<bool>) -> Result<()> {
        let started = Instant::now();
        loop {
            let last = holds();
            if matches!(last, Ok(true)) {
                return Ok(());
            }
            if started.elapsed() > LIMIT {
                last?;
                bail!("not within {LIMIT:?}: {condition}");
            }
            for (name, child) in self.processes.borrow_mut().iter_mut() {
                if let Some(status) = child.try_wait()? {
                    bail!("{name} ended: {status}");
                }
            }
            sleep(PAUSE);
        }
    }

    /// The version of the API server.
    pub(crate) fn version(&self) -> Result<String> {
        let version: Value = serde_json::from_str(&self.kubectl(&["get", "--raw", "/version"], "")?)?;
        Ok(text(&version, "/gitVersion").to_owned())
    }

    fn manifests(&self) -> Result<String> {
        self.celplane(&["webhook", "install", "--image", "example.com/celplane:1", "--assign-scheduler"])
    }

    /// Applies the manifests, and runs what their Deployments would under the same accounts: simulated nodes run no images.
    pub(crate) fn install(&self) -> Result<String> {
        self.apply(&self.manifests()?)?;
        for account in ["celplane-scheduler", "celplane-toleration-resolver", "celplane-webhook"] {
            let token = self.kubectl(&["create", "token", account, "-n", NAMESPACE, "--duration", "4h"], "")?;
            self.write_kubeconfig(account, token.trim())?;
        }
        self.start_scheduler()?;
        let resolver = [
            "controller-manager",
            "--controllers",
            "toleration-resolver",
            "--placement-annotations",
            "--leader-elect=false",
        ];
        self.role("resolver", "celplane-toleration-resolver", &resolver)?;
        self.start_webhook()?;
        let lease = ["get", "lease", "-n", NAMESPACE, "celplane-scheduler"];
        self.until("the scheduler leads", || Ok(self.run(&lease, "")?.status.success()))?;
        let bundle = [
            "get",
            "validatingwebhookconfiguration",
            "celplane-placement",
            "-o",
            "jsonpath={.webhooks[*].clientConfig.caBundle}",
        ];
        self.until("the webhook has a certificate", || Ok(!self.kubectl(&bundle, "")?.is_empty()))?;
        Ok("applied; scheduler, resolver and webhook run under its accounts".to_owned())
    }

    pub(crate) fn start_scheduler(&self) -> Result<()> {
        self.start_scheduler_for("celplane")
    }

    /// Starts our scheduler under this name.
    pub(crate) fn start_scheduler_for(&self, name: &str) -> Result<()> {
        let arguments = [
            "scheduler",
            "--scheduler-name",
            name,
            "--placement-annotations",
            "--leader-elect-resource-namespace",
            NAMESPACE,
        ];
        self.role("scheduler", "celplane-scheduler", &arguments)
    }

    pub(crate) fn start_webhook(&self) -> Result<()> {
        self.start_webhook_for("celplane")
    }

    /// Starts the webhook for the scheduler of this name.
    pub(crate) fn start_webhook_for(&self, scheduler: &str) -> Result<()> {
        let arguments = [
            "webhook",
            "--namespace",
            NAMESPACE,
            "--scheduler-names",
            scheduler,
            "--assign-scheduler",
            "--listen",
            "0.0.0.0:443",
        ];
        self.role("webhook", "celplane-webhook", &arguments)
    }

    /// Deletes the manifests, and looks through every resource for leftovers.
    pub(crate) fn remove(&self) -> Result<String> {
        for name in ["scheduler", "resolver", "webhook"] {
            // A part may have ended one already.
            let _ = self.kill(name);
        }
        self.kubectl(&["delete", "--ignore-not-found", "-f", "-"], &self.manifests()?)?;
        let kinds = self.kubectl(&["api-resources", "--verbs=list", "-o", "name"], "")?;
        let kinds: Vec<&str> = kinds.lines().filter(|kind| !kind.starts_with("events")).collect();
        let found = self.kubectl(&["get", "-A", "-o", "name", &kinds.join(",")], "")?;
        let left: Vec<&str> = found.lines().filter(|line| line.contains("celplane")).collect();
        ensure!(left.is_empty(), "left over: {}", left.join(", "));
        Ok(format!("nothing left in {} resources", kinds.len()))
    }
}

/// The text at a path, empty without it.
pub(crate) fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
