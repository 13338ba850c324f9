//! All ResourceSlices, read once when they change.
//!
//! The usable pools of a node are computed on demand, see [`crate::pools`]; the caller caches them as long as
//! the [version](Catalog::version_for) and the node are unchanged.

mod slice;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::json::Text;
use api::resource::v1::{DeviceTaintRule, ResourceSlice};
use matching::Matcher;

use crate::device::Models;
use crate::error::Error;
use crate::features::Features;
use crate::pools::{NodePools, Target};
use crate::taints;

pub(crate) use self::slice::{Device, Nodes, Slice};

/// All ResourceSlices.
#[derive(Debug)]
pub struct Catalog {
    slices: BTreeMap<Text, Arc<Slice>>,
    /// Names of slices by the node that alone can use them, and those that several can.
    by_node: HashMap<Text, Vec<Text>>,
    shared: Vec<Text>,
    by_pool: HashMap<(Text, Text), Vec<Text>>,
    taint_rules: BTreeMap<Text, DeviceTaintRule>,
    models: Models,
    matcher: Arc<Matcher>,
    /// By node: changes with devices that only this node can use.
    own_versions: HashMap<Text, u64>,
    /// Changes with devices that several nodes can use.
    shared_version: u64,
}

impl Catalog {
    /// No slices. Node selectors are made as everywhere.
    #[must_use]
    pub fn new(matcher: Arc<Matcher>) -> Self {
        Catalog {
            slices: BTreeMap::new(),
            by_node: HashMap::new(),
            shared: Vec::new(),
            by_pool: HashMap::new(),
            taint_rules: BTreeMap::new(),
            models: Models::default(),
            matcher,
            own_versions: HashMap::new(),
            shared_version: 0,
        }
    }

    /// A slice that is new or has changed.
    pub fn set(&mut self, slice: &ResourceSlice) {
        self.remove(&slice.metadata.name);
        let mut slice = Slice::new(slice, &self.models, self.matcher.cache());
        slice.taint(self.taint_rules.values());
        let slice = Arc::new(slice);
        let of_nodes = match &slice.nodes {
            Nodes::One(node) => self.by_node.entry(node.clone()).or_default(),
            _ => &mut self.shared,
        };
        insert_sorted(of_nodes, &slice.name);
        insert_sorted(self.by_pool.entry((slice.driver.clone(), slice.pool.clone())).or_default(), &slice.name);
        self.slices.insert(slice.name.clone(), slice.clone());
        self.touch(&slice);
    }

    /// Adds or changes a rule; `None` removes it.
    pub fn set_taint_rule(&mut self, name: &str, rule: Option<&DeviceTaintRule>) {
        let before = match rule {
            Some(rule) => self.taint_rules.insert(name.into(), rule.clone()),
            None => self.taint_rules.remove(name),
        };
        let rules: Vec<&DeviceTaintRule> = before.iter().chain(rule).collect();
        let mut changed = Vec::new();
        for slice in self.slices.values_mut() {
            let selects = |rule: &&DeviceTaintRule| {
                slice.devices.iter().any(|device| taints::selects(rule, &slice.driver, &slice.pool, &device.name))
            };
            if rules.iter().any(selects) {
                Arc::make_mut(slice).taint(self.taint_rules.values());
                changed.push(slice.clone());
            }
        }
        for slice in changed {
            self.touch(&slice);
        }
    }

    /// Removes a slice.
    pub fn remove(&mut self, name: &str) {
        let Some(slice) = self.slices.remove(name) else { return };
        match &slice.nodes {
            Nodes::One(node) => {
                if let Some(names) = self.by_node.get_mut(node) {
                    names.retain(|it| it != name);
                    if names.is_empty() {
                        self.by_node.remove(node);
                    }
                }
            }
            _ => self.shared.retain(|it| it != name),
        }
        let pool = (slice.driver.clone(), slice.pool.clone());
        if let Some(names) = self.by_pool.get_mut(&pool) {
            names.retain(|it| it != name);
            if names.is_empty() {
                self.by_pool.remove(&pool);
            }
        }
        self.touch(&slice);
    }

    /// Invalidates nodes. The usable devices of a node also change with slices of its pools for other nodes,
    /// because these decide whether a pool is complete.
    fn touch(&mut self, slice: &Slice) {
        let names = self.by_pool.get(&(slice.driver.clone(), slice.pool.clone())).into_iter().flatten();
        let others = names.filter_map(|name| self.slices.get(name)).map(|slice| &slice.nodes);
        for nodes in others.chain([&slice.nodes]) {
            let version = match nodes {
                Nodes::One(node) => self.own_versions.entry(node.clone()).or_default(),
                _ => &mut self.shared_version,
            };
            *version = version.wrapping_add(1);
        }
    }

    /// Changes with everything that a node can use.
    #[must_use]
    pub fn version_for(&self, node: &str) -> (u64, u64) {
        (self.own_versions.get(node).copied().unwrap_or(0), self.shared_version)
    }

    /// Whether the usable devices of a node are independent of its labels.
    #[must_use]
    pub fn is_all_local(&self) -> bool {
        self.shared.is_empty()
    }

    /// Returns the pools that can be used from a node.
    ///
    /// # Errors
    /// A slice has an unreadable node selection.
    pub fn pools(&self, target: Target<'_>, features: &Features) -> Result<NodePools, Error> {
        NodePools::gather(self, target, features)
    }

    /// Slices that only this node can use, then those that several can.
    pub(crate) fn slices_for(&self, node: &str) -> impl Iterator<Item = &Arc<Slice>> {
        let own = self.by_node.get(node).into_iter().flatten();
        own.chain(&self.shared).filter_map(|name| self.slices.get(name))
    }

    /// All slices of a pool.
    pub(crate) fn slices_of_pool(&self, driver: &Text, pool: &Text) -> impl Iterator<Item = &Arc<Slice>> {
        let names = self.by_pool.get(&(driver.clone(), pool.clone())).into_iter().flatten();
        names.filter_map(|name| self.slices.get(name))
    }
}

fn insert_sorted(names: &mut Vec<Text>, name: &Text) {
    if let Err(position) = names.binary_search(name) {
        names.insert(position, name.clone());
    }
}
