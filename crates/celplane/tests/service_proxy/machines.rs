//! Two machines in network namespaces: `a`, in which the API server runs, and `b`, with pods, and a client `x` outside of the cluster whose
//! gateway is `a`. Everything ends with the test.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Prepares the namespaces, then waits: they live as long as this process.
const HOLDER: &str = r#"set -e
mount --make-rshared /
mkdir -p /run/netns
mount -t tmpfs tmpfs /run/netns
servers() { # COMMAND-PREFIX NAME ADDRESS: answer the first line or the datagram with the own name, the client's address and the length of long requests
    $1 perl -MIO::Socket::INET -MIO::Select -e '
        $s = IO::Socket::INET->new(Listen => 500, LocalAddr => $ARGV[1], LocalPort => 8080) or die;
        $all = IO::Select->new($s);
        while (1) {
            for $c ($all->can_read) {
                if ($c == $s) { $new = $s->accept and $all->add($new); next }
                $n = sysread $c, $read{$c}, 65536, length $read{$c};
                next if $n && $read{$c} !~ /\n/;
                $length = length delete $read{$c};
                syswrite $c, "$ARGV[0] " . $c->peerhost . ($length > 512 ? " $length" : "") . "\n" if $n;
                $all->remove($c); close $c
            }
        }' $2 $3 &
    $1 perl -MIO::Socket::INET -e '
        $s = IO::Socket::INET->new(Proto => "udp", LocalAddr => $ARGV[1], LocalPort => 8080) or die;
        while (1) {
            defined $s->recv($b, 65535) or next;
            $s->send("$ARGV[0] " . $s->peerhost . (length $b > 512 ? " " . length $b : "") . "\n")
        }' $2 $3 &
}
machine() { # COMMAND-PREFIX GATEWAY
    $1 ip link set lo up
    # Refused datagrams are answered without a limit of their rate.
    $1 sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv4/icmp_ratemask'
    $1 ip link add br0 type bridge
    $1 ip addr add $2/24 dev br0
    $1 ip link set br0 up
}
pod() { # COMMAND-PREFIX NAME ADDRESS GATEWAY
    ip netns add $2
    $1 ip link add $2 type veth peer name eth0
    $1 ip link set eth0 netns $2
    $1 ip link set $2 master br0
    $1 ip link set $2 up
    $1 bridge link set dev $2 hairpin on
    ip -n $2 link set lo up
    ip -n $2 addr add $3/24 dev eth0
    ip -n $2 link set eth0 up
    ip -n $2 route add default via $4
    servers "ip netns exec $2" $2 $3
}
ip netns add b
ip netns add x
machine "" 10.244.0.1
machine "ip netns exec b" 10.244.1.1
ip link add link0 type veth peer name link1
ip link set link1 netns b
ip addr add 192.168.77.1/24 dev link0
ip link set link0 up
ip -n b link set link1 name link0
ip -n b addr add 192.168.77.2/24 dev link0
ip -n b link set link0 up
ip route add default via 192.168.77.2
ip -n b route add default via 192.168.77.1
servers "" a 192.168.77.1
servers "ip netns exec b" b 192.168.77.2
ip link add linkx type veth peer name eth0
ip link set eth0 netns x
ip addr add 192.168.78.1/24 dev linkx
ip link set linkx up
ip -n x link set lo up
ip -n x addr add 192.168.78.2/24 dev eth0
ip -n x link set eth0 up
ip -n x route add default via 192.168.78.1
pod "" a1 10.244.0.2 10.244.0.1
pod "" a2 10.244.0.3 10.244.0.1
pod "ip netns exec b" b1 10.244.1.2 10.244.1.1
echo ready
exec sleep 1000000"#;

