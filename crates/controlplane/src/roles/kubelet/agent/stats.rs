//! Use of resources by containers, pods and the machine: `/stats/summary`, `/metrics/resource`, `/metrics/cadvisor`.
//!
//! Names are those of Kubernetes' kubelet (`pkg/kubelet/metrics/collectors/resource_metrics.go`) and of cAdvisor, as far as
//! the runtime counts what they show. Every request reads the runtime once.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::time::Duration;

use api::json::Value;
use api::time::Timestamp;
use cri::messages as m;
use kubelet::containers::Containers;

const POD_NAME: &str = "io.kubernetes.pod.name";
const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
const POD_UID: &str = "io.kubernetes.pod.uid";
const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// Nanoseconds of one tick in `/proc/stat`.
const TICK_NANOS: u64 = 10_000_000;

/// One container.
#[derive(Debug, Clone, Default, PartialEq)]
struct ContainerUse {
    namespace: String,
    pod: String,
    uid: String,
    name: String,
    id: String,
    image: String,
    /// Time of the count, in nanoseconds since 1970.
    at: i64,
    /// Start of the container, in nanoseconds since 1970.
    created: i64,
    cpu_nanos: u64,
    cpu_nanocores: u64,
    working_set: u64,
    memory: u64,
    resident: u64,
    /// Swap in use and free below the limit, where the runtime counts it.
    swap: Option<(u64, u64)>,
}

/// The machine.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct MachineUse {
    cpu_nanos: u64,
    memory_total: u64,
    memory_used: u64,
    working_set: u64,
    available: u64,
    swap_used: u64,
    booted_seconds: i64,
}

/// Usage of a node at one moment.
#[derive(Debug, Default)]
pub(super) struct NodeUse {
    containers: Vec<ContainerUse>,
    machine: MachineUse,
    now: i64,
}

impl NodeUse {
    /// Reads the runtime and the machine.
    pub(super) async fn read(containers: &Containers) -> Result<Self, cri::Status> {
        let runtime = containers.runtime();
        let stats = runtime.list_container_stats(m::ListContainerStatsRequest::default()).await?.stats;
        let known = runtime.list_containers(m::ListContainersRequest::default()).await?.containers;
        let file = |name: &str| std::fs::read_to_string(name).unwrap_or_default();
        let machine = MachineUse::parse(&file("/proc/stat"), &file("/proc/meminfo"));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
        Ok(Self { containers: combine(&stats, &known), machine, now })
    }
}

fn combine(stats: &[m::ContainerStats], known: &[m::Container]) -> Vec<ContainerUse> {
    let known: HashMap<&str, &m::Container> = known.iter().map(|it| (it.id.as_str(), it)).collect();
    let number = |value: Option<&m::Uint64Value>| value.map_or(0, |it| it.value);
    let one = |stats: &m::ContainerStats| {
        let attributes = stats.attributes.clone().unwrap_or_default();
        let (cpu, memory) = (stats.cpu.clone().unwrap_or_default(), stats.memory.clone().unwrap_or_default());
        let label = |name: &str| attributes.labels.get(name).cloned().unwrap_or_default();
        let container = known.get(attributes.id.as_str());
        let image = container.and_then(|it| it.image.as_ref()).map(|it| it.image.clone());
        ContainerUse {
            namespace: label(POD_NAMESPACE),
            pod: label(POD_NAME),
            uid: label(POD_UID),
            name: label(CONTAINER_NAME),
            image: image.unwrap_or_default(),
            created: container.map_or(0, |it| it.created_at),
            at: cpu.timestamp,
            cpu_nanos: number(cpu.usage_core_nano_seconds.as_ref()),
            cpu_nanocores: number(cpu.usage_nano_cores.as_ref()),
            working_set: number(memory.working_set_bytes.as_ref()),
            memory: number(memory.usage_bytes.as_ref()),
            resident: number(memory.rss_bytes.as_ref()),
            swap: stats.swap.as_ref().and_then(|it| {
                let used = it.swap_usage_bytes.as_ref()?.value;
                Some((used, number(it.swap_available_bytes.as_ref())))
            }),
            id: attributes.id,
        }
    };
    // Containers that have ended have no sample. Their zeros would hide the usage of pods with init containers.
    let mut all: Vec<ContainerUse> = stats.iter().map(one).filter(|it| it.at != 0).collect();
    all.sort_by(|left, right| {
        (&left.namespace, &left.pod, &left.name, left.created).cmp(&(
            &right.namespace,
            &right.pod,
            &right.name,
            right.created,
        ))
    });
    all
}

