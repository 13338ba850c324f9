//! A second machine with a runtime and a node agent of its own, on one network segment with the first one.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::machine::{Credentials, Machine, remove_cgroups};

/// Prepares the namespaces, then waits. The argument is the machine's name.
const HOLDER: &str = "hostname $0 && mount --make-rshared / && mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && ip link set lo up && \
    echo 1 > /proc/sys/net/ipv4/ip_forward && echo ready && exec sleep 1000000";

/// Joins the first machine's link to a bridge in a namespace of its own. Machines must not be bridges of each other's packets: these would pass
/// the rules of the first machine twice.
const SWITCH: &str = "ip netns add switch && ip link set node0p netns switch && ip -n switch link add segment type bridge && \
    ip -n switch link set segment up && ip -n switch link set node0p master segment && ip -n switch link set node0p up";

const ADDRESS: &str = "192.168.77.2";
/// Largest packet of the second machine's link.
const MTU: &str = "1400\n";
const PATIENCE: Duration = Duration::from_secs(90);

const WEB: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: httpd
        image: registry.local/busybox:1
        command: [sh, -c, "mkdir -p /www; echo $(NODE) > /www/index.html; exec httpd -f -p 8080 -h /www"]
        env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
        ports: [{containerPort: 8080, hostPort: 18081}]
        readinessProbe: {httpGet: {port: 8080, path: /index.html}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080, nodePort: 30080}]}