/// Reads all requests, keeps a number of them under way, and prints one line for each. A connection is answered after its first line.
const CLIENT: &str = r#"use strict; use Socket; use Errno qw(EINPROGRESS ECONNREFUSED EPERM); use IO::Handle; use IO::Select; use Time::HiRes qw(time);
my $tcp = $ARGV[0] eq "tcp";
my @todo = map { chomp; [split / /] } <STDIN>;
my ($next, %running, @answers) = (0);
my ($reads, $writes) = (IO::Select->new, IO::Select->new);
sub finish { my ($s, $answer) = @_; my $r = delete $running{fileno $s}; $answers[$r->{n}] = $answer; $reads->remove($s); $writes->remove($s); close $s }
sub failed { my ($s) = @_; finish($s, $! == ECONNREFUSED ? "refused" : $! == EPERM ? "denied" : "failed: $!") }
while ($next < @todo || %running) {
    while ($next < @todo && keys %running < 16) {
        my ($address, $port, $bytes) = @{$todo[$next]};
        socket(my $s, PF_INET, $tcp ? SOCK_STREAM : SOCK_DGRAM, 0) or die;
        $s->blocking(0); $s->autoflush(1);
        $running{fileno $s} = { n => $next++, s => $s, until => time + 8, answer => "", data => "x" x ($bytes - 1) . "\n" };
        $tcp ? $writes->add($s) : $reads->add($s);
        if (!connect($s, sockaddr_in($port, inet_aton($address))) && $! != EINPROGRESS) { failed($s); next }
        if (!$tcp && !defined send($s, $running{fileno $s}{data}, 0)) { failed($s) }
    }
    my ($readable, $writable) = IO::Select::select($reads, $writes, undef, 0.1);
    for my $s (@{$writable || []}) {
        if ($! = unpack "i", getsockopt($s, SOL_SOCKET, SO_ERROR)) { failed($s); next }
        if (!defined send($s, $running{fileno $s}{data}, 0)) { failed($s); next }
        $writes->remove($s); $reads->add($s);
    }
    for my $s (@{$readable || []}) {
        my $r = $running{fileno $s};
        my $got = sysread $s, $r->{answer}, 4096, length $r->{answer};
        if (!defined $got) { failed($s); next }
        if ($r->{answer} =~ /^(.*)\n/) { finish($s, $1) } elsif (!$got) { finish($s, "closed") }
    }
    for my $r (values %running) { finish($r->{s}, "timeout") if time > $r->{until} }
}
print map { "$_\n" } @answers;"#;

const PROGRAMS: [&str; 8] = ["unshare", "nsenter", "ip", "nft", "conntrack", "kubectl", "bash", "perl"];
/// Time limit of a connection.
const CONNECT_SECONDS: &str = "4";
/// Time limit of everything that follows from a change.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Machines {
    holder: Child,
    apiserver: Option<Child>,
    proxies: Vec<(String, Child)>,
    directory: tempfile::TempDir,
}

fn is_possible() -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let has = |name: &&str| std::env::split_paths(&path).any(|directory| directory.join(name).is_file());
    let mut missing: Vec<&str> = PROGRAMS.into_iter().filter(|name| !has(name)).collect();
    if !rustix::process::geteuid().is_root() {
        missing.push("root");
    }
    let namespaces = Command::new("unshare").args(["-m", "-n", "true"]).stderr(Stdio::null()).status();
    if !namespaces.is_ok_and(|status| status.success()) {
        missing.push("the right to make namespaces");
    }
    if !Path::new("/proc/sys/net/bridge/bridge-nf-call-iptables").exists() {
        missing.push("the kernel module br_netfilter");
    }
    if missing.is_empty() {
        return true;
    }
    let is_required = std::env::var("CELPLANE_REQUIRE_CONTAINERS").as_deref() == Ok("1");
    assert!(!is_required, "the proxy cannot run, missing: {missing:?}");
    eprintln!("skipped: the proxy cannot run, missing: {missing:?}");
    false
}

