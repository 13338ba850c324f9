//! Files that come from objects: ConfigMaps, Secrets, tokens, and the pod itself.

use std::time::Duration;

use api::json::Value;
use api::time::Timestamp;

use super::super::environment;
use super::super::manifest;
use super::super::sources::Holder;
use super::files::{Entries, Entry};
use super::{Mounting, id};

/// The mode of files without one of their own.
const MODE: u32 = 0o644;
/// The lifetime of a token that gives none.
const TOKEN_SECONDS: i64 = 3600;

/// The files of a volume, and when its tokens must be renewed.
#[derive(Debug, Clone, Default)]
pub(super) struct Payload {
    pub(super) files: Entries,
    pub(super) renewal: Option<Timestamp>,
}

/// The directory name of a volume's type, and whether it is kept in memory; nothing for other types.
pub(super) fn plugin(volume: &Value) -> Option<(&'static str, bool)> {
    let kinds = [
        ("configMap", "kubernetes.io~configmap", false),
        ("secret", "kubernetes.io~secret", true),
        ("projected", "kubernetes.io~projected", true),
        ("downwardAPI", "kubernetes.io~downward-api", true),
    ];
    kinds.into_iter().find(|(field, ..)| volume.get(field).is_some()).map(|(_, name, memory)| (name, memory))
}

/// The present files of a volume. Tokens that are not due for renewal are taken from `known`.
pub(super) async fn collect(
    mounting: &Mounting<'_>,
    volume: &Value,
    known: Option<&Payload>,
) -> Result<Payload, String> {
    let mut payload = Payload::default();
    let mode_of = |source: &Value| source.i64_at(&["defaultMode"]).and_then(|it| u32::try_from(it).ok());
    if let Some(source) = volume.get("configMap") {
        held(mounting, Holder::ConfigMap, source.text("name"), source, mode_of(source), &mut payload).await?;
    } else if let Some(source) = volume.get("secret") {
        held(mounting, Holder::Secret, source.text("secretName"), source, mode_of(source), &mut payload).await?;
    } else if let Some(source) = volume.get("downwardAPI") {
        downward(mounting, source, mode_of(source), &mut payload)?;
    } else if let Some(source) = volume.get("projected") {
        let mode = mode_of(source);
        for part in source.list("sources") {
            if let Some(source) = part.get("configMap") {
                held(mounting, Holder::ConfigMap, source.text("name"), source, mode, &mut payload).await?;
            } else if let Some(source) = part.get("secret") {
                held(mounting, Holder::Secret, source.text("name"), source, mode, &mut payload).await?;
            } else if let Some(source) = part.get("downwardAPI") {
                downward(mounting, source, mode, &mut payload)?;
            } else if let Some(source) = part.get("serviceAccountToken") {
                token(mounting, source, mode, known, &mut payload).await?;
            } else {
                return Err("projected sources of this type are not supported by this node agent".to_owned());
            }
        }
    }
    Ok(payload)
}

async fn held(
    mounting: &Mounting<'_>,
    holder: Holder,
    name: &str,
    source: &Value,
    mode: Option<u32>,
    payload: &mut Payload,
) -> Result<(), String> {
    let is_optional = source.flag("optional");
    let namespace = &mounting.pod.metadata.namespace;
    let data = mounting.sources.data(holder, namespace, name).await.map_err(|error| error.to_string())?;
    let Some(data) = data else {
        return if is_optional { Ok(()) } else { Err(format!("{} \"{name}\" not found", holder.lower())) };
    };
    let items = source.list("items");
    if items.is_empty() {
        for (key, bytes) in data {
            payload.files.insert(key, Entry { bytes, mode: mode.unwrap_or(MODE), owner: None });
        }
        return Ok(());
    }
    for item in items {
        let key = item.text("key");
        match data.get(key) {
            Some(bytes) => {
                let mode = item.i64_at(&["mode"]).and_then(|it| u32::try_from(it).ok()).or(mode).unwrap_or(MODE);
                let entry = Entry { bytes: bytes.clone(), mode, owner: None };
                payload.files.insert(item.text("path").to_owned(), entry);
            }
            None if is_optional => {}
            None => return Err(format!("{} references non-existent config key: {key}", holder.lower())),
        }
    }
    Ok(())
}

fn downward(mounting: &Mounting<'_>, source: &Value, mode: Option<u32>, payload: &mut Payload) -> Result<(), String> {
    for item in source.list("items") {
        let value = if let Some(reference) = item.get("fieldRef") {
            environment::field(mounting.pod, mounting.manifest, reference.text("fieldPath"), mounting.facts)?
        } else if let Some(reference) = item.get("resourceFieldRef") {
            let name = reference.text("containerName");
            let (_, container) =
                manifest::find(mounting.manifest, name).ok_or_else(|| format!("container {name} not found"))?;
            environment::resource(container, reference, mounting.facts)?
        } else {
            continue;
        };
        let mode = item.i64_at(&["mode"]).and_then(|it| u32::try_from(it).ok()).or(mode).unwrap_or(MODE);
        payload.files.insert(item.text("path").to_owned(), Entry { bytes: value.into_bytes(), mode, owner: None });
    }
    Ok(())
}

async fn token(
    mounting: &Mounting<'_>,
    source: &Value,
    mode: Option<u32>,
    known: Option<&Payload>,
    payload: &mut Payload,
) -> Result<(), String> {
    let path = source.text("path");
    let seconds = source.i64_at(&["expirationSeconds"]).unwrap_or(TOKEN_SECONDS);
    let due = known.and_then(|known| known.renewal);
    if let (Some(entry), Some(due)) = (known.and_then(|known| known.files.get(path)), due)
        && due > mounting.now
    {
        payload.files.insert(path.to_owned(), entry.clone());
        payload.renewal = payload.renewal.map_or(Some(due), |other| Some(other.min(due)));
        return Ok(());
    }
    let (pod, manifest) = (mounting.pod, mounting.manifest);
    let account = manifest.text_at(&["spec", "serviceAccountName"]);
    let of_pod = (pod.metadata.name.as_str(), pod.metadata.uid.as_str());
    let audience = source.text("audience");
    let made = mounting.sources.token(&pod.metadata.namespace, account, of_pod, audience, seconds).await;
    let made = made.map_err(|error| format!("failed to fetch token: {error}"))?;
    let owner = common_user(manifest);
    let mode = if owner.is_some() { 0o600 } else { mode.unwrap_or(MODE) };
    payload.files.insert(path.to_owned(), Entry { bytes: made.into_bytes(), mode, owner });
    // Renewed after four fifths of its time, as upstream does.
    let lifetime = u64::try_from(seconds).unwrap_or(0).saturating_mul(4).checked_div(5).unwrap_or(0);
    let renewal = mounting.now.plus(Duration::from_secs(lifetime));
    payload.renewal = payload.renewal.map_or(Some(renewal), |other| Some(other.min(renewal)));
    Ok(())
}

/// The user that all containers run as, if the pod sets one.
fn common_user(manifest: &Value) -> Option<u32> {
    let of_pod = manifest.i64_at(&["spec", "securityContext", "runAsUser"]);
    let user = |container: &Value| container.i64_at(&["securityContext", "runAsUser"]).or(of_pod);
    let mut users = manifest::containers(manifest).map(|(_, container)| user(container));
    let first = users.next()??;
    if users.all(|user| user == Some(first)) { id(Some(first)) } else { None }
}