---
apiVersion: v1
kind: Service
metadata: {name: web-pods}
spec: {clusterIP: None, selector: {app: web}, ports: [{name: http, port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {clusterIP: None, selector: {app: db}, ports: [{name: sql, port: 5432}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeName: FIRST
      containers: [{name: c, image: "registry.local/busybox:1", command: [sleep, "1000000"]}]
"#;

/// The second machine, ended when dropped.
struct Second<'m> {
    first: &'m Machine,
    holder: Child,
    children: Vec<Child>,
    name: String,
    directory: PathBuf,
}

impl<'m> Second<'m> {
    fn start(first: &'m Machine) -> Self {
        first.run("sh", &["-c", SWITCH]);
        let (name, directory) = (format!("{}-b", first.name), first.path("b"));
        std::fs::create_dir_all(directory.join("containerd/cni")).unwrap();
        // The same configuration as the first machine's runtime, in another directory.
        let own = std::fs::read_to_string(first.path("data/containerd/config.toml")).unwrap();
        let (from, to) = (first.path("data").display().to_string(), directory.display().to_string());
        std::fs::write(directory.join("containerd/config.toml"), own.replace(&from, &to)).unwrap();
        let mut second = Self { first, holder: hold(&name), children: Vec::new(), name, directory };
        second.boot();
        second.import_images();
        second
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.holder.id().to_string(), "-m", "-n", "-u", "--", program]).args(arguments);
        command
    }

    #[track_caller]
    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program, arguments).output().unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn import_images(&self) {
        self.first.import_images(&self.directory.join("containerd/containerd.sock"));
    }

    /// Connects the machine to the segment, and starts its runtime and agent.
    fn boot(&mut self) {
        // The link of the machine's last run may not be removed yet.
        let plug = "ip -n switch link del port 2> /dev/null; ip -n switch link add port type veth peer name node0 && ip -n switch link set node0 netns $0 && \
            ip -n switch link set port master segment && ip -n switch link set port up";
        self.first.run("sh", &["-c", plug, &self.holder.id().to_string()]);
        let configure =
            "ip addr add $0/24 dev node0 && ip link set node0 mtu 1400 up && ip route add default via 192.168.77.1";
        self.run("sh", &["-c", configure, ADDRESS]);
        let log = std::fs::File::create(self.path("containerd/containerd.log")).unwrap();
        let config = self.path("containerd/config.toml");
        let containerd = self
            .command("containerd", &["--config", &config])
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0)
            .spawn();
        self.children.push(containerd.unwrap());
        let Credentials { kubeconfig, certificate, key } = self.first.credentials(&self.name, ADDRESS);
        let socket = format!("unix://{}", self.path("containerd/containerd.sock"));
        let (root, logs, cni) = (self.path("kubelet"), self.path("logs"), self.path("containerd/cni"));
        let cgroup = format!("/celplane-{}", self.name);
        let flags: [[&str; 2]; 16] = [
            ["--kubeconfig", &kubeconfig],
            ["--hostname-override", &self.name],
            ["--container-runtime-endpoint", &socket],
            ["--root-dir", &root],
            ["--pod-logs-dir", &logs],
            ["--node-ip", ADDRESS],
            ["--cgroup-root", &cgroup],
            ["--tls-cert-file", &certificate],
            ["--tls-private-key-file", &key],
            ["--secure-port", "0"],
            ["--cluster-dns", "10.96.0.10"],
            ["--cni-conf-dir", &cni],
            // The default is read from /sys, which shows the links of the namespace that mounted it.
            ["--pod-mtu", MTU.trim_end()],
            ["--proxy-mode", "nftables"],
            ["--cluster-cidr", "10.244.0.0/16"],
            // The disks of developers are often nearly full.
            ["--eviction-hard", "memory.available<10Mi"],
        ];
        let flags: Vec<&str> = ["kubelet", "--node-routes"].into_iter().chain(flags.into_iter().flatten()).collect();
        let agent = self.command(env!("CARGO_BIN_EXE_celplane"), &flags).stdout(Stdio::null()).process_group(0).spawn();
        self.children.push(agent.unwrap());
        eventually("the runtime answers", || {
            let list = ["-a", &self.path("containerd/containerd.sock"), "version"];
            self.command("ctr", &list).output().unwrap().status.success()
        });
    }

    /// Ends every process at once, with the machine's mounts and network.
    fn cut_power(&mut self) {
        // First the parents of processes, then their shims.
        for part in ["/celplane", "containerd\0--config", ""] {
            for id in self.first.processes(part).into_iter().filter(|id| is_in(*id, self.holder.id())) {
                let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
            }
        }
        remove_cgroups(&format!("celplane-{}", self.name));
        for mut child in self.children.drain(..) {
            let _ = child.wait();
        }
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl Drop for Second<'_> {
    fn drop(&mut self) {
        self.cut_power();
    }
}

fn hold(name: &str) -> Child {
    let mut holder = Command::new("unshare")
        .args(["-m", "-n", "-u", "--propagation", "slave", "sh", "-c", HOLDER, name])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n", "the namespaces cannot be made");
    holder
}

/// Whether a process is in the network namespace of another one.
fn is_in(id: rustix::process::Pid, holder: u32) -> bool {
    let namespace = |id: u32| std::fs::read_link(format!("/proc/{id}/ns/net")).ok();
    u32::try_from(id.as_raw_nonzero().get())
        .is_ok_and(|id| namespace(id).is_some() && namespace(id) == namespace(holder))
}

#[track_caller]
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Pods of two machines reach each other, Services and names.
pub(super) fn reach_each_other(first: &Machine) {
    let second = Second::start(first);
    first.wait(&format!("node/{}", second.name), "condition=Ready");
    first.apply(&WEB.replace("FIRST", &first.name));
    first.wait("daemonset/web", "jsonpath={.status.numberReady}=2");
    first.wait("pod/db-0", "condition=Ready");
    everything_is_reached(first, &second);
    let second = restarts(first, second);
    everything_is_reached(first, &second);
    first.kubectl(&[
        "delete",
        "daemonset/web",
        "statefulset/db",
        "service/web",
        "service/web-pods",
        "service/db",
        "--wait",
    ]);
}

/// The second machine loses its power and starts again: processes, rules, routes, links and the runtime's state are lost, its disk is not.
fn restarts<'m>(first: &'m Machine, mut second: Second<'m>) -> Second<'m> {
    let path = format!(
        "jsonpath={{.items[?(@.spec.nodeName==\"{}\")].status.containerStatuses[0]['containerID','ready']}}",
        second.name
    );
    let container = || first.kubectl(&["get", "pods", "-l", "app=web", "-o", &path]);
    let (before, old) = (container(), pods(first));
    assert!(before.starts_with("containerd://") && before.ends_with(" true"), "{before}");
    second.cut_power();
    let _ = std::fs::remove_dir_all(second.directory.join("containerd/state"));
    second.holder = hold(&second.name);
    assert_eq!(second.run("nft", &["list", "tables"]), "");
    second.boot();
    eventually("the pod has a new container", || {
        let now = container();
        now != before && now.ends_with(" true")
    });
    // Rules lead to the new address only, on both machines.
    for is_first in [true, false] {
        let mut found = String::new();
        eventually("the rules have the addresses of the pods", || {
            let list = ["list", "table", "ip", "celplane-proxy"];
            // The second machine's table is written after its start.
            let rules = if is_first {
                first.run("nft", &list)
            } else {
                String::from_utf8(second.command("nft", &list).output().unwrap().stdout).unwrap()
            };
            let new = pods(first);
            // Endpoints are elements of maps, or targets of chains.
            let has = |pod: &Pod| {
                rules.contains(&format!("{} . 8080", pod.address)) || rules.contains(&format!("{}:8080", pod.address))
            };
            let is_gone = |old: &&Pod| new.iter().all(|it| it.address != old.address);
            let addresses = |pods: &[Pod]| pods.iter().map(|it| it.address.clone()).collect::<Vec<_>>();
            let now = format!("first {is_first}: {:?}, before {:?}", addresses(&new), addresses(&old));
            if now != found {
                eprintln!("{now}: {}", rules.lines().filter(|it| it.contains(". 8080")).collect::<String>());
                found = now;
            }
            new.iter().all(has) && !old.iter().filter(is_gone).any(has)
        });
    }
    second
}

/// A pod with its address and node.
struct Pod {
    name: String,
    address: String,
    node: String,
}

fn pods(first: &Machine) -> Vec<Pod> {
    let path = "jsonpath={range .items[*]}{.metadata.name} {.status.podIP} {.spec.nodeName}{\"\\n\"}{end}";
    let text = first.kubectl(&["get", "pods", "-l", "app=web", "-o", path]);
    let pod = |line: &str| {
        let words: Vec<String> = line.split(' ').map(ToOwned::to_owned).collect();
        let [name, address, node]: [String; 3] = words.try_into().unwrap();
        Pod { name, address, node }
    };
    text.lines().map(pod).collect()
}

fn everything_is_reached(first: &Machine, second: &Second<'_>) {
    let pods = pods(first);
    let mut nodes: Vec<&str> = pods.iter().map(|it| it.node.as_str()).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, [first.name.as_str(), second.name.as_str()]);
    for (pod, network) in pods.iter().map(|it| (it, if it.node == first.name { "10.244.0." } else { "10.244.1." })) {
        assert!(pod.address.starts_with(network), "{} has the address {}", pod.name, pod.address);
    }
    let cluster_address = first.kubectl(&["get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"]);
    for client in &pods {
        let shell = |script: &str| first.kubectl(&["exec", &client.name, "--", "sh", "-c", script]);
        // Rules and records follow the endpoints a moment after the API server has them.
        let [one, other] = pods.as_slice() else { panic!("{} pods", pods.len()) };
        shell(&format!(
            "until timeout 5 wget -qO- http://web && [ $(nslookup web-pods.default.svc.cluster.local | grep -c -e '^Address: {}$' -e '^Address: {}$') = 2 ]; \
             do sleep 0.2; done",
            one.address, other.address
        ));
        for server in &pods {
            assert_eq!(
                shell(&format!("timeout 5 wget -qO- http://{}:8080", server.address)),
                format!("{}\n", server.node)
            );
        }
        // 24 requests miss one of two endpoints with a probability of 1 in 8 million. One of them is the client itself.
        for url in [format!("http://{cluster_address}"), "http://web".to_owned()] {
            let script = format!("for i in $(seq 24); do timeout 5 wget -qO- {url} || echo failed; done | sort | uniq");
            assert_eq!(shell(&script).lines().collect::<Vec<_>>(), nodes, "{url} from {}", client.node);
        }
        // The resolver prefers addresses near its own.
        let answer = shell("timeout 5 wget -qO- http://web-pods:8080");
        assert!(nodes.contains(&answer.trim()), "{answer} from {}", client.node);
        for address in ["192.168.77.1", ADDRESS] {
            let script = format!("timeout 5 wget -qO- http://{address}:30080");
            assert!(nodes.contains(&shell(&script).trim()), "{script} from {}", client.node);
        }
        // Names of a set's pods, forwards and backwards.
        let database = first.kubectl(&["get", "pod", "db-0", "-o", "jsonpath={.status.podIP}"]);
        let found = shell(&format!("nslookup db-0.db.default.svc.cluster.local; nslookup {database}"));
        let reversed = "name = db-0.db.default.svc.cluster.local";
        assert!(found.contains(&format!("Address: {database}")) && found.contains(reversed), "{found}");
        // The largest packet is that of the machine's link, or the configured one.
        let mtu = if client.node == first.name { "1500\n" } else { MTU };
        assert_eq!(shell("cat /sys/class/net/eth0/mtu"), mtu);
        let server = "echo | nc -w 5 kubernetes.default.svc.cluster.local 443 > /dev/null && echo connected";
        assert_eq!(shell(server), "connected\n");
    }
    // The machines themselves: node ports, cluster IPs, and host ports of the other one.
    let (own, other) = (format!("{}\n", first.name), format!("{}\n", second.name));
    for url in
        [format!("http://{cluster_address}"), format!("http://{ADDRESS}:30080"), "http://192.168.77.1:30080".to_owned()]
    {
        for answer in [
            first.run("timeout", &["5", "busybox", "wget", "-qO-", &url]),
            second.run("timeout", &["5", "busybox", "wget", "-qO-", &url]),
        ] {
            assert!([&own, &other].contains(&&answer), "{url}: {answer}");
        }
    }
    let host_port = |address: &str| format!("http://{address}:18081");
    assert_eq!(first.run("timeout", &["5", "busybox", "wget", "-qO-", &host_port(ADDRESS)]), other);
    assert_eq!(second.run("timeout", &["5", "busybox", "wget", "-qO-", &host_port("192.168.77.1")]), own);
}