impl MachineUse {
    /// Reads the machine's counters. The working set is all memory but what is free or cached by inactive files.
    fn parse(stat: &str, meminfo: &str) -> Self {
        let fields = |line: &str| line.split_ascii_whitespace().skip(1).map(|it| it.parse().unwrap_or(0)).collect();
        let cpu: Vec<u64> = stat.lines().find(|line| line.starts_with("cpu ")).map(fields).unwrap_or_default();
        // Neither idle nor waiting; guests are in the time of users already.
        let busy = [0, 1, 2, 5, 6, 7].into_iter().filter_map(|at: usize| cpu.get(at));
        let ticks = busy.fold(0_u64, |sum, it| sum.saturating_add(*it));
        let booted = stat.lines().find_map(|line| line.strip_prefix("btime ")).and_then(|it| it.trim().parse().ok());
        let memory = |name: &str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let kib = line.and_then(|it| it.split_ascii_whitespace().next()?.parse::<u64>().ok());
            kib.unwrap_or(0).saturating_mul(1024)
        };
        let (total, free) = (memory("MemTotal"), memory("MemFree"));
        let used = total.saturating_sub(free);
        Self {
            cpu_nanos: ticks.saturating_mul(TICK_NANOS),
            memory_total: total,
            memory_used: used,
            working_set: used.saturating_sub(memory("Inactive(file)")),
            available: memory("MemAvailable"),
            swap_used: memory("SwapTotal").saturating_sub(memory("SwapFree")),
            booted_seconds: booted.unwrap_or(0),
        }
    }
}

/// Containers by pod: namespace, name and uid.
type ContainersByPod<'a> = BTreeMap<(&'a str, &'a str, &'a str), Vec<&'a ContainerUse>>;

fn by_pod(containers: &[ContainerUse]) -> ContainersByPod<'_> {
    let mut pods = ContainersByPod::new();
    for one in containers {
        pods.entry((&one.namespace, &one.pod, &one.uid)).or_default().push(one);
    }
    pods
}

fn sum(containers: &[&ContainerUse], field: impl Fn(&ContainerUse) -> u64) -> u64 {
    containers.iter().fold(0, |sum, it| sum.saturating_add(field(it)))
}

fn time(nanos: i64) -> String {
    Timestamp { seconds: nanos.div_euclid(1_000_000_000), nanos: 0 }.to_string()
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The summary of a node's pods.
pub(super) fn summary(node: &str, used: &NodeUse) -> Value {
    let cpu = |at: i64, rate: u64, total: u64| {
        api::json!({
            "time": (time(at)), "usageNanoCores": (number(rate)), "usageCoreNanoSeconds": (number(total))
        })
    };
    let memory = |at: i64, working_set: u64, used: u64, resident: u64| {
        api::json!({
            "time": (time(at)), "workingSetBytes": (number(working_set)), "usageBytes": (number(used)),
            "rssBytes": (number(resident))
        })
    };
    let container = |one: &&ContainerUse| {
        api::json!({
            "name": (one.name.as_str()), "startTime": (time(one.created)),
            "cpu": (cpu(one.at, one.cpu_nanocores, one.cpu_nanos)),
            "memory": (memory(one.at, one.working_set, one.memory, one.resident))
        })
    };
    let pods = by_pod(&used.containers).into_iter().map(|((namespace, name, uid), containers)| {
        let at = containers.iter().map(|it| it.at).max().unwrap_or_default();
        let started = containers.iter().map(|it| it.created).min().unwrap_or_default();
        let total = |field: fn(&ContainerUse) -> u64| sum(&containers, field);
        api::json!({
            "podRef": {"name": name, "namespace": namespace, "uid": uid}, "startTime": (time(started)),
            "containers": (Value::Array(containers.iter().map(container).collect())),
            "cpu": (cpu(at, total(|it| it.cpu_nanocores), total(|it| it.cpu_nanos))),
            "memory": (memory(at, total(|it| it.working_set), total(|it| it.memory), total(|it| it.resident)))
        })
    });
    let machine = &used.machine;
    let started = time(machine.booted_seconds.saturating_mul(1_000_000_000));
    api::json!({
        "node": {
            "nodeName": node, "startTime": started,
            "cpu": {"time": (time(used.now)), "usageCoreNanoSeconds": (number(machine.cpu_nanos))},
            "memory": {
                "time": (time(used.now)), "availableBytes": (number(machine.available)),
                "usageBytes": (number(machine.memory_used)), "workingSetBytes": (number(machine.working_set))
            }
        },
        "pods": (Value::Array(pods.collect()))
    })
}

/// Writes metrics as Prometheus reads them.
#[derive(Default)]
struct Writer(String);

impl Writer {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &str, value: impl std::fmt::Display, at_nanos: Option<i64>) {
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let at = at_nanos.map(|it| format!(" {}", it.div_euclid(1_000_000))).unwrap_or_default();
        let _ = writeln!(self.0, "{name}{labels} {value}{at}");
    }
}

