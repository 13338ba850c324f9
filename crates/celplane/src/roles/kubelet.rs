//! Simulated nodes as a role: one, or a whole fleet.

use std::num::NonZeroUsize;
use std::sync::Arc;

use api::features::Features;
use client::Client;
use kubelet::fleet::ClientFor;
use kubelet::simulation::{Rules, Simulation};
use kubelet::slice_template::SliceTemplate;
use kubelet::template::Template;
use kubelet::{Fleet, Options, clock};
use matching::CompileCache;
use tokio::time::Instant;

use super::Role;

/// What its metrics are called.
pub(crate) const NAME: &str = "kubelet";
/// Who reads for a whole fleet.
pub(crate) const FLEET: &str = "system:celplane:node-fleet";
/// So many expressions of each kind are kept compiled.
const EXPRESSIONS_MAX: NonZeroUsize = NonZeroUsize::new(1000).unwrap();

/// Which nodes.
pub(crate) struct Nodes {
    /// Their names.
    pub(crate) names: Vec<String>,
    /// What they are like.
    pub(crate) template: Template,
    /// Whether others may ask to be played.
    pub(crate) adopts: bool,
    /// Which devices they have, unless a Node says otherwise.
    pub(crate) devices: Option<SliceTemplate>,
}

/// Starts nodes. `reads` is used for what all of them see, and `client_for` for what each writes.
pub(crate) fn start(nodes: Nodes, reads: Client, client_for: ClientFor, features: Features) -> Role {
    Role::start(NAME, features, move |setting| async move {
        let started = Instant::now();
        let cache = CompileCache::new(EXPRESSIONS_MAX, Arc::new(move || started.elapsed()))?;
        let options = Options {
            nodes: nodes.names,
            template: nodes.template,
            adopts: nodes.adopts,
            devices: nodes.devices,
            client: reads,
            client_for,
            cache: Arc::new(cache),
            features: setting.features.into(),
            clock: clock::wall(),
            port: 0,
        };
        let fleet = Fleet::new(options, Simulation::new(Rules::default()));
        let watched = fleet.clone();
        setting.health.add("informers", move || watched.health());
        let shutdown = setting.shutdown;
        fleet.run(async move { shutdown.requested().await }).await;
        Ok(())
    })
}

/// The names of the nodes of a fleet.
pub(crate) fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("node-{number}")).collect()
}
