//! Controllers of workloads: owners of pods, budgets, autoscaling, and the removal of finished pods and jobs.

pub mod cronjob;
pub mod daemonset;
pub mod deployment;
pub mod disruption;
pub mod horizontal_pod_autoscaler;
pub mod job;
pub mod pod_garbage_collector;
pub mod replicaset;
pub mod replicationcontroller;
pub mod statefulset;
pub mod ttl_after_finished;