fn seconds(nanos: u64) -> String {
    format!("{:.9}", Duration::from_nanos(nanos).as_secs_f64())
}

fn start_seconds(nanos: i64) -> String {
    seconds(u64::try_from(nanos).unwrap_or_default())
}

/// Usage of containers, pods and the node, as metrics-server reads it.
pub(super) fn resource_metrics(used: &NodeUse) -> String {
    let mut out = Writer::default();
    let labels =
        |it: &ContainerUse| format!("container=\"{}\",namespace=\"{}\",pod=\"{}\"", it.name, it.namespace, it.pod);
    let mut containers = |name: &str, kind: &str, help: &str, value: fn(&ContainerUse) -> String, has_time: bool| {
        out.family(name, kind, help);
        for one in &used.containers {
            out.line(name, &labels(one), value(one), has_time.then_some(one.at));
        }
    };
    let help = "[STABLE] Cumulative cpu time consumed by the container in core-seconds";
    containers("container_cpu_usage_seconds_total", "counter", help, |it| seconds(it.cpu_nanos), true);
    let help = "[STABLE] Current working set of the container in bytes";
    containers("container_memory_working_set_bytes", "gauge", help, |it| it.working_set.to_string(), true);
    let help = "[STABLE] Start time of the container since unix epoch in seconds";
    containers("container_start_time_seconds", "gauge", help, |it| start_seconds(it.created), false);
    for (name, help, value) in [
        (
            "container_swap_limit_bytes",
            "[ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems",
            (|(used, free): (u64, u64)| used.saturating_add(free)) as fn((u64, u64)) -> u64,
        ),
        (
            "container_swap_usage_bytes",
            "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems",
            |(used, _)| used,
        ),
    ] {
        out.family(name, "gauge", help);
        for (one, swap) in used.containers.iter().filter_map(|it| Some((it, it.swap?))) {
            out.line(name, &labels(one), value(swap), Some(one.at));
        }
    }
    let (pods, now) = (by_pod(&used.containers), Some(used.now));
    let name = "pod_cpu_usage_seconds_total";
    out.family(name, "counter", "[STABLE] Cumulative cpu time consumed by the pod in core-seconds");
    for ((namespace, pod, _), all) in &pods {
        let labels = format!("namespace=\"{namespace}\",pod=\"{pod}\"");
        out.line(name, &labels, seconds(sum(all, |it| it.cpu_nanos)), all.first().map(|it| it.at));
    }
    let name = "pod_memory_working_set_bytes";
    out.family(name, "gauge", "[STABLE] Current working set of the pod in bytes");
    for ((namespace, pod, _), all) in &pods {
        let labels = format!("namespace=\"{namespace}\",pod=\"{pod}\"");
        out.line(name, &labels, sum(all, |it| it.working_set), all.first().map(|it| it.at));
    }
    let name = "pod_swap_usage_bytes";
    out.family(
        name,
        "gauge",
        "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
    );
    for ((namespace, pod, _), all) in pods.iter().filter(|(_, all)| all.iter().any(|it| it.swap.is_some())) {
        let labels = format!("namespace=\"{namespace}\",pod=\"{pod}\"");
        let value = sum(all, |it| it.swap.map_or(0, |(used, _)| used));
        out.line(name, &labels, value, all.first().map(|it| it.at));
    }
    let help = "[STABLE] Cumulative cpu time consumed by the node in core-seconds";
    out.family("node_cpu_usage_seconds_total", "counter", help);
    out.line("node_cpu_usage_seconds_total", "", seconds(used.machine.cpu_nanos), now);
    out.family("node_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the node in bytes");
    out.line("node_memory_working_set_bytes", "", used.machine.working_set, now);
    let help = "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems";
    out.family("node_swap_usage_bytes", "gauge", help);
    out.line("node_swap_usage_bytes", "", used.machine.swap_used, now);
    let help = "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise";
    out.family("resource_scrape_error", "gauge", help);
    out.line("resource_scrape_error", "", 0, None);
    out.0
}

