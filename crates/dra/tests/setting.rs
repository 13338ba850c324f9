//! A node, its slices and a pod's claims, read from a case.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use api::json::{self, Value};
use api::resource::v1::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice};
use dra::pools::{NodePools, Target};
use dra::{AllocatedState, Catalog, Claims, Error, Expressions, Features};
use matching::{Matcher, Node, taints};

pub(crate) struct Setting {
    pub(crate) node: Node,
    pub(crate) declared: Vec<api::json::Text>,
    pub(crate) catalog: Catalog,
    pub(crate) allocated: AllocatedState,
    pub(crate) claims: Claims,
    pub(crate) features: Features,
}

/// Environments and programs, made once.
pub(crate) struct Programs {
    pub(crate) expressions: Expressions,
    pub(crate) matcher: Arc<Matcher>,
}

impl Programs {
    pub(crate) fn new() -> Self {
        let size = NonZeroUsize::new(64).unwrap();
        let clock = || Arc::new(|| Duration::ZERO);
        Programs {
            expressions: Expressions::new(size, clock()).unwrap(),
            matcher: Arc::new(Matcher::new(size, clock(), matching::Features::ALL).unwrap()),
        }
    }
}

impl Setting {
    pub(crate) fn new(case: &Value, programs: &Programs, features: Features) -> Self {
        let mut catalog = Catalog::new(programs.matcher.clone());
        for slice in list::<ResourceSlice>(case.get("resourceSlices")) {
            catalog.set(&slice);
        }
        let node: api::core::v1::Node = json::from_value(case.get("node").unwrap()).unwrap();
        let mut allocated = AllocatedState::new();
        for device in case.get("allocatedDevices").and_then(Value::as_array).unwrap_or_default() {
            let allocation = api::json!({"devices": {"results": [(device.clone())]}});
            allocated.add(&json::from_value::<AllocationResult>(&allocation).unwrap());
        }
        let classes: Vec<Arc<DeviceClass>> = list(case.get("deviceClasses")).into_iter().map(Arc::new).collect();
        let claims: Vec<Arc<ResourceClaim>> = list(case.get("claims")).into_iter().map(Arc::new).collect();
        let find = |name: &str| classes.iter().find(|class| class.metadata.name == name).cloned();
        Setting {
            node: Node::new(&node, &taints::Sets::new()),
            declared: node.status.declared_features.clone(),
            catalog,
            allocated,
            claims: Claims::new(&claims, &find, &programs.expressions, features),
            features,
        }
    }

    pub(crate) fn pools(&self) -> Result<NodePools, Error> {
        self.catalog.pools(Target::new(&self.node, &self.declared), &self.features)
    }
}

fn list<T: Default + serde::de::DeserializeOwned>(value: Option<&Value>) -> Vec<T> {
    value.and_then(Value::as_array).unwrap_or_default().iter().map(|it| json::from_value(it).unwrap()).collect()
}

pub(crate) fn cases(text: &str) -> Vec<Value> {
    text.lines().map(|line| json::parse(line.as_bytes()).unwrap()).collect()
}

pub(crate) fn texts(value: Option<&Value>) -> Vec<String> {
    let list = value.and_then(Value::as_array).unwrap_or_default();
    list.iter().map(|it| it.as_str().unwrap().to_owned()).collect()
}
