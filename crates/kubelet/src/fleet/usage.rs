//! Usage of resources by the pods of a simulated fleet.

use std::collections::HashMap;

use api::core::v1::Pod;
use api::json::Text;

use super::{Fleet, Inner};
use crate::simulation::Simulation;
use crate::usage::{ContainerUsage, Usage};

impl Fleet<Simulation> {
    /// The usage of the running containers of a pod; none if no container runs, or its node does not report.
    #[must_use]
    pub fn pod_usage(&self, namespace: &str, name: &str) -> Option<Vec<ContainerUsage>> {
        let pod = self.pod(namespace, name)?;
        let usage = self.inner.usage(&pod);
        (!usage.is_empty()).then_some(usage)
    }

    /// The usage of all nodes that report, by name: the sum of their pods.
    #[must_use]
    pub fn node_usages(&self) -> HashMap<Text, Usage> {
        let fleet = &self.inner;
        let reporting = fleet.members.all().into_iter().filter(|member| member.is_alive());
        let mut usages: HashMap<Text, Usage> =
            reporting.map(|member| (member.name.clone(), Usage::default())).collect();
        for pod in fleet.pods.store().list() {
            if let Some(sum) = usages.get_mut(&pod.spec.node_name) {
                fleet.usage(&pod).into_iter().for_each(|it| sum.add(it.usage));
            }
        }
        usages
    }
}

impl Inner<Simulation> {
    fn usage(&self, pod: &Pod) -> Vec<ContainerUsage> {
        match self.members.get(&pod.spec.node_name) {
            Some(member) if member.is_alive() => self.runtime.usage(pod),
            _ => Vec::new(),
        }
    }
}
