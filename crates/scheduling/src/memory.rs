//! Results about nodes that are cached from one pod to the next of the same shape.
//!
//! A plugin declares the dependencies of its result. A result that depends only on the node is valid until the
//! node's generation changes; other results also require that the versions of their dependencies are unchanged.
//! A plugin without a declaration is run each time.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cluster::{Cluster, NodeInfo, PodInfo, ShapeId};
use crate::cycle::RankedNodes;
use crate::framework::{Dependencies, Status};

/// Maximum number of cached shapes; the least recently used ones are removed.
const SHAPES_MAX: usize = 64;

/// The first pods of a cached shape are placed without ranking nodes: most shapes have few pods, and the sums
/// pay off only later.
const UNRANKED_FIRST: u32 = 1;

/// Cached results by shape.
#[derive(Debug)]
pub struct Memory {
    shapes: HashMap<ShapeId, ShapeMemory>,
    clock: u64,
    unranked_first: u32,
}

/// Cached results for pods of one shape.
#[derive(Debug, Default)]
pub(crate) struct ShapeMemory {
    last_use: u64,
    /// Number of pods of the shape that were placed.
    pods: u64,
    /// For how many pods more nodes are not ranked.
    pub(crate) unranked: u32,
    /// Combined result of the first plugins; `None` if they accept the node.
    pub(crate) verdicts: Column<Option<Arc<Status>>>,
    /// Names of these plugins.
    verdicts_by: Vec<&'static str>,
    /// The raw scores of plugins.
    scores: Vec<(&'static str, Column<i64>)>,
    /// All nodes, ranked.
    pub(crate) ranked: RankedNodes,
}

/// One answer for each node.
#[derive(Debug, Default)]
pub(crate) struct Column<T> {
    versions: [u64; 4],
    /// By the node's place: its generation, and the answer.
    answers: Vec<Option<(u64, T)>>,
}

impl Default for Memory {
    fn default() -> Self {
        Memory { shapes: HashMap::new(), clock: 0, unranked_first: UNRANKED_FIRST }
    }
}

impl Memory {
    /// Nodes are never ranked.
    #[cfg(test)]
    pub(crate) fn unranked() -> Self {
        Memory { unranked_first: u32::MAX, ..Memory::default() }
    }

    /// For how many shapes nodes are ranked.
    #[cfg(test)]
    pub(crate) fn ranked(&self) -> usize {
        self.shapes.values().filter(|it| it.ranked.is_ranked()).count()
    }

    /// Returns the cached results for pods of this shape. `None` for the first pod: for a single pod, caching
    /// costs more than it saves.
    pub(crate) fn of(&mut self, pod: &PodInfo) -> Option<&mut ShapeMemory> {
        self.shapes.get_mut(&pod.shape.id).filter(|remembered| remembered.pods > 1)
    }

    /// Starts the placement of another pod.
    pub(crate) fn begin(&mut self, pod: &PodInfo) {
        self.clock = self.clock.wrapping_add(1);
        if self.shapes.len() >= SHAPES_MAX && !self.shapes.contains_key(&pod.shape.id) {
            let oldest = self.shapes.iter().min_by_key(|(_, it)| it.last_use).map(|(shape, _)| *shape);
            if let Some(oldest) = oldest {
                self.shapes.remove(&oldest);
            }
        }
        let unranked = self.unranked_first;
        let new = || ShapeMemory { unranked, ..ShapeMemory::default() };
        let remembered = self.shapes.entry(pod.shape.id).or_insert_with(new);
        remembered.last_use = self.clock;
        remembered.pods = remembered.pods.saturating_add(1);
    }
}

impl ShapeMemory {
    /// Sets the plugins of the verdicts: removes verdicts of others, and outdated ones.
    pub(crate) fn begin_verdicts(
        &mut self,
        by: impl Iterator<Item = &'static str> + Clone,
        depends_on: Dependencies,
        cluster: &Cluster,
    ) {
        if !by.clone().eq(self.verdicts_by.iter().copied()) {
            self.verdicts_by = by.collect();
            self.verdicts = Column::default();
        }
        self.verdicts.begin(depends_on, cluster);
    }

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
    /// Clears the column if a dependency of its results has changed.
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

/// The versions of the dependencies of results, besides the node.
pub(crate) fn versions(depends_on: Dependencies, cluster: &Cluster) -> [u64; 4] {
    let one = |dependency: Dependencies, version: u64| if depends_on.include(dependency) { version } else { 0 };
    [
        one(Dependencies::PODS, cluster.cache.pods_version().wrapping_add(cluster.objects.selectors_version())),
        one(Dependencies::VOLUMES, cluster.objects.volumes_version()),
        one(Dependencies::IMAGES, cluster.cache.images_version()),
        one(Dependencies::CLASSES, cluster.objects.classes_version()),
    ]
}
