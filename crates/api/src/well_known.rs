//! Well-known names: namespaces, groups, labels, annotations, taints, finalizers and conditions with a meaning in Kubernetes.
//!
//! A name that more than one module uses is a constant here. Names that one module owns stay in that module.

/// The namespace of the control plane.
pub const NAMESPACE_SYSTEM: &str = "kube-system";
/// The namespace that every client may read.
pub const NAMESPACE_PUBLIC: &str = "kube-public";
/// The namespace of the leases that nodes renew.
pub const NAMESPACE_NODE_LEASE: &str = "kube-node-lease";

/// The group whose members may do everything.
pub const GROUP_MASTERS: &str = "system:masters";
/// The group of kubelets.
pub const GROUP_NODES: &str = "system:nodes";
/// The group of all authenticated users.
pub const GROUP_AUTHENTICATED: &str = "system:authenticated";
/// The group of anonymous requests.
pub const GROUP_UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group of all service accounts; followed by `:` and a namespace, the group of those in it.
pub const GROUP_SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
/// The user of requests without credentials.
pub const USER_ANONYMOUS: &str = "system:anonymous";

/// A node's host name.
pub const LABEL_HOSTNAME: &str = "kubernetes.io/hostname";
/// A node's operating system.
pub const LABEL_OS: &str = "kubernetes.io/os";
/// A node's processor architecture.
pub const LABEL_ARCH: &str = "kubernetes.io/arch";
/// The zone of a node or volume.
pub const LABEL_TOPOLOGY_ZONE: &str = "topology.kubernetes.io/zone";
/// The region of a node or volume.
pub const LABEL_TOPOLOGY_REGION: &str = "topology.kubernetes.io/region";
/// A node's machine type.
pub const LABEL_INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// The name of a namespace, for selectors.
pub const LABEL_METADATA_NAME: &str = "kubernetes.io/metadata.name";
/// The service of an EndpointSlice.
pub const LABEL_SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The controller of an EndpointSlice.
pub const LABEL_ENDPOINT_SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Excludes Endpoints from mirroring.
pub const LABEL_ENDPOINT_SLICE_SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
/// The controller of Endpoints.
pub const LABEL_ENDPOINTS_MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// The revision of a pod of a DaemonSet or StatefulSet.
pub const LABEL_CONTROLLER_REVISION_HASH: &str = "controller-revision-hash";
/// Label and taint of control plane nodes.
pub const LABEL_CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// Marks the mirror of a static pod.
pub const ANNOTATION_CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
/// The manifest of the last client-side apply.
pub const ANNOTATION_LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The time of the change that caused the last update of Endpoints or an EndpointSlice.
pub const ANNOTATION_TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Marks the bookmark after the initial events of a watch.
pub const ANNOTATION_INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// The order in which a ReplicaSet deletes pods.
pub const ANNOTATION_POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The index of a pod of an indexed Job.
pub const ANNOTATION_JOB_COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Marks a claim whose binding is complete.
pub const ANNOTATION_BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Marks a binding that no user requested.
pub const ANNOTATION_BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// The provisioner of a volume.
pub const ANNOTATION_PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// The node for which a claim's volume is provisioned.
pub const ANNOTATION_SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The provisioner of a claim's volume.
pub const ANNOTATION_STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The storage class of a volume or claim, before there was a field.
pub const ANNOTATION_STORAGE_CLASS_BETA: &str = "volume.beta.kubernetes.io/storage-class";
/// Marks the default storage class.
pub const ANNOTATION_DEFAULT_STORAGE_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// Marks the default storage class; older form.
pub const ANNOTATION_DEFAULT_STORAGE_CLASS_BETA: &str = "storageclass.beta.kubernetes.io/is-default-class";
/// The service account of a token secret.
pub const ANNOTATION_SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
/// The topology hints of a service's EndpointSlices.
pub const ANNOTATION_TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
/// The topology hints of a service's EndpointSlices; older form.
pub const ANNOTATION_TOPOLOGY_AWARE_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
/// Followed by a container's name: its AppArmor profile.
pub const ANNOTATION_APP_ARMOR_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
/// The seccomp profile of a pod, before there was a field.
pub const ANNOTATION_SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
/// Followed by a container's name: its seccomp profile, before there was a field.
pub const ANNOTATION_SECCOMP_CONTAINER_PREFIX: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// The node's condition Ready is False.
pub const TAINT_NOT_READY: &str = "node.kubernetes.io/not-ready";
/// The node's condition Ready is Unknown.
pub const TAINT_UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// The node is cordoned.
pub const TAINT_UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// The node has little memory.
pub const TAINT_MEMORY_PRESSURE: &str = "node.kubernetes.io/memory-pressure";
/// The node has little disk space.
pub const TAINT_DISK_PRESSURE: &str = "node.kubernetes.io/disk-pressure";
/// The node has few process ids.
pub const TAINT_PID_PRESSURE: &str = "node.kubernetes.io/pid-pressure";
/// The node's network is not configured.
pub const TAINT_NETWORK_UNAVAILABLE: &str = "node.kubernetes.io/network-unavailable";
/// An administrator marked the node as shut down.
pub const TAINT_OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// Pods without a toleration are not scheduled.
pub const EFFECT_NO_SCHEDULE: &str = "NoSchedule";
/// Pods without a toleration are scheduled elsewhere if possible.
pub const EFFECT_PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
/// Pods without a toleration are not scheduled, and evicted.
pub const EFFECT_NO_EXECUTE: &str = "NoExecute";

/// Keeps a PersistentVolumeClaim while pods use it.
pub const FINALIZER_VOLUME_CLAIM: &str = "kubernetes.io/pvc-protection";
/// Keeps a PersistentVolume while it is bound.
pub const FINALIZER_VOLUME: &str = "kubernetes.io/pv-protection";
/// Keeps a VolumeAttributesClass while volumes use it.
pub const FINALIZER_VOLUME_ATTRIBUTES_CLASS: &str = "kubernetes.io/vac-protection";
/// Keeps a ResourceClaim while it is allocated.
pub const FINALIZER_RESOURCE_CLAIM: &str = "resource.kubernetes.io/delete-protection";

/// Pod condition: a node has been assigned.
pub const CONDITION_POD_SCHEDULED: &str = "PodScheduled";
/// Pod condition: the pod is about to be terminated by a disruption.
pub const CONDITION_DISRUPTION_TARGET: &str = "DisruptionTarget";

/// The scheduler of pods that name none.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";
/// Signs client certificates.
pub const SIGNER_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Signs client certificates of kubelets.
pub const SIGNER_KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Signs serving certificates of kubelets.
pub const SIGNER_KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// The signer of requests that name none; it signs nothing.
pub const SIGNER_LEGACY: &str = "kubernetes.io/legacy-unknown";
/// The type of secrets with a bootstrap token.
pub const SECRET_BOOTSTRAP_TOKEN: &str = "bootstrap.kubernetes.io/token";
/// The type of secrets with a service account token.
pub const SECRET_SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";
/// The provisioner of storage classes without dynamic provisioning.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// Manager of the EndpointSlices of services with a selector.
pub const CONTROLLER_ENDPOINT_SLICE: &str = "endpointslice-controller.k8s.io";
/// Manager of EndpointSlices mirrored from Endpoints.
pub const CONTROLLER_ENDPOINT_SLICE_MIRRORING: &str = "endpointslicemirroring-controller.k8s.io";
