//! Flags of a scheduler on a cluster whose other components are upstream's.

use anyhow::{Result, bail};
use api::annotations::{MERGED, REJECTED};
use api::core::v1::Pod;
use api::features::Features;
use api::json::Text;
use api::names;
use api::well_known::DEFAULT_SCHEDULER;
use client::Client;
use controlplane::placement;
use scheduling::config::{Configuration, ProfileConfig};

/// Flags of a scheduler beside upstream's components.
#[derive(Debug, clap::Args)]
pub(crate) struct SecondSchedulerArguments {
    /// The `schedulerName` of the pods to schedule; other pods are only counted
    #[arg(long, value_name = "NAME")]
    scheduler_name: Option<String>,
    /// Read the proposals' fields from annotations, turn their features on, and add tolerations that upstream's components
    /// read
    #[arg(long)]
    placement_annotations: bool,
    /// Give out only devices of these drivers; others belong to another scheduler
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "placement_annotations")]
    device_drivers: Vec<String>,
    /// Give out only devices of these pools
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "placement_annotations")]
    device_pools: Vec<String>,
    /// Give out only devices of pools of these nodes
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "placement_annotations")]
    device_nodes: Vec<String>,
    /// The namespace of the lease
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_namespace: Option<String>,
    /// The name of the lease; with --scheduler-name NAME, NAME-scheduler unless given
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_name: Option<String>,
}

impl SecondSchedulerArguments {
    /// Whether fields are read from annotations.
    pub(crate) fn has_annotations(&self) -> bool {
        self.placement_annotations
    }

    /// The features that are on unless a flag turns them off.
    pub(crate) fn default_features(&self) -> Features {
        if self.placement_annotations { Features::all_proposals() } else { Features::default() }
    }

    /// Applies the flags to the configuration.
    pub(crate) fn configure(&self, configuration: &mut Configuration) -> Result<()> {
        if let Some(name) = &self.scheduler_name {
            // The name of the lease contains it.
            if let Some(complaint) = names::dns1123_subdomain(name).first() {
                bail!("--scheduler-name: \"{name}\": {complaint}");
            }
            if configuration.profiles.is_empty() {
                configuration.profiles.push(ProfileConfig::default());
            }
            let [profile] = configuration.profiles.as_mut_slice() else {
                bail!("--scheduler-name cannot be used with a configuration of several profiles");
            };
            profile.scheduler_name = Some(name.as_str().into());
            // Another scheduler of the cluster holds the default lease.
            if name != DEFAULT_SCHEDULER {
                configuration.leader_election.resource_name = format!("{name}-scheduler").into();
            }
        }
        if let Some(name) = &self.leader_elect_resource_name {
            configuration.leader_election.resource_name = name.as_str().into();
        }
        if let Some(namespace) = &self.leader_elect_resource_namespace {
            configuration.leader_election.resource_namespace = namespace.as_str().into();
        }
        Ok(())
    }

    /// The client whose informers merge annotations, if `--placement-annotations` is set.
    pub(crate) fn merging(&self, client: Client, features: Features) -> Result<Client> {
        if !self.placement_annotations {
            return Ok(client);
        }
        let devices = placement::Devices {
            drivers: self.device_drivers.clone(),
            pools: self.device_pools.clone(),
            nodes: self.device_nodes.clone(),
        };
        Ok(client.rewriting(placement::rewrite(features, devices)?))
    }
}

/// The name of the scheduler in the manifests of `celplane webhook install`.
const INSTALLED_NAME: &str = "celplane";

/// Adds the profiles that pods of a second scheduler name, where a configuration has none: `celplane scheduler` was given the
/// name on its command line. Such pods have annotations, or claims, which may have them, or name the scheduler of the manifests.
pub(crate) fn add_profiles<'p>(configuration: &mut Configuration, pods: impl IntoIterator<Item = &'p Pod>) {
    if !configuration.profiles.is_empty() {
        return;
    }
    let mut names: Vec<Text> = vec![DEFAULT_SCHEDULER.into()];
    for pod in pods {
        let (annotations, name) = (&pod.metadata.annotations, &pod.spec.scheduler_name);
        let is_ours = annotations.contains_key(MERGED)
            || annotations.contains_key(REJECTED)
            || !pod.spec.resource_claims.is_empty()
            || name == INSTALLED_NAME;
        if is_ours && !name.is_empty() && !names.contains(name) {
            names.push(name.clone());
        }
    }
    if names.len() > 1 {
        let profile = |name| ProfileConfig { scheduler_name: Some(name), ..ProfileConfig::default() };
        configuration.profiles = names.into_iter().map(profile).collect();
    }
}
