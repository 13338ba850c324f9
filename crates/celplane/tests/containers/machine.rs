//! A machine for real containers: a separate mount and network namespace, in which `celplane up --runtime
//! containerd` runs. Everything in it ends with the test.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use super::image;

/// Programs, and files with their paths. `cargo xtask test` reads the same list.
const NEEDED: &str = include_str!("needed.txt");
/// Prepares the namespaces, then waits: they live as long as this process. The arguments are the machine's name and the
/// directory of device descriptions.
const HOLDER: &str = "hostname $0 && mkdir -p /run/cdi && mount --make-rshared / && mount --bind $1 /run/cdi && mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && ip link set lo up && \
    ip link add node0 type veth peer name node0p && ip link set node0p up && ip addr add 192.168.77.1/24 dev node0 && \
    ip link set node0 up && ip route add default via 192.168.77.254 dev node0 && echo 1 > /proc/sys/net/ipv4/ip_forward && \
    echo ready && exec sleep 1000000";

/// Number of machines that this process has started.
static MACHINES: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// A machine, emptied and ended when dropped.
pub(super) struct Machine {
    holder: Child,
    control_plane: Option<Child>,
    agent: Option<Child>,
    directory: tempfile::TempDir,
    /// Flags of the control plane.
    flags: &'static [&'static str],
    /// The name of the machine and of its node.
    pub(super) name: String,
}

/// Files of a node agent's identity.
pub(super) struct Credentials {
    pub(super) kubeconfig: String,
    pub(super) certificate: String,
    pub(super) key: String,
}

/// Whether containers can run here. Where they must, a missing program is a failure.
fn is_possible() -> bool {
    let directories = ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> =
        std::env::split_paths(&path).chain(directories.into_iter().map(PathBuf::from)).collect();
    // The path of a file replaces that of a directory.
    let has = |name: &&str| directories.iter().any(|directory| directory.join(name).is_file());
    let mut missing: Vec<&str> = NEEDED.lines().filter(|name| !has(name)).collect();
    if !rustix::process::geteuid().is_root() {
        missing.push("root");
    }
    let namespaces = Command::new("unshare").args(["-m", "-n", "true"]).stderr(Stdio::null()).status();
    if !namespaces.is_ok_and(|status| status.success()) {
        missing.push("the right to make namespaces");
    }
    if missing.is_empty() {
        return true;
    }
    let is_required = std::env::var("CELPLANE_REQUIRE_CONTAINERS").as_deref() == Ok("1");
    assert!(!is_required, "containers cannot run, missing: {missing:?}");
    eprintln!("skipped: containers cannot run, missing: {missing:?}");
    false
}

