//! Allocated devices, and the used shares of shared ones.
//!
//! Built from the allocated claims; the scheduler adds its assumed allocations. Follows `allocateddevices.go`:
//! admin access does not occupy devices.

use std::collections::{BTreeMap, HashMap, HashSet};

use api::json::Text;
use api::resource::v1::{AllocationResult, DeviceRequestAllocationResult};

use crate::capacity::Amounts;
use crate::device::DeviceId;
use crate::pools::NodePools;

/// Allocated devices.
#[derive(Debug, Clone, Default)]
pub struct AllocatedState {
    pools: HashMap<(Text, Text), PoolUse>,
    /// Number of allocations and releases.
    changes: u64,
}

/// Allocated devices of a pool.
#[derive(Debug, Clone, Default)]
pub(crate) struct PoolUse {
    /// Devices with an exclusive owner. Counted: after a mistake of another component a device may have two
    /// owners.
    dedicated: HashMap<Text, usize>,
    /// Devices that are shared, by share.
    shared: HashMap<Text, BTreeMap<Text, Amounts>>,
    /// The last change; never 0.
    version: u64,
}

impl AllocatedState {
    /// No device is allocated.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an allocation.
    pub fn add(&mut self, allocation: &AllocationResult) {
        self.changes = self.changes.wrapping_add(1);
        for result in allocation.devices.results.iter().filter(|it| counts(it)) {
            let pool = self.pools.entry((result.driver.clone(), result.pool.clone())).or_default();
            pool.version = self.changes;
            match &result.share_id {
                Some(share) => {
                    let shares = pool.shared.entry(result.device.clone()).or_default();
                    shares.insert(share.clone(), result.consumed_capacity.clone());
                }
                None => {
                    let owners = pool.dedicated.entry(result.device.clone()).or_default();
                    *owners = owners.saturating_add(1);
                }
            }
        }
    }

    /// Removes an allocation.
    pub fn remove(&mut self, allocation: &AllocationResult) {
        self.changes = self.changes.wrapping_add(1);
        for result in allocation.devices.results.iter().filter(|it| counts(it)) {
            let key = (result.driver.clone(), result.pool.clone());
            let Some(pool) = self.pools.get_mut(&key) else { continue };
            pool.version = self.changes;
            match &result.share_id {
                Some(share) => {
                    if let Some(shares) = pool.shared.get_mut(&result.device) {
                        shares.remove(share);
                        if shares.is_empty() {
                            pool.shared.remove(&result.device);
                        }
                    }
                }
                None => {
                    if let Some(owners) = pool.dedicated.get_mut(&result.device) {
                        *owners = owners.saturating_sub(1);
                        if *owners == 0 {
                            pool.dedicated.remove(&result.device);
                        }
                    }
                }
            }
            if pool.dedicated.is_empty() && pool.shared.is_empty() {
                self.pools.remove(&key);
            }
        }
    }

    /// Allocated devices of a pool; `None` if there are none.
    pub(crate) fn pool(&self, driver: &Text, pool: &Text) -> Option<&PoolUse> {
        if self.pools.is_empty() { None } else { self.pools.get(&(driver.clone(), pool.clone())) }
    }

    /// Changes with the allocation of a pool; 0 as long as it is unused.
    pub(crate) fn version(&self, driver: &Text, pool: &Text) -> u64 {
        self.pool(driver, pool).map_or(0, |pool| pool.version)
    }

    /// Returns the allocations in the pools of a node.
    pub(crate) fn of(&self, node: &NodePools) -> AllocatedState {
        let keys = node.pools.iter().map(|(_, pool)| (pool.driver.clone(), pool.name.clone()));
        let pools = keys.filter_map(|key| Some((key.clone(), self.pools.get(&key)?.clone()))).collect();
        AllocatedState { pools, changes: self.changes }
    }

    /// Whether the device has an exclusive owner.
    #[must_use]
    pub fn is_dedicated(&self, id: &DeviceId) -> bool {
        self.pool(&id.driver, &id.pool).is_some_and(|pool| pool.is_dedicated(&id.device))
    }

    /// All devices with an exclusive owner.
    pub fn dedicated(&self) -> HashSet<DeviceId> {
        let ids = self.pools.iter().flat_map(|((driver, pool), it)| {
            it.dedicated.keys().map(|device| DeviceId {
                driver: driver.clone(),
                pool: pool.clone(),
                device: device.clone(),
            })
        });
        ids.collect()
    }
}

/// Whether an allocation occupies the device: admin access does not.
fn counts(result: &DeviceRequestAllocationResult) -> bool {
    result.admin_access != Some(true)
}

impl PoolUse {
    pub(crate) fn is_dedicated(&self, device: &str) -> bool {
        self.dedicated.contains_key(device)
    }

    /// The shares of a device that is shared.
    pub(crate) fn shares(&self, device: &str) -> Option<&BTreeMap<Text, Amounts>> {
        self.shared.get(device)
    }

    pub(crate) fn is_used(&self, device: &str) -> bool {
        self.is_dedicated(device) || self.shared.contains_key(device)
    }
}

#[cfg(test)]
mod tests {
    use api::json;

    use super::*;

    fn allocation(text: &str) -> AllocationResult {
        let results = json::parse(text.as_bytes()).unwrap();
        json::from_value(&api::json!({"devices": {"results": (results)}})).unwrap()
    }

    #[test]
    fn released_devices_are_free() {
        let mut state = AllocatedState::new();
        let both = allocation(
            r#"[{"driver":"d","pool":"p","device":"a"},{"driver":"d","pool":"p","device":"b","shareID":"1"}]"#,
        );
        let admin = allocation(r#"[{"driver":"d","pool":"p","device":"c","adminAccess":true}]"#);
        state.add(&both);
        state.add(&admin);
        let pool = state.pool(&"d".into(), &"p".into()).unwrap();
        assert!(pool.is_dedicated("a") && pool.shares("b").is_some());
        assert!(!pool.is_used("c"));
        state.remove(&both);
        state.remove(&admin);
        assert!(state.pools.is_empty());
    }
}
