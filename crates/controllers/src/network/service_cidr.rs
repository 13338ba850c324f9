//! Ranges of service addresses: reports readiness, and keeps ranges whose addresses are in use.
//!
//! It watches ServiceCIDRs. Each has a finalizer, which is removed some time after the range was deleted, once
//! every used address is also in another range. Follows Kubernetes `pkg/controller/servicecidrs`.

mod range;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::json::{Text, Value};
use api::metadata;
use api::time::Timestamp;
use client::controller::{Controller, Next};
use client::informer::{Informer, Key};
use client::objects::{Patch, Selection};
use client::{Client, Resource};

use self::range::Range;
use crate::machinery::action::Action;
use crate::machinery::executor::{Executor, Failure};
use crate::machinery::outcome;
use crate::machinery::pods::until;
use crate::manager::Context;

const RANGES: Resource = Resource::new("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR");
const ADDRESSES: Resource = Resource::new("networking.k8s.io", "v1", "ipaddresses", "IPAddress");
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// Field manager of conditions.
const MANAGER: &str = "service-cidr-controller";
/// Addresses that the API server gave out itself.
const GIVEN_OUT: &str = "ipaddress.kubernetes.io/managed-by=ipallocator.k8s.io";
/// Minimum age of a deletion, so that all allocators have observed it.
const GRACE_SECONDS: i64 = 10;
/// Interval at which the addresses of a blocked range are checked.
const RECHECK: Duration = Duration::from_secs(5);

struct Ranges {
    ranges: Informer<Value>,
    client: Client,
    executor: Executor,
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let ranges = context.informers.of_documents(&RANGES, &Selection::default());
    let runner = Controller::new(context.name, &context.runtime)
        .watch(&ranges, |range: &Value| [Key::new("", metadata::name(range))]);
    let controller = Arc::new(Ranges { ranges, client: context.client.clone(), executor: context.executor() });
    runner
        .run(move |key: Key| {
            let controller = controller.clone();
            async move { controller.reconcile(key).await }
        })
        .await;
}

impl Ranges {
    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        let Some(range) = self.ranges.store().get_key(&key) else { return Ok(Next::Done) };
        let Some(deleted_at) = range.str_at(&["metadata", "deletionTimestamp"]) else {
            if !has_finalizer(&range) {
                let patch = api::json!({"metadata": {"finalizers": [FINALIZER]}});
                self.patch(&key, patch).await?;
            }
            self.say(&key, &range, "True", "", "Kubernetes Service CIDR is ready").await?;
            return Ok(Next::Done);
        };
        if !has_finalizer(&range) {
            return Ok(Next::Done);
        }
        let all = self.ranges.store().list();
        if !is_covered(&range, &all) {
            let selection = Selection { labels: GIVEN_OUT.to_owned(), ..Selection::default() };
            let addresses = self.client.documents(ADDRESSES).list(&selection).await?;
            if addresses.items.iter().any(|address| needs(address, &range, &all)) {
                let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
                self.say(&key, &range, "False", "Terminating", message).await?;
                return Ok(Next::After(RECHECK));
            }
        }
        let deleted_at = Timestamp::parse(deleted_at).unwrap_or(Timestamp::ZERO);
        match until(deleted_at.plus_seconds(GRACE_SECONDS), self.executor.now()) {
            Duration::ZERO => {
                let patch = api::json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}});
                self.patch(&key, patch).await
            }
            left => Ok(Next::After(left)),
        }
    }

    async fn patch(&self, key: &Key, patch: Value) -> Result<Next, Failure> {
        let action = Action::Patch {
            resource: RANGES,
            namespace: Text::default(),
            name: key.name.clone(),
            subresource: "",
            kind: Patch::StrategicMerge,
            patch,
        };
        match self.executor.perform(key, vec![action]).await {
            Err(failure) if failure.code() == 404 => Ok(Next::Done),
            result => outcome::next(result),
        }
    }

    /// Sets the condition `Ready`, unless it is already set.
    async fn say(&self, key: &Key, range: &Value, is: &str, reason: &str, message: &str) -> Result<(), Failure> {
        if says(range, is, reason, message) {
            return Ok(());
        }
        let fields = api::json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": (key.name.clone())},
            "status": {"conditions": [{
                "type": "Ready", "status": is, "reason": reason, "message": message,
                "lastTransitionTime": (self.executor.now().to_string()),
            }]},
        });
        self.client.documents(RANGES).apply("", &key.name, "status", &fields, MANAGER, true).await?;
        Ok(())
    }
}

fn has_finalizer(range: &Value) -> bool {
    let finalizers = range.list_at(&["metadata", "finalizers"]);
    finalizers.iter().any(|it| it.as_str() == Some(FINALIZER))
}

/// Whether the condition `Ready` is already this.
fn says(range: &Value, is: &str, reason: &str, message: &str) -> bool {
    let conditions = range.list_at(&["status", "conditions"]);
    let field = |it: &Value, name: &str| it.text(name).to_owned();
    conditions
        .iter()
        .filter(|it| field(it, "type") == "Ready")
        .any(|it| field(it, "status") == is && field(it, "reason") == reason && field(it, "message") == message)
}

fn parts(range: &Value) -> Vec<Range> {
    let parts = range.list_at(&["spec", "cidrs"]);
    parts.iter().filter_map(Value::as_str).filter_map(Range::parse).collect()
}

/// Whether every part of a range is in another one.
fn is_covered(range: &Value, all: &[Arc<Value>]) -> bool {
    let others = || all.iter().filter(|it| metadata::name(it) != metadata::name(range)).flat_map(|it| parts(it));
    parts(range).iter().all(|part| others().any(|other| other.contains(part)))
}

/// Whether an address is in this range and in no other.
fn needs(address: &Value, range: &Value, all: &[Arc<Value>]) -> bool {
    let Ok(address) = metadata::name(address).parse::<IpAddr>() else { return false };
    let mut holders = all.iter().filter(|it| parts(it).iter().any(|part| part.gives_out(address)));
    holders.next().is_some_and(|it| metadata::name(it) == metadata::name(range)) && holders.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(name: &str, parts: &[&str]) -> Arc<Value> {
        let parts: Vec<Value> = parts.iter().map(|it| Value::from(*it)).collect();
        Arc::new(api::json!({"metadata": {"name": name}, "spec": {"cidrs": parts}}))
    }

    #[test]
    fn a_range_stays_while_an_address_is_only_in_it() {
        let (wide, narrow) = (range("wide", &["10.0.0.0/16"]), range("narrow", &["10.0.1.0/24"]));
        let all = [wide.clone(), narrow.clone()];
        assert!(is_covered(&narrow, &all) && !is_covered(&wide, &all));
        let address = |name: &str| api::json!({"metadata": {"name": name}});
        assert!(needs(&address("10.0.2.1"), &wide, &all));
        assert!(!needs(&address("10.0.1.1"), &wide, &all), "the narrow one has it, too");
        assert!(!needs(&address("10.9.0.1"), &wide, &all));
        assert!(!needs(&address("10.0.1.1"), &narrow, &all));
        assert!(needs(&address("10.0.1.1"), &narrow, std::slice::from_ref(&narrow)));
        let both = range("both", &["10.0.0.0/16", "fd00::/64"]);
        assert!(!is_covered(&both, &[wide, both.clone()]), "one part is not enough");
    }

    #[test]
    fn a_condition_is_said_once() {
        let range =
            api::json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "", "message": "m"}]}});
        assert!(says(&range, "True", "", "m"));
        assert!(!says(&range, "True", "", "other"));
        assert!(!says(&api::json!({}), "True", "", "m"));
    }
}