impl Machine {
    pub(super) fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// Starts a machine; the control plane has more flags.
    pub(super) fn start_with(flags: &'static [&'static str]) -> Option<Self> {
        if !is_possible() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        // Machines of all tests have their own cgroups, in one process and in several.
        let number = MACHINES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("machine-{}-{number}", std::process::id());
        let cdi = directory.path().join("cdi");
        std::fs::create_dir(&cdi).unwrap();
        let mut holder = Command::new("unshare")
            .args(["-m", "-n", "-u", "--propagation", "slave", "sh", "-c", HOLDER, &name])
            .arg(&cdi)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut machine = Self { holder, control_plane: None, agent: None, directory, flags, name };
        assert_eq!(line, "ready\n", "the namespaces cannot be made");
        machine.up();
        let pause = machine.path("pause.tar");
        image::busybox(&pause, "registry.k8s.io/pause:3.10", r#"{"Entrypoint":["/bin/busybox","sleep","1000000"]}"#);
        let busybox = machine.path("busybox.tar");
        image::busybox(&busybox, "registry.local/busybox:1", r#"{"Cmd":["sh"],"Env":["PATH=/bin"]}"#);
        machine.import_images(&machine.path("data/containerd/containerd.sock"));
        Some(machine)
    }

    /// Gives the images of pods to a runtime.
    pub(super) fn import_images(&self, socket: &Path) {
        let socket = socket.display().to_string();
        for archive in ["pause.tar", "busybox.tar"] {
            let archive = self.path(archive).display().to_string();
            self.run("ctr", &["-a", &socket, "-n", "k8s.io", "image", "import", &archive]);
        }
    }

    /// A file of the machine's directory.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts the control plane with its node and waits until it is ready.
    pub(super) fn up(&mut self) {
        let data = self.path("data").display().to_string();
        let binary = env!("CARGO_BIN_EXE_celplane");
        let mut child = self
            .command(binary, &["up", "--runtime", "containerd", "--data-dir", &data, "--port", "6443"])
            .args(self.flags)
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        self.control_plane = Some(child);
        let mut said = String::new();
        let is_ready = output.lines().map_while(Result::ok).any(|line| {
            said.push_str(&line);
            line.contains("ready after")
        });
        assert!(is_ready, "{said}");
    }

    /// Issues a certificate of the cluster's authority for a node agent.
    pub(super) fn credentials(&self, node: &str, address: &str) -> Credentials {
        let path = |name: &str| self.path(name).display().to_string();
        let (key, request, certificate) = (path("node.key"), path("node.csr"), path("node.crt"));
        let (subject, extensions) = (format!("/O=system:nodes/CN=system:node:{node}"), path("node.ext"));
        let text = format!("subjectAltName=IP:{address}\nextendedKeyUsage=clientAuth,serverAuth\n");
        std::fs::write(&extensions, text).unwrap();
        let (authority, authority_key) = (path("data/pki/ca.crt"), path("data/pki/ca.key"));
        let script = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout $0 -out $1 -subj $2 && \
            openssl x509 -req -days 1 -in $1 -CA $3 -CAkey $4 -CAcreateserial -extfile $5 -out $6";
        let files =
            [&key, &request, &subject, &authority, &authority_key, &extensions, &certificate].map(String::as_str);
        self.run("sh", &[&["-c", script], &files[..]].concat());
        let kubeconfig = path("node.kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'https://192.168.77.1:6443', certificate-authority: {authority}}}}}]\n\
             users: [{{name: u, user: {{client-certificate: {certificate}, client-key: {key}}}}}]\n"
        );
        std::fs::write(&kubeconfig, text).unwrap();
        Credentials { kubeconfig, certificate, key }
    }

    /// Starts a node agent in a process of its own, with a certificate of the cluster's authority.
    pub(super) fn start_agent(&mut self, node: &str, port: u16) {
        let path = |name: &str| self.path(name).display().to_string();
        let Credentials { kubeconfig, certificate, key } = self.credentials(node, "192.168.77.1");
        std::fs::create_dir_all(self.path("second")).unwrap();
        self.run("mount", &["-t", "tmpfs", "-o", "size=64m", "tmpfs", &path("second")]);
        let socket = format!("unix://{}", path("data/containerd/containerd.sock"));
        // Below the machine's own cgroup, with which it is removed.
        let cgroup = format!("/celplane-{}/{node}", self.name);
        let (root, logs, port) = (path("second"), path("second-logs"), port.to_string());
        let arguments: &[&str] = &[
            "kubelet",
            "--kubeconfig",
            &kubeconfig,
            "--hostname-override",
            node,
            "--container-runtime-endpoint",
            &socket,
            "--root-dir",
            &root,
            "--pod-logs-dir",
            &logs,
            "--node-ip",
            "192.168.77.1",
            "--port",
            &port,
            "--cgroup-root",
            &cgroup,
            "--tls-cert-file",
            &certificate,
            "--tls-private-key-file",
            &key,
            "--secure-port",
            "0",
            "--cluster-dns",
            "10.96.0.10",
            // The agent's files are on a small disk of their own.
            "--eviction-hard",
            "memory.available<10Mi,nodefs.available<40%",
            "--eviction-pressure-transition-period",
            "1s",
        ];
        let child =
            self.command(env!("CARGO_BIN_EXE_celplane"), arguments).stdout(Stdio::null()).process_group(0).spawn();
        self.agent = Some(child.unwrap());
    }

    /// Ends the second node agent.
    pub(super) fn end_agent(&mut self) {
        for id in self.processes("--hostname-override") {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        self.agent.take().unwrap().wait().unwrap();
    }

    /// Kills containerd alone.
    pub(super) fn kill_runtime(&self) {
        for id in self.processes("containerd\0--config") {
            rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
        }
    }

    /// A file of the cgroup of a pod, by its names in cgroup v1 and v2.
    pub(super) fn pod_cgroup(&self, class: &str, uid: &str, names: [&str; 2]) -> String {
        let below = format!("celplane-{}/kubepods/{class}/pod{uid}", self.name);
        let mount = Path::new("/sys/fs/cgroup");
        let paths = [
            mount.join(names[0].split('.').next().unwrap()).join(&below).join(names[0]),
            mount.join(&below).join(names[1]),
        ];
        let read = paths.iter().find_map(|path| std::fs::read_to_string(path).ok());
        read.unwrap_or_else(|| panic!("no file of {paths:?}")).trim().to_owned()
    }

    /// Kills the control plane and its containerd.
    pub(super) fn kill(&mut self) {
        for id in self.processes("/celplane") {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
        }
        for id in self.processes("containerd\0--config") {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
        }
        self.control_plane.take().unwrap().wait().unwrap();
    }

    /// A command in the namespaces.
    pub(super) fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.holder.id().to_string(), "-m", "-n", "-u", "--", program]).args(arguments);
        command
    }

    /// Standard output of a command that must succeed.
    #[track_caller]
    pub(super) fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program, arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {text}\n{}", self.report());
        String::from_utf8(output.stdout).unwrap()
    }

    fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let kubeconfig = self.path("data/admin.kubeconfig").display().to_string();
        self.command("kubectl", &[&["--kubeconfig", kubeconfig.as_str()], arguments].concat())
    }

    /// Standard output of a `kubectl` that must succeed.
    #[track_caller]
    pub(super) fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.kubectl_command(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments:?}: {text}\n{}", self.report());
        String::from_utf8(output.stdout).unwrap()
    }

    /// The whole outcome of a `kubectl`, with `input` on standard input.
    pub(super) fn try_kubectl(&self, arguments: &[&str], input: &str) -> Output {
        outcome(self.kubectl_command(arguments), input)
    }

    /// The whole outcome of a `kubectl` whose standard streams are a terminal, in which `input` is typed.
    pub(super) fn kubectl_in_terminal(&self, arguments: &str, input: &str) -> Output {
        let kubeconfig = self.path("data/admin.kubeconfig").display().to_string();
        let line = format!("kubectl --kubeconfig {kubeconfig} {arguments}");
        outcome(self.command("script", &["-q", "-e", "-c", &line, "/dev/null"]), input)
    }

    /// Starts a program in the namespaces, which ends with the machine.
    pub(super) fn start_beside(&self, program: &Path, arguments: &[&str]) -> Child {
        self.command(&program.display().to_string(), arguments).stdout(Stdio::null()).spawn().unwrap()
    }

    /// Creates objects from YAML.
    #[track_caller]
    pub(super) fn apply(&self, manifests: &str) {
        let output = self.try_kubectl(&["apply", "-f", "-"], manifests);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Waits until a condition of `kubectl wait` holds.
    #[track_caller]
    pub(super) fn wait(&self, what: &str, condition: &str) {
        self.kubectl(&["wait", what, &format!("--for={condition}"), "--timeout=90s"]);
    }

    /// A `kubectl` that runs beside the test, and its standard output.
    pub(super) fn beside(&self, arguments: &[&str]) -> (Child, BufReader<std::process::ChildStdout>) {
        let mut child = self.kubectl_command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        (child, output)
    }

    /// Everything of pods that is left: directories, shims, mounts and cgroups.
    pub(super) fn remains(&self) -> Vec<String> {
        let shown = |path: PathBuf| path.display().to_string();
        let directories = std::fs::read_dir(self.path("data/kubelet/pods")).into_iter().flatten().flatten();
        let mut all: Vec<String> = directories.map(|entry| shown(entry.path())).collect();
        all.extend(self.processes("containerd-shim").iter().map(|id| format!("shim {}", id.as_raw_nonzero())));
        let own = ["data/kubelet/pods/", "data/containerd/state/"].map(|name| shown(self.path(name)));
        let mounts = self.run("cat", &["/proc/self/mounts"]);
        let mounts = mounts.lines().filter(|line| own.iter().any(|it| line.contains(it.as_str())));
        all.extend(mounts.map(|line| format!("mount {line}")));
        let mount = Path::new("/sys/fs/cgroup");
        let hierarchies = std::fs::read_dir(mount).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut parents: Vec<PathBuf> = hierarchies
            .chain([mount.to_owned()])
            .map(|it| it.join(format!("celplane-{}/kubepods", self.name)))
            .collect();
        while let Some(parent) = parents.pop() {
            for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    match entry.file_name().to_string_lossy().starts_with("pod") {
                        true => all.push(shown(entry.path())),
                        false => parents.push(entry.path()),
                    }
                }
            }
        }
        all
    }

    /// Details for a failure.
    fn report(&self) -> String {
        let list = |arguments: &[&str]| {
            let output = self.kubectl_command(arguments).output().unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let log = std::fs::read_to_string(self.path("data/containerd/containerd.log")).unwrap_or_default();
        let errors: Vec<&str> = log.lines().filter(|line| line.contains("level=error")).rev().take(5).collect();
        let objects = list(&["get", "pods", "-A", "-o", "wide"]);
        let events = list(&["get", "events", "--sort-by=.metadata.creationTimestamp"]);
        format!("{objects}\n{events}\n{errors:#?}")
    }

    /// Processes whose command line names this machine's directory and `part`.
    pub(super) fn processes(&self, part: &str) -> Vec<rustix::process::Pid> {
        let own = self.directory.path().display().to_string();
        let named = |id: &i32| {
            let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            line.contains(&own) && line.contains(part)
        };
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let ids = all.filter_map(|entry| entry.file_name().to_string_lossy().parse::<i32>().ok());
        ids.filter(named).filter_map(rustix::process::Pid::from_raw).collect()
    }
}

