//! Counts the usage of quotas, and writes it to their status.
//!
//! Creations are charged by the server's admission at once; here everything is recounted when an object is
//! deleted, when a limit changes, and every five minutes. `usage` counts. Follows Kubernetes
//! `pkg/controller/resourcequota`.

mod usage;

use locks::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use api::core::v1::{PersistentVolumeClaim, Pod, ResourceList, ResourceQuota, Service};
use api::json::{Object, Text, Value};
use api::meta::v1::ObjectMeta;
use api::resource::v1::{DeviceClass, ResourceClaim};
use client::controller::{Controller, Next};
use client::discovery::Discovery;
use client::informer::{Change, Informer, Key};
use client::resources::ServedView as _;
use client::{Document, Informers, Queue};

use self::usage::{Content, counted, is_other, used};
use crate::machinery::action::Action;
use crate::machinery::executor::{Executor, Failure};
use crate::machinery::expectations::UNSETTLED;
use crate::manager::Context;
use crate::network::services::BY_NAMESPACE;
use crate::settings::Settings;
use crate::{machinery::edit, machinery::metadata, machinery::outcome};

struct Quotas {
    quotas: Informer<Document<ResourceQuota>>,
    pods: Informer<Pod>,
    services: Informer<Service>,
    claims: Informer<PersistentVolumeClaim>,
    device_claims: Informer<Document<ResourceClaim>>,
    device_classes: Informer<DeviceClass>,
    informers: Arc<Informers>,
    executor: Executor,
    settings: Arc<Settings>,
    queue: Weak<Queue<Key>>,
    /// Other objects that quotas count, by the name that counts them; followed from the first quota on that does.
    others: Mutex<HashMap<Text, Informer<ObjectMeta>>>,
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let informers = &context.informers;
    let quotas = informers.all::<Document<ResourceQuota>>();
    let (pods, services) = (informers.all::<Pod>(), informers.all::<Service>());
    let claims = informers.all::<PersistentVolumeClaim>();
    let device_claims = informers.all::<Document<ResourceClaim>>();
    let device_classes = informers.all::<DeviceClass>();
    device_claims.store().add_index(BY_NAMESPACE, |it| vec![it.metadata.namespace.clone()]);
    quotas.store().add_index(BY_NAMESPACE, |it| vec![it.metadata.namespace.clone()]);
    pods.store().add_index(BY_NAMESPACE, |it| vec![it.metadata.namespace.clone()]);
    services.store().add_index(BY_NAMESPACE, |it| vec![it.metadata.namespace.clone()]);
    claims.store().add_index(BY_NAMESPACE, |it| vec![it.metadata.namespace.clone()]);
    let executor = context.executor();
    executor.expectations().follow(&quotas, &ResourceQuota::RESOURCE.plural);
    let near = |known: &Informer<Document<ResourceQuota>>| {
        let known = known.clone();
        move |namespace: &str| {
            let quotas = known.store().by_index(BY_NAMESPACE, namespace);
            quotas.iter().map(|quota| edit::key(quota.metadata())).collect::<Vec<Key>>()
        }
    };
    let (of_quota, of_pod, of_service, of_claim) = (near(&quotas), near(&quotas), near(&quotas), near(&quotas));
    let of_device_claim = near(&quotas);
    let runner = Controller::new(context.name, &context.runtime)
        .watch_changes(&quotas, move |change| match change {
            Change::Updated { old, new } if old.spec == new.spec => Vec::new(),
            Change::Deleted(gone) => {
                let mut keys = of_quota(&gone.metadata.namespace);
                keys.push(edit::key(gone.metadata()));
                keys
            }
            _ => vec![edit::key(change.newest().metadata())],
        })
        .watch_changes(&pods, move |change| match change {
            Change::Deleted(pod) => of_pod(&pod.metadata.namespace),
            Change::Updated { old, new } if new.is_terminal() && !old.is_terminal() => of_pod(&new.metadata.namespace),
            _ => Vec::new(),
        })
        .watch_changes(&services, move |change| match change {
            Change::Deleted(it) => of_service(&it.metadata.namespace),
            Change::Updated { old, new } if old.spec != new.spec => of_service(&new.metadata.namespace),
            _ => Vec::new(),
        })
        .watch_changes(&claims, move |change| match change {
            Change::Deleted(it) => of_claim(&it.metadata.namespace),
            _ => Vec::new(),
        })
        .watch_changes(&device_claims, move |change| match change {
            Change::Deleted(it) => of_device_claim(&it.metadata.namespace),
            _ => Vec::new(),
        })
        .workers(5);
    let controller = Arc::new(Quotas {
        quotas,
        pods,
        services,
        claims,
        device_claims,
        device_classes,
        informers: context.informers.clone(),
        executor,
        settings: context.settings.clone(),
        queue: Arc::downgrade(runner.queue()),
        others: Mutex::default(),
    });
    runner
        .run(move |key| {
            let controller = controller.clone();
            async move { controller.reconcile(key).await }
        })
        .await;
}

