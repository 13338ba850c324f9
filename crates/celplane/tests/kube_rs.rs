//! A small controller, written with kube-rs alone and over the network: what a user's own operator would do.

use crate::cluster;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::Cluster;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher;
use kube::{Api, Client, Resource as _, ResourceExt as _};

/// For every ConfigMap with the label there is a Secret with its number of entries.
const LABEL: &str = "counted=yes";
const LIMIT: Duration = Duration::from_secs(60);

async fn reconcile(map: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let secrets: Api<Secret> = Api::namespaced((*client).clone(), &map.namespace().unwrap());
    let count = map.data.as_ref().map_or(0, BTreeMap::len);
    let owner = OwnerReference { controller: Some(true), ..map.owner_ref(&()).unwrap() };
    let secret = Secret {
        metadata: ObjectMeta { name: Some(map.name_any()), owner_references: Some(vec![owner]), ..Default::default() },
        string_data: Some([("count".to_owned(), count.to_string())].into()),
        ..Default::default()
    };
    match secrets.create(&PostParams::default(), &secret).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let patch = Patch::Merge(&secret);
            secrets.patch(&map.name_any(), &PatchParams::default(), &patch).await?;
        }
        Err(error) => return Err(error),
    }
    Ok(Action::await_change())
}

fn counts(wanted: &'static str) -> impl Fn(Option<&Secret>) -> bool {
    move |secret| secret.and_then(|it| it.data.as_ref()?.get("count")).is_some_and(|it| it.0 == wanted.as_bytes())
}

fn map(name: &str, entries: &[&str], labels: &[(&str, &str)]) -> ConfigMap {
    let texts =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), labels: Some(texts(labels)), ..Default::default() },
        data: Some(entries.iter().map(|key| ((*key).to_owned(), String::new())).collect()),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_keeps_up_with_its_objects() {
    let cluster = Cluster::start_in(tempfile::tempdir().unwrap());
    let file = kube::config::Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    assert_eq!(client.apiserver_version().await.unwrap().major, "1");
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    maps.create(&PostParams::default(), &map("before", &["a"], &[("counted", "yes")])).await.unwrap();
    maps.create(&PostParams::default(), &map("other", &["a"], &[])).await.unwrap();
    let controller = Controller::new(maps.clone(), watcher::Config::default().labels(LABEL))
        .owns(secrets.clone(), watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(100)), Arc::new(client.clone()));
    let controller = tokio::spawn(controller.for_each(|_| async {}));
    let reaches = |name: &'static str, wanted: &'static str| {
        let secrets = secrets.clone();
        async move { tokio::time::timeout(LIMIT, await_condition(secrets, name, counts(wanted))).await.unwrap().unwrap() }
    };
    reaches("before", "1").await;
    maps.create(&PostParams::default(), &map("after", &["a", "b"], &[("counted", "yes")])).await.unwrap();
    reaches("after", "2").await;
    let patch = Patch::Merge(map("after", &["c"], &[]));
    maps.patch("after", &PatchParams::default(), &patch).await.unwrap();
    reaches("after", "3").await;
    // Owned objects are recreated.
    let uid = secrets.get("after").await.unwrap().uid().unwrap();
    secrets.delete("after", &DeleteParams::default()).await.unwrap();
    tokio::time::timeout(LIMIT, await_condition(secrets.clone(), "after", conditions::is_deleted(&uid)))
        .await
        .unwrap()
        .unwrap();
    reaches("after", "3").await;
    let all = secrets.list(&ListParams::default().limit(1)).await.unwrap();
    assert_eq!(
        (all.items.len(), all.metadata.remaining_item_count),
        (1, Some(1)),
        "none for the map without the label"
    );
    controller.abort();
}