/// Usage of containers under the names of cAdvisor, which dashboards use.
pub(super) fn container_metrics(used: &NodeUse) -> String {
    type Family = (&'static str, &'static str, &'static str, fn(&ContainerUse) -> String);
    const FAMILIES: [Family; 5] = [
        ("container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed in seconds.", |it| {
            seconds(it.cpu_nanos)
        }),
        ("container_memory_rss", "gauge", "Size of RSS in bytes.", |it| it.resident.to_string()),
        ("container_memory_usage_bytes", "gauge", "Current memory usage in bytes, including all memory.", |it| {
            it.memory.to_string()
        }),
        ("container_memory_working_set_bytes", "gauge", "Current working set in bytes.", |it| {
            it.working_set.to_string()
        }),
        ("container_start_time_seconds", "gauge", "Start time of the container since unix epoch in seconds.", |it| {
            start_seconds(it.created)
        }),
    ];
    let mut out = Writer::default();
    for (name, kind, help, value) in FAMILIES {
        out.family(name, kind, help);
        for it in &used.containers {
            let (id, image) = (&it.id, it.image.replace(['"', '\\', '\n'], ""));
            let labels = format!(
                "container=\"{}\",id=\"/{id}\",image=\"{image}\",name=\"{id}\",namespace=\"{}\",pod=\"{}\"",
                it.name, it.namespace, it.pod
            );
            out.line(name, &labels, value(it), Some(it.at).filter(|_| name != "container_start_time_seconds"));
        }
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    out.family("machine_cpu_cores", "gauge", "Number of logical CPU cores.");
    out.line("machine_cpu_cores", "", processors, None);
    out.family("machine_memory_bytes", "gauge", "Amount of memory installed on the machine.");
    out.line("machine_memory_bytes", "", used.machine.memory_total, None);
    out.0
}

/// Metrics of the agent about its pods.
pub(super) fn agent_metrics(node: &str, used: &NodeUse) -> String {
    let mut out = Writer::default();
    let help = "[ALPHA] The node's name. The count is always 1.";
    out.family("kubelet_node_name", "gauge", help);
    out.line("kubelet_node_name", &format!("node=\"{node}\""), 1, None);
    let help = "[ALPHA] Number of containers currently running";
    out.family("kubelet_running_containers", "gauge", help);
    out.line("kubelet_running_containers", "container_state=\"running\"", used.containers.len(), None);
    out.family("kubelet_running_pods", "gauge", "[ALPHA] Number of pods that have a running pod sandbox");
    out.line("kubelet_running_pods", "", by_pod(&used.containers).len(), None);
    out.0
}

/// Metrics of the agent's own process, under the names of Prometheus' client libraries.
pub(super) fn process_metrics() -> String {
    let file = |name: &str| std::fs::read_to_string(format!("/proc/{name}")).unwrap_or_default();
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let process = ProcessUse::parse(&file("self/stat"), &file("self/status"), &file("self/limits"), &file("stat"));
    process.text(u64::try_from(open).unwrap_or(u64::MAX))
}

/// Counters of one process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct ProcessUse {
    cpu_ticks: u64,
    /// Start, in ticks since the machine's start.
    started_ticks: u64,
    virtual_bytes: u64,
    resident_bytes: u64,
    files_max: u64,
    booted_seconds: u64,
}

impl ProcessUse {
    /// Reads the files `stat`, `status` and `limits` of the process and `stat` of the machine.
    fn parse(own: &str, status: &str, limits: &str, machine: &str) -> Self {
        // The name of the process may have spaces and parentheses; the fields after it begin with the third one.
        let fields: Vec<&str> =
            own.rsplit_once(')').map(|it| it.1.split_ascii_whitespace().collect()).unwrap_or_default();
        let field = |number: usize| {
            fields.get(number.saturating_sub(3)).and_then(|it| it.parse::<u64>().ok()).unwrap_or_default()
        };
        let limit = limits.lines().find_map(|it| it.strip_prefix("Max open files"));
        let limit = limit.and_then(|it| it.split_ascii_whitespace().next()?.parse().ok());
        let booted = machine.lines().find_map(|it| it.strip_prefix("btime ")?.trim().parse().ok());
        let memory = |name: &str| {
            let value = status.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix(':'));
            let kib = value.and_then(|it| it.split_ascii_whitespace().next()?.parse::<u64>().ok());
            kib.unwrap_or(0).saturating_mul(1024)
        };
        Self {
            cpu_ticks: field(14).saturating_add(field(15)),
            started_ticks: field(22),
            virtual_bytes: memory("VmSize"),
            resident_bytes: memory("VmRSS"),
            files_max: limit.unwrap_or_default(),
            booted_seconds: booted.unwrap_or_default(),
        }
    }

    fn text(self, open_files: u64) -> String {
        let ticks = |count: u64| seconds(count.saturating_mul(TICK_NANOS));
        let started = self.booted_seconds.saturating_mul(1_000_000_000);
        let started = seconds(started.saturating_add(self.started_ticks.saturating_mul(TICK_NANOS)));
        let mut out = Writer::default();
        for (name, kind, help, value) in [
            (
                "process_cpu_seconds_total",
                "counter",
                "Total user and system CPU time spent in seconds.",
                ticks(self.cpu_ticks),
            ),
            ("process_max_fds", "gauge", "Maximum number of open file descriptors.", self.files_max.to_string()),
            ("process_open_fds", "gauge", "Number of open file descriptors.", open_files.to_string()),
            (
                "process_resident_memory_bytes",
                "gauge",
                "Resident memory size in bytes.",
                self.resident_bytes.to_string(),
            ),
            ("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.", started),
            ("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", self.virtual_bytes.to_string()),
        ] {
            out.family(name, kind, help);
            out.line(name, "", value, None);
        }
        out.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used() -> NodeUse {
        let labels = |container: &str| {
            let labels = [(POD_NAME, "p"), (POD_NAMESPACE, "d"), (POD_UID, "u"), (CONTAINER_NAME, container)];
            labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
        };
        let value = |value| Some(m::Uint64Value { value });
        let stats = ["c", "b"].map(|name| m::ContainerStats {
            attributes: Some(m::ContainerAttributes {
                id: format!("id-{name}"),
                labels: labels(name),
                ..m::ContainerAttributes::default()
            }),
            cpu: Some(m::CpuUsage {
                timestamp: 2_000_000_000,
                usage_core_nano_seconds: value(1_500_000_000),
                ..m::CpuUsage::default()
            }),
            memory: Some(m::MemoryUsage { working_set_bytes: value(4096), ..m::MemoryUsage::default() }),
            swap: (name == "c").then(|| m::SwapUsage {
                swap_available_bytes: value(30),
                swap_usage_bytes: value(12),
                ..m::SwapUsage::default()
            }),
            ..m::ContainerStats::default()
        });
        let known = m::Container { id: "id-c".to_owned(), created_at: 1_000_000_000, ..m::Container::default() };
        let stat = "cpu  100 0 50 900 10 0 0 0 7 0\ncpu0 1 1\nbtime 1700000000\n";
        let meminfo = "MemTotal: 1000 kB\nMemFree: 300 kB\nMemAvailable: 600 kB\nInactive(file): 200 kB\n\
            SwapTotal: 100 kB\nSwapFree: 60 kB\n";
        let machine = MachineUse::parse(stat, meminfo);
        NodeUse { containers: combine(&stats, &[known]), machine, now: 3_000_000_000 }
    }

    #[test]
    fn ended_containers_are_left_out() {
        assert_eq!(combine(&[m::ContainerStats::default()], &[]).len(), 0);
    }

    #[test]
    fn containers_are_grouped_by_pod() {
        let summary = summary("n", &used());
        let pod = &summary.at(&["pods"]).and_then(Value::as_array).unwrap()[0];
        assert_eq!(pod.str_at(&["podRef", "name"]), Some("p"));
        let containers = pod.at(&["containers"]).and_then(Value::as_array).unwrap();
        assert_eq!((containers.len(), containers[1].str_at(&["name"])), (2, Some("c")));
        assert_eq!(containers[0].at(&["memory", "workingSetBytes"]).and_then(Value::as_i64), Some(4096));
        assert_eq!(pod.at(&["memory", "workingSetBytes"]).and_then(Value::as_i64), Some(8192));
        assert_eq!(summary.at(&["node", "memory", "workingSetBytes"]).and_then(Value::as_i64), Some(500 << 10));
    }

    #[test]
    fn metrics_have_the_names_of_kubernetes() {
        let text = resource_metrics(&used());
        for line in [
            "container_cpu_usage_seconds_total{container=\"c\",namespace=\"d\",pod=\"p\"} 1.500000000 2000",
            "container_memory_working_set_bytes{container=\"b\",namespace=\"d\",pod=\"p\"} 4096 2000",
            "container_start_time_seconds{container=\"c\",namespace=\"d\",pod=\"p\"} 1.000000000",
            "pod_cpu_usage_seconds_total{namespace=\"d\",pod=\"p\"} 3.000000000 2000",
            "pod_memory_working_set_bytes{namespace=\"d\",pod=\"p\"} 8192 2000",
            "node_cpu_usage_seconds_total 1.500000000 3000",
            "node_memory_working_set_bytes 512000 3000",
            "container_swap_limit_bytes{container=\"c\",namespace=\"d\",pod=\"p\"} 42 2000",
            "container_swap_usage_bytes{container=\"c\",namespace=\"d\",pod=\"p\"} 12 2000",
            "pod_swap_usage_bytes{namespace=\"d\",pod=\"p\"} 12 2000",
            "node_swap_usage_bytes 40960 3000",
            "resource_scrape_error 0",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
        }
        let text = container_metrics(&used());
        let line = "container_memory_working_set_bytes{container=\"c\",id=\"/id-c\",image=\"\",name=\"id-c\",\
            namespace=\"d\",pod=\"p\"} 4096 2000";
        assert!(text.lines().any(|it| it == line), "{text}");
        assert!(text.contains("\nmachine_memory_bytes 1024000\n"), "{text}");
        assert!(agent_metrics("n", &used()).ends_with("kubelet_running_pods 1\n"));
        // Without a count there is no line.
        assert!(!resource_metrics(&used()).contains("container_swap_usage_bytes{container=\"b\""));
    }

    #[test]
    fn process_is_read_from_its_files() {
        let own = "12 (a (b) c) S 1 12 12 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 1000 8192 3 18446744073709551615";
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
            Max open files            1024                 4096                 files\n";
        let status = "Name:\ta (b) c\nVmSize:\t       8 kB\nVmRSS:\t       3 kB\n";
        let text = ProcessUse::parse(own, status, limits, "cpu 1\nbtime 1700000000\n").text(7);
        for line in [
            "process_cpu_seconds_total 3.000000000",
            "process_max_fds 1024",
            "process_open_fds 7",
            "process_resident_memory_bytes 3072",
            "process_start_time_seconds 1700000010.000000000",
            "process_virtual_memory_bytes 8192",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
        }
    }
}