impl Quotas {
    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        let Some(quota) = self.quotas.store().get_key(&key) else {
            self.executor.forget(&key);
            return Ok(Next::Done);
        };
        if !self.executor.settled(&key) {
            return Ok(Next::After(UNSETTLED));
        }
        self.follow_others(&quota).await?;
        let (pods, services, claims) = (
            self.pods.store().by_index(BY_NAMESPACE, &key.namespace),
            self.services.store().by_index(BY_NAMESPACE, &key.namespace),
            self.claims.store().by_index(BY_NAMESPACE, &key.namespace),
        );
        let pods: Vec<&Pod> = pods.iter().map(|it| &**it).collect();
        let services: Vec<&Service> = services.iter().map(|it| &**it).collect();
        let claims: Vec<&PersistentVolumeClaim> = claims.iter().map(|it| &**it).collect();
        let device_claims = self.device_claims.store().by_index(BY_NAMESPACE, &key.namespace);
        let device_claims: Vec<&ResourceClaim> = device_claims.iter().map(|it| &***it).collect();
        let extended_resource =
            |class: &str| self.device_classes.store().get("", class)?.spec.extended_resource_name.clone();
        let counts = |resource: &str| self.count(resource, &key.namespace);
        // INVARIANT: the quota is in this store, so that it is among those that are counted.
        let quotas = self.quotas.store().by_index(BY_NAMESPACE, &key.namespace).len();
        let content = Content {
            pods: &pods,
            services: &services,
            claims: &claims,
            device_claims: &device_claims,
            extended_resource: &extended_resource,
            quotas,
            counts: &counts,
        };
        let actions = written(&quota, &used(&quota, &content)).into_iter().collect();
        match outcome::next(self.executor.perform(&key, actions).await)? {
            Next::Done => Ok(Next::After(self.settings.quota_period)),
            next => Ok(next),
        }
    }

    fn count(&self, resource: &str, namespace: &str) -> i64 {
        let others = self.others.lock();
        let Some(informer) = others.get(resource) else { return 0 };
        let count = informer.store().list().iter().filter(|it| it.namespace == namespace).count();
        i64::try_from(count).unwrap_or(i64::MAX)
    }

    /// Starts informers for the kinds that a quota counts and that have none yet.
    async fn follow_others(&self, quota: &ResourceQuota) -> Result<(), client::Error> {
        let missing: Vec<Text> = {
            let others = self.others.lock();
            let names = quota.spec.hard.keys().filter_map(|name| counted(name));
            names.filter(|name| is_other(name) && !others.contains_key(*name)).map(Text::from).collect()
        };
        if missing.is_empty() {
            return Ok(());
        }
        let discovery = self.executor.client().discover().await?;
        for name in missing {
            let Some(informer) = self.informer(&discovery, &name) else { continue };
            informer.synced().await;
            self.others.lock().insert(name, informer);
        }
        Ok(())
    }

    fn informer(&self, discovery: &Discovery, name: &str) -> Option<Informer<ObjectMeta>> {
        let (plural, group) = name.split_once('.').unwrap_or((name, ""));
        let mut all = discovery.resources.iter().filter(|it| it.preferred && it.allows(&["list", "watch"]));
        let served = all.find(|it| it.resource.plural == plural && it.resource.group == group)?;
        let informer = metadata::informer(&self.informers, &served.resource);
        let (quotas, queue) = (self.quotas.clone(), self.queue.clone());
        informer.on_change_while(move |_, change| {
            let Some(queue) = queue.upgrade() else { return false };
            if let Change::Deleted(gone) = change {
                let near = quotas.store().by_index(BY_NAMESPACE, &gone.namespace);
                near.iter().for_each(|quota| queue.add(edit::key(quota.metadata())));
            }
            true
        });
        Some(informer)
    }
}

/// Returns the quota with its new status, if that differs.
fn written(quota: &Document<ResourceQuota>, used: &ResourceList) -> Option<Action> {
    let (hard, status) = (&quota.spec.hard, &quota.status);
    if status.hard == *hard && status.used == *used {
        return None;
    }
    let list = |list: &ResourceList| -> Object {
        list.iter().map(|(name, amount)| (name.clone(), Value::from(amount.to_string()))).collect()
    };
    let mut object = quota.to_value();
    let status = api::json!({"hard": (list(hard)), "used": (list(used))});
    object.set_at(&["status"], status);
    Some(Action::UpdateStatus { resource: ResourceQuota::RESOURCE, object })
}
