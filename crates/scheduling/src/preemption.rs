//! Making room: which pods of lower priority would have to go so that a pod fits.

use std::sync::Arc;

use api::json::Text;

use crate::cluster::{Cluster, PodInfo};
use crate::diagnosis::Diagnosis;
use crate::profile::Profile;
use crate::random::Random;

/// A pod that fits nowhere, and all that is known about it.
#[derive(Debug)]
pub struct PostFilter<'a, 'c> {
    /// The pod.
    pub pod: &'c PodInfo,
    /// The cluster.
    pub cluster: &'c Cluster,
    /// The plugins.
    pub profile: &'c Profile,
    /// Why it fits nowhere.
    pub diagnosis: &'a Diagnosis,
    /// For choices between equals.
    pub random: &'a mut Random,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Answer {
    /// For the pod's events.
    pub message: String,
    /// Where room is made, if it can be.
    pub nomination: Option<Nomination>,
}

/// Where room is made for a pod.
#[derive(Debug, Clone)]
pub struct Nomination {
    /// The node.
    pub node: Text,
    /// The pods that have to go.
    pub victims: Vec<Arc<PodInfo>>,
}