impl Machines {
    pub(super) fn start() -> Option<Self> {
        if !is_possible() {
            return None;
        }
        let mut holder = Command::new("unshare")
            .args(["-m", "-n", "--pid", "--fork", "--kill-child", "--propagation", "slave", "sh", "-c", HOLDER])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut machines =
            Self { holder, apiserver: None, proxies: Vec::new(), directory: tempfile::tempdir().unwrap() };
        assert_eq!(line, "ready\n", "the namespaces cannot be made");
        let data = machines.path("data");
        let arguments =
            ["apiserver", "--ephemeral", "--bind-address", "192.168.77.1", "--port", "6443", "--data-dir", &data];
        let mut child = machines
            .command("a", &[&[env!("CARGO_BIN_EXE_celplane")], &arguments[..]].concat())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        machines.apiserver = Some(child);
        assert!(output.lines().map_while(Result::ok).any(|line| line.starts_with("Use it with")));
        Some(machines)
    }

    /// Address and node of a pod or machine.
    pub(super) fn place(name: &str) -> (&'static str, &'static str) {
        match name {
            "a1" => ("10.244.0.2", "a"),
            "a2" => ("10.244.0.3", "a"),
            "b1" => ("10.244.1.2", "b"),
            "a" => ("192.168.77.1", "a"),
            "b" => ("192.168.77.2", "b"),
            _ => panic!("{name}"),
        }
    }

