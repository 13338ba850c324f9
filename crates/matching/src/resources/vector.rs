//! Amounts of resources in whole numbers, for the arithmetic of every pod and node.
//!
//! Follows `framework.Resource` of Kubernetes' scheduler: CPU in thousandths, everything else in units.

use api::core::v1::ResourceList;
use api::json::Text;

/// Amounts of resources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources {
    /// CPU, in thousandths.
    pub milli_cpu: i64,
    /// Bytes of memory.
    pub memory: i64,
    /// Bytes of local storage.
    pub ephemeral_storage: i64,
    /// Number of pods.
    pub pods: i64,
    /// Extended resources, huge pages and the like. INVARIANT: sorted by name, no name twice.
    scalars: Vec<(Text, i64)>,
}

impl Resources {
    /// The amounts of a list. Names that are neither native nor extended are left out, as in Kubernetes.
    pub fn of(list: &ResourceList) -> Self {
        let mut resources = Resources::default();
        for (name, amount) in list {
            match name.as_str() {
                "cpu" => resources.milli_cpu = amount.milli_value(),
                "memory" => resources.memory = amount.value(),
                "ephemeral-storage" => resources.ephemeral_storage = amount.value(),
                "pods" => resources.pods = amount.value(),
                _ if is_scalar(name) => resources.scalars.push((name.clone(), amount.value())),
                _ => {}
            }
        }
        resources
    }

    /// The amount of a resource by its name.
    pub fn get(&self, name: &str) -> i64 {
        match name {
            "cpu" => self.milli_cpu,
            "memory" => self.memory,
            "ephemeral-storage" => self.ephemeral_storage,
            "pods" => self.pods,
            _ => self.scalar(name).unwrap_or(0),
        }
    }

    /// The amount of an extended resource, if it exists.
    pub fn scalar(&self, name: &str) -> Option<i64> {
        let found = self.scalars.binary_search_by(|(known, _)| known.as_str().cmp(name));
        found.ok().and_then(|index| self.scalars.get(index)).map(|(_, amount)| *amount)
    }

    /// The extended resources, by name.
    pub fn scalars(&self) -> impl ExactSizeIterator<Item = (&Text, i64)> {
        self.scalars.iter().map(|(name, amount)| (name, *amount))
    }

    /// Adds amounts.
    pub fn add(&mut self, other: &Resources) {
        self.combine(other, i64::saturating_add);
    }

    /// Subtracts amounts. Extended resources that reach zero stay, because they were requested.
    pub fn subtract(&mut self, other: &Resources) {
        self.combine(other, i64::saturating_sub);
    }

    /// Whether some amount is above the other's.
    pub fn any_above(&self, other: &Resources) -> bool {
        self.milli_cpu > other.milli_cpu
            || self.memory > other.memory
            || self.ephemeral_storage > other.ephemeral_storage
            || self.scalars.iter().any(|(name, amount)| *amount > other.get(name))
    }

    fn combine(&mut self, other: &Resources, with: fn(i64, i64) -> i64) {
        self.milli_cpu = with(self.milli_cpu, other.milli_cpu);
        self.memory = with(self.memory, other.memory);
        self.ephemeral_storage = with(self.ephemeral_storage, other.ephemeral_storage);
        self.pods = with(self.pods, other.pods);
        for (name, amount) in &other.scalars {
            match self.scalars.binary_search_by(|(known, _)| known.cmp(name)) {
                Ok(index) => {
                    if let Some((_, known)) = self.scalars.get_mut(index) {
                        *known = with(*known, *amount);
                    }
                }
                Err(index) => self.scalars.insert(index, (name.clone(), with(0, *amount))),
            }
        }
    }
}

/// Whether a resource is extended, huge pages, a prefixed native resource, or volumes of a driver.
pub fn is_scalar(name: &str) -> bool {
    is_extended(name)
        || name.starts_with("hugepages-")
        || name.contains("kubernetes.io/")
        || name.starts_with("attachable-volumes-")
}

/// Whether a resource is not native to Kubernetes and can be counted in a quota.
pub fn is_extended(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    !is_native && !name.starts_with("requests.") && api::names::qualified_name(&format!("requests.{name}")).is_empty()
}

#[cfg(test)]
mod tests {
    use api::quantity::Quantity;

    use super::*;

    fn of(amounts: &[(&str, &str)]) -> Resources {
        Resources::of(
            &amounts.iter().map(|(name, amount)| ((*name).into(), Quantity::parse(amount).unwrap())).collect(),
        )
    }

    #[test]
    fn names_that_are_not_resources_are_left_out() {
        let resources = of(&[("cpu", "1500m"), ("example.com/gpu", "2"), ("gpu", "1"), ("hugepages-2Mi", "4Mi")]);
        assert_eq!(resources.milli_cpu, 1500);
        let scalars: Vec<_> = resources.scalars().map(|(name, amount)| (name.as_str(), amount)).collect();
        assert_eq!(scalars, [("example.com/gpu", 2), ("hugepages-2Mi", 4 << 20)]);
    }

    #[test]
    fn added_amounts_can_be_subtracted() {
        let mut sum = of(&[("memory", "1Gi"), ("b.example/x", "1")]);
        sum.add(&of(&[("memory", "1Gi"), ("a.example/x", "2"), ("b.example/x", "3")]));
        assert_eq!((sum.get("memory"), sum.get("a.example/x"), sum.get("b.example/x")), (2 << 30, 2, 4));
        sum.subtract(&of(&[("memory", "1Gi"), ("a.example/x", "2")]));
        assert_eq!((sum.get("memory"), sum.scalar("a.example/x")), (1 << 30, Some(0)));
    }
}
