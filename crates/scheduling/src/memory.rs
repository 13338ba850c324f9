//! Answers about nodes that are remembered from one pod to the next of the same shape.
//!
//! A plugin declares what its answer depends on. What depends on the node alone holds until the node's generation changes;
//! what depends on more holds as long as the versions of that stand, too. A plugin that declares nothing is asked each time.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cluster::{Cluster, NodeInfo, PodInfo, ShapeId};
use crate::framework::{Dependencies, Status};

/// How many shapes are remembered; those that were not asked about for the longest time go.
const SHAPES_MAX: usize = 64;

/// Remembered answers, by shape.
#[derive(Debug, Default)]
pub struct Memory {
    shapes: HashMap<ShapeId, Remembered>,
    clock: u64,
}

/// What is remembered about pods of one shape.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    last_use: u64,
    /// What the first plugins say together; nothing where they are for the node.
    pub(crate) verdicts: Column<Option<Arc<Status>>>,
    /// The raw scores of plugins.
    scores: Vec<(&'static str, Column<i64>)>,
}

/// One answer for each node.
#[derive(Debug, Default)]
pub(crate) struct Column<T> {
    versions: [u64; 4],
    /// By the node's place: its generation, and the answer.
    answers: Vec<Option<(u64, T)>>,
}

impl Memory {
    /// What is remembered about pods of this shape.
    pub(crate) fn of(&mut self, pod: &PodInfo) -> &mut Remembered {
        self.clock = self.clock.wrapping_add(1);
        if self.shapes.len() >= SHAPES_MAX && !self.shapes.contains_key(&pod.shape.id) {
            let oldest = self.shapes.iter().min_by_key(|(_, it)| it.last_use).map(|(shape, _)| *shape);
            if let Some(oldest) = oldest {
                self.shapes.remove(&oldest);
            }
        }
        let remembered = self.shapes.entry(pod.shape.id).or_default();
        remembered.last_use = self.clock;
        remembered
    }
}

impl Remembered {
    /// The raw scores of a plugin.
    pub(crate) fn scores(&mut self, plugin: &'static str) -> &mut Column<i64> {
        let place = self.scores.iter().position(|(name, _)| *name == plugin);
        let place = place.unwrap_or_else(|| {
            self.scores.push((plugin, Column::default()));
            self.scores.len().saturating_sub(1)
        });
        #[expect(clippy::indexing_slicing, reason = "the place was found, or made just now")]
        &mut self.scores[place].1
    }
}

impl<T: Clone> Column<T> {
    /// Forgets everything if what answers depend on has changed.
    pub(crate) fn begin(&mut self, depends_on: Dependencies, cluster: &Cluster) {
        let versions = versions(depends_on, cluster);
        if self.versions != versions {
            self.versions = versions;
            self.answers.clear();
        }
        if self.answers.len() < cluster.cache.places() {
            self.answers.resize(cluster.cache.places(), None);
        }
    }

    /// The answer about a node, from memory or new.
    pub(crate) fn get_or_ask<E>(&mut self, node: &NodeInfo, ask: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        match self.answers.get_mut(node.id.index()) {
            Some(Some((generation, answer))) if *generation == node.generation => Ok(answer.clone()),
            Some(slot) => {
                let answer = ask()?;
                *slot = Some((node.generation, answer.clone()));
                Ok(answer)
            }
            None => ask(),
        }
    }
}

/// The versions of what answers depend on beside the node.
fn versions(depends_on: Dependencies, cluster: &Cluster) -> [u64; 4] {
    let one = |dependency: Dependencies, version: u64| if depends_on.include(dependency) { version } else { 0 };
    [
        one(Dependencies::PODS, cluster.cache.pods_version().wrapping_add(cluster.objects.selectors_version())),
        one(Dependencies::VOLUMES, cluster.objects.volumes_version()),
        one(Dependencies::IMAGES, cluster.cache.images_version()),
        one(Dependencies::CLASSES, cluster.objects.classes_version()),
    ]
}