/// Runs a command with an input, and returns its whole outcome.
fn outcome(mut command: Command, input: &str) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_owned());
    let writer = std::thread::spawn(move || {
        // A command that ends before it has read everything is its own failure.
        let _ = stdin.write_all(input.as_bytes());
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

impl Drop for Machine {
    fn drop(&mut self) {
        // First the parents of processes, then their shims, then the namespaces.
        for part in ["/celplane", "containerd\0--config", ""] {
            for id in self.processes(part) {
                let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
            }
        }
        for mut child in self.control_plane.take().into_iter().chain(self.agent.take()) {
            let _ = child.wait();
        }
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        remove_cgroups(&format!("celplane-{}", self.name));
    }
}

/// Removes the cgroups of a machine's node: they are empty once its processes have ended. Other machines have other names.
pub(super) fn remove_cgroups(name: &str) {
    fn remove(path: &Path) {
        if !path.exists() {
            return;
        }
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                remove(&entry.path());
            }
        }
        // Processes of containers outlive their shims.
        let processes = std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
        for id in processes.lines().filter_map(|line| line.parse().ok()).filter_map(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
        }
        // The kernel takes a moment to remove killed processes.
        for _ in 0..20 {
            if std::fs::remove_dir(path).is_ok() || !path.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let mount = Path::new("/sys/fs/cgroup");
    let hierarchies = std::fs::read_dir(mount).into_iter().flatten().flatten().map(|entry| entry.path());
    for hierarchy in hierarchies.chain([mount.to_owned()]) {
        remove(&hierarchy.join(name));
    }
}
