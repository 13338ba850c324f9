//! The stories: which files, what to look at, and how they should end.

/// A story.
#[derive(Debug)]
pub(super) struct Story {
    pub(super) name: &'static str,
    pub(super) proposal: &'static str,
    pub(super) title: &'static str,
    /// The manifests: their names in `examples/`, and their texts.
    pub(super) files: &'static [(&'static str, &'static str)],
    /// The field that the story is about.
    pub(super) field: &'static str,
    /// Pods, and the nodes of which they should be on one; none for a pod that waits.
    pub(super) pods: &'static [(&'static str, &'static [&'static str])],
    /// The kind whose table is shown, by its plural, and what must be in it.
    pub(super) table: Option<(&'static str, &'static [&'static str])>,
}

macro_rules! example {
    ($path:literal) => {
        ($path, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/", $path)))
    };
}

/// The nodes of all stories.
pub(super) const NODES: &str = example!("cluster/nodes.yaml").1;

const CEL: &str = "KEP-5500";
const SEMVER: &str = "KEP-5721";
const DEVICES: &str = "KEP-5254";
const COLUMNS: &str = "KEP-4595";

/// All stories, in order.
pub(super) const STORIES: &[Story] = &[
    Story {
        name: "prefix",
        proposal: CEL,
        title: "tolerate a family of taints by key prefix",
        files: &[example!("tolerations/story-1-key-prefix.yaml")],
        field: "tolerations:",
        pods: &[("log-collector", &["env-node-1"]), ("log-reader", &[])],
        table: None,
    },
    Story {
        name: "kernel",
        proposal: CEL,
        title: "tolerate taints based on kernel version comparison",
        files: &[example!("tolerations/story-2-kernel-version.yaml")],
        field: "tolerations:",
        pods: &[("my-app", &["new-kernel", "plain"])],
        table: None,
    },
    Story {
        name: "regex",
        proposal: CEL,
        title: "tolerate taints matching a regex pattern",
        files: &[example!("tolerations/story-3-regex.yaml")],
        field: "tolerations:",
        pods: &[("zone-app", &["rack-a1"])],
        table: None,
    },
    Story {
        name: "or",
        proposal: CEL,
        title: "tolerate multiple taint conditions with OR logic",
        files: &[example!("tolerations-and-node-affinity/story-1-or.yaml")],
        field: "tolerations:",
        pods: &[("monitoring-agent", &["maintained"])],
        table: None,
    },
    Story {
        name: "taint-version",
        proposal: CEL,
        title: "tolerate taints based on semantic version comparison",
        files: &[example!("tolerations-and-node-affinity/story-2-taint-version.yaml")],
        field: "tolerations:",
        pods: &[("compatible-workload", &["cni-node-1"])],
        table: None,
    },
    Story {
        name: "rack",
        proposal: CEL,
        title: "node affinity matching labels that contain a string",
        files: &[example!("tolerations-and-node-affinity/story-3-rack.yaml")],
        field: "nodeSelectorTerms:",
        pods: &[("regional-app", &["new-kernel"])],
        table: None,
    },
    Story {
        name: "kubelet-version",
        proposal: CEL,
        title: "node affinity with semantic version comparison",
        files: &[example!("tolerations-and-node-affinity/story-4-kubelet-version.yaml")],
        field: "nodeSelectorTerms:",
        pods: &[("modern-app", &["new-kernel"])],
        table: None,
    },
    Story {
        name: "volume",
        proposal: CEL,
        title: "node affinity of a volume by expression",
        files: &[example!("tolerations-and-node-affinity/story-5-volume.yaml")],
        field: "nodeSelectorTerms:",
        pods: &[("storage-app", &["new-kernel"])],
        table: None,
    },
    Story {
        name: "semver-kubelet",
        proposal: SEMVER,
        title: "ensure the kubelet's version before scheduling a pod",
        files: &[example!("semver-operators/story-1-kubelet-version.yaml")],
        field: "nodeSelectorTerms:",
        pods: &[("kubelet-app", &["new-kernel"])],
        table: None,
    },
    Story {
        name: "semver-cni",
        proposal: SEMVER,
        title: "tolerate nodes with older versions of the network plugin",
        files: &[example!("semver-operators/story-2-older-cni.yaml")],
        field: "tolerations:",
        pods: &[("tolerant-pod", &["old-cni-node-1"])],
        table: None,
    },
    Story {
        name: "semver-runtime",
        proposal: SEMVER,
        title: "sensitive pods need a recent container runtime",
        files: &[example!("semver-operators/story-3-container-runtime.yaml")],
        field: "nodeSelectorTerms:",
        pods: &[("sensitive-app", &["new-kernel"])],
        table: None,
    },
    Story {
        name: "semver-volume",
        proposal: SEMVER,
        title: "node affinity of a volume based on kernel version",
        files: &[example!("semver-operators/story-4-volume.yaml")],
        field: "nodeSelectorTerms:",
        pods: &[("kernel-storage-app", &["new-kernel"])],
        table: None,
    },
    Story {
        name: "connected",
        proposal: DEVICES,
        title: "four devices that are connected",
        files: &[
            example!("device-constraints/device-class.yaml"),
            example!("device-constraints/accelerators.yaml"),
            example!("device-constraints/story-1-connected.yaml"),
        ],
        field: "constraints:",
        pods: &[("connected-pod", &["accelerators"])],
        table: None,
    },
    Story {
        name: "grid",
        proposal: DEVICES,
        title: "a square of four devices out of a grid",
        files: &[
            example!("device-constraints/device-class.yaml"),
            example!("device-constraints/accelerators.yaml"),
            example!("device-constraints/story-2-grid.yaml"),
        ],
        field: "constraints:",
        pods: &[("grid-pod", &["accelerators"])],
        table: None,
    },
    Story {
        name: "nested-lists",
        proposal: COLUMNS,
        title: "a column with all nested lists",
        files: &[
            example!("printer-columns/story-1-nested-lists.yaml"),
            example!("printer-columns/objects/story-1-nested-lists.yaml"),
        ],
        field: "additionalPrinterColumns:",
        pods: &[],
        table: Some(("gateways", &["c.example"])),
    },
    Story {
        name: "ready",
        proposal: COLUMNS,
        title: "a column with the status of one condition",
        files: &[
            example!("printer-columns/story-2-ready-condition.yaml"),
            example!("printer-columns/objects/story-2-ready-condition.yaml"),
        ],
        field: "additionalPrinterColumns:",
        pods: &[],
        table: Some(("conditioneds", &["True", "Unknown"])),
    },
    Story {
        name: "combined",
        proposal: COLUMNS,
        title: "a column that combines several fields",
        files: &[
            example!("printer-columns/story-3-combined-fields.yaml"),
            example!("printer-columns/objects/story-3-combined-fields.yaml"),
        ],
        field: "additionalPrinterColumns:",
        pods: &[],
        table: Some(("combineds", &["left/right"])),
    },
    Story {
        name: "duration",
        proposal: COLUMNS,
        title: "a column with a duration",
        files: &[
            example!("printer-columns/story-4-duration.yaml"),
            example!("printer-columns/objects/story-4-duration.yaml"),
        ],
        field: "additionalPrinterColumns:",
        pods: &[],
        table: Some(("runs", &["1h30m0s"])),
    },
];