    /// The pod or machine that has an address; itself if there is none.
    pub(super) fn place_of(address: &str) -> &str {
        match address {
            "10.244.0.1" | "192.168.78.1" => "a",
            "10.244.1.1" => "b",
            "192.168.78.2" => "x",
            _ => ["a1", "a2", "b1", "a", "b"].into_iter().find(|it| Self::place(it).0 == address).unwrap_or(address),
        }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// The process whose namespaces are the machine's: the child of `unshare`, which is the first of its process namespace.
    fn holder_id(&self) -> String {
        let id = self.holder.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        children.split_whitespace().next().unwrap().to_owned()
    }

    /// A command on machine `a`, or in the namespace of machine `b` or of a pod.
    fn command(&self, place: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.holder_id(), "-m", "-n", "--"]);
        if place != "a" {
            command.args(["ip", "netns", "exec", place]);
        }
        command.args(arguments);
        command
    }

    /// Standard output of a command that must succeed.
    #[track_caller]
    pub(super) fn run(&self, place: &str, arguments: &[&str]) -> String {
        let output = self.command(place, arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    pub(super) fn kubectl(&self, arguments: &[&str]) -> String {
        let kubeconfig = self.path("data/admin.kubeconfig");
        self.run("a", &[&["kubectl", "--kubeconfig", kubeconfig.as_str()], arguments].concat())
    }

    #[track_caller]
    pub(super) fn apply(&self, manifests: &str) {
        let file = self.path("manifests.yaml");
        std::fs::write(&file, manifests).unwrap();
        self.kubectl(&["apply", "-f", &file]);
    }

    pub(super) fn start_proxy(&mut self, node: &str) {
        let kubeconfig = self.path("data/admin.kubeconfig");
        let flags = [
            env!("CARGO_BIN_EXE_celplane"),
            "proxy",
            "--kubeconfig",
            &kubeconfig,
            "--hostname-override",
            node,
            "--cluster-cidr",
            "10.244.0.0/16",
            "--node-routes",
            "--min-sync-period",
            "50ms",
            "--sync-period",
            "1s",
            "--secure-port",
            "0",
        ];
        let child = self.command(node, &flags).stdout(Stdio::null()).spawn().unwrap();
        self.proxies.push((node.to_owned(), child));
    }

    /// Starts a kube-proxy in nftables mode. It sets no routes to other nodes.
    pub(super) fn start_kube_proxy(&mut self, program: &str, node: &str) {
        let kubeconfig = self.path("data/admin.kubeconfig");
        let flags = [
            program,
            "--proxy-mode=nftables",
            "--cluster-cidr=10.244.0.0/16",
            "--nodeport-addresses=primary",
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0s",
            "--conntrack-tcp-timeout-close-wait=0s",
            "--kubeconfig",
            &kubeconfig,
            "--hostname-override",
            node,
        ];
        let log = std::fs::File::create(self.path(&format!("kube-proxy-{node}.log"))).unwrap();
        let child = self.command(node, &flags).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.proxies.push((node.to_owned(), child));
        let (network, gateway) =
            if node == "a" { ("10.244.1.0/24", "192.168.77.2") } else { ("10.244.0.0/24", "192.168.77.1") };
        self.run(node, &["ip", "route", "add", network, "via", gateway]);
    }

    pub(super) fn end_proxy(&mut self, node: &str, signal: rustix::process::Signal) {
        let at = self.proxies.iter().position(|(name, _)| name == node).unwrap();
        let (_, mut child) = self.proxies.remove(at);
        let id = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        rustix::process::kill_process(id, signal).unwrap();
        child.wait().unwrap();
    }

    /// Waits until both tables have rules for a cluster IP, and both machines have a route to the other one's pods.
    pub(super) fn wait_for_rules(&self, table: &str, address: &str) {
        for (node, pods) in [("a", "10.244.1.0/24"), ("b", "10.244.0.0/24")] {
            self.eventually(|| {
                let list = ["nft", "list", "map", "ip", table, "service-ips"];
                let output = self.command(node, &list).output().unwrap();
                let has_route = !self.run(node, &["ip", "route", "show", pods]).is_empty();
                has_route && String::from_utf8_lossy(&output.stdout).contains(address)
            });
        }
    }

    #[track_caller]
    pub(super) fn eventually(&self, mut condition: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !condition() {
            assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The answer to a connection, `refused` or `timeout`.
    pub(super) fn tcp(&self, from: &str, address: &str, port: u16) -> String {
        let script = format!("exec 3<>/dev/tcp/{address}/{port} && echo >&3 && cat <&3");
        let output = self.command(from, &["timeout", CONNECT_SECONDS, "bash", "-c", &script]).output().unwrap();
        match output.status.code() {
            Some(0) => String::from_utf8(output.stdout).unwrap().trim().to_owned(),
            Some(124) => "timeout".to_owned(),
            _ if String::from_utf8_lossy(&output.stderr).contains("refused") => "refused".to_owned(),
            _ => String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The answers to requests (address, port, bytes), a few at a time, each over a socket of its own; `refused` or `timeout` if there is none.
    pub(super) fn requests(&self, from: &str, protocol: &str, requests: &[(&str, u16, usize)]) -> Vec<String> {
        let mut child = self
            .command(from, &["perl", "-e", CLIENT, protocol])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines: String =
            requests.iter().map(|(address, port, bytes)| format!("{address} {port} {bytes}\n")).collect();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let answers: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(ToOwned::to_owned).collect();
        assert_eq!(answers.len(), requests.len());
        answers
    }

    /// The answer to a datagram from a new port.
    pub(super) fn udp(&self, from: &str, address: &str, port: u16) -> String {
        self.udp_client(from, address, port).request()
    }

    pub(super) fn udp_client(&self, from: &str, address: &str, port: u16) -> UdpClient {
        let script = format!(
            "exec 3<>/dev/udp/{address}/{port}; while read line; do echo x >&3; timeout 1 head -n 1 <&3 || echo none; done"
        );
        let mut child = self
            .command(from, &["bash", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        UdpClient { child, input: Some(input), output }
    }
}

/// A client that sends all datagrams from one port.
pub(super) struct UdpClient {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl UdpClient {
    pub(super) fn request(&mut self) -> String {
        writeln!(self.input.as_mut().unwrap()).unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for UdpClient {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for (_, child) in &mut self.proxies {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(mut child) = self.apiserver.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        // The first process of the process namespace takes the servers of pods with it.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
