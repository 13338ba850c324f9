//! Images of containers: presence, pulling with the pod's secrets, and back-off.
//!
//! Follows `images/image_manager.go` of Kubernetes' kubelet in reasons, messages and events.

use locks::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::time::Duration;

use api::core::v1::Pod;
use api::json::Value;
use api::time::Timestamp;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cri::messages as m;
use cri::{Client, Code, Status};

use super::back_off::BackOff;
use super::events::Events;
use super::manifest::Kind;
use super::sources::{Holder, Sources};
use client::events::Severity::{self, Normal, Warning};

/// A failure that makes a container wait: the reason, and a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WaitingReason {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl WaitingReason {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// Pulls images, each pod's at its own pace.
#[derive(Default)]
pub(super) struct Images {
    /// By the pod's uid and the image.
    attempts: Mutex<HashMap<(String, String), Attempt>>,
}

/// Failed pulls of an image for a pod.
#[derive(Debug, Default)]
struct Attempt {
    back_off: BackOff,
    /// The last failure.
    why: String,
    /// Pull secrets that the last attempt did not find.
    missing_secrets: Vec<String>,
}

/// An image that is wanted, for a container or for a volume of the pod.
#[derive(Clone, Copy)]
pub(super) struct WantedImage<'w> {
    pub(super) pod: &'w Pod,
    pub(super) manifest: &'w Value,
    /// The container that events name; nothing for volumes.
    pub(super) container: Option<(Kind, &'w Value)>,
    pub(super) name: &'w str,
    /// The pull policy, may be empty.
    pub(super) policy: &'w str,
    pub(super) sandbox: &'w m::PodSandboxConfig,
    pub(super) now: Timestamp,
}

impl WantedImage<'_> {
    fn report(&self, events: &Events, severity: Severity, reason: &str, message: &str) {
        match self.container {
            Some((kind, container)) => events.container(self.pod, kind, container, severity, reason, message),
            None => events.pod(self.pod, severity, reason, message),
        }
    }
}

impl Images {
    fn attempts(&self) -> MutexGuard<'_, HashMap<(String, String), Attempt>> {
        self.attempts.lock()
    }

    /// Drops the state of a pod's pulls.
    pub(super) fn forget(&self, uid: &str) {
        self.attempts().retain(|(of, _), _| of != uid);
    }

    /// The pull secrets that the last failed pull of an image did not find.
    pub(super) fn missing_secrets(&self, pod: &Pod, name: &str) -> Vec<String> {
        let key = (pod.metadata.uid.to_string(), name.to_owned());
        self.attempts().get(&key).map(|it| it.missing_secrets.clone()).unwrap_or_default()
    }

    /// Makes an image present and returns it.
    pub(super) async fn ensure(
        &self,
        runtime: &Client,
        sources: &Sources,
        events: &Events,
        wanted: &WantedImage<'_>,
    ) -> Result<m::Image, WaitingReason> {
        let name = wanted.name;
        let report = |severity, reason, message: &str| wanted.report(events, severity, reason, message);
        if let Err(why) = check_name(name) {
            let message = format!("Failed to apply default image tag \"{name}\": {why}");
            report(Warning, "InspectFailed", &message);
            return Err(WaitingReason::new("InvalidImageName", message));
        }
        let present = image(runtime, name).await.map_err(|status| {
            let message = format!("Failed to inspect image \"{name}\": {}", shown(&status));
            report(Warning, "InspectFailed", &message);
            WaitingReason::new("ImageInspectError", message)
        })?;
        let policy = match wanted.policy {
            "" => "IfNotPresent",
            given => given,
        };
        match (policy, present) {
            ("IfNotPresent" | "Never", Some(present)) => {
                let message =
                    format!("Container image \"{name}\" already present on machine and can be accessed by the pod");
                report(Normal, "Pulled", &message);
                return Ok(present);
            }
            ("Never", None) => {
                let message = format!("Container image \"{name}\" is not present with pull policy of Never");
                report(Warning, "ErrImageNeverPull", &message);
                return Err(WaitingReason::new("ErrImageNeverPull", message));
            }
            _ => {}
        }
        self.pull(runtime, sources, events, wanted, name).await
    }

    async fn pull(
        &self,
        runtime: &Client,
        sources: &Sources,
        events: &Events,
        wanted: &WantedImage<'_>,
        name: &str,
    ) -> Result<m::Image, WaitingReason> {
        let report = |severity, reason, message: &str| wanted.report(events, severity, reason, message);
        let key = (wanted.pod.metadata.uid.to_string(), name.to_owned());
        let held = self.attempts().get(&key).and_then(|it| it.back_off.left(wanted.now).map(|_| it.why.clone()));
        if let Some(why) = held {
            let message = format!("Back-off pulling image \"{name}\"");
            report(Normal, "BackOff", &message);
            return Err(WaitingReason::new("ImagePullBackOff", format!("{message}: {why}")));
        }
        report(Normal, "Pulling", &format!("Pulling image \"{name}\""));
        let begun = std::time::Instant::now();
        let spec = m::ImageSpec { image: name.to_owned(), ..m::ImageSpec::default() };
        let mut outcome = None;
        let (credentials, missing_secrets) = credentials(sources, wanted, name).await;
        for auth in credentials {
            let request =
                m::PullImageRequest { image: Some(spec.clone()), auth, sandbox_config: Some(wanted.sandbox.clone()) };
            let answer = runtime.pull_image(request).await;
            let is_over = answer.is_ok();
            outcome = Some(answer);
            if is_over {
                break;
            }
        }
        match outcome.unwrap_or_else(|| Err(Status::internal("no attempt was made"))) {
            Ok(answer) => {
                self.attempts().remove(&key);
                let pulled = image(runtime, name)
                    .await
                    .ok()
                    .flatten()
                    .unwrap_or_else(|| m::Image { id: answer.image_ref.clone(), ..m::Image::default() });
                let took = begun.elapsed();
                let message = format!(
                    "Successfully pulled image \"{name}\" in {took} ({took} including waiting). Image size: {} bytes.",
                    pulled.size,
                    took = seconds(took)
                );
                report(Normal, "Pulled", &message);
                Ok(pulled)
            }
            Err(status) => {
                let why = shown(&status);
                report(Warning, "Failed", &format!("Failed to pull image \"{name}\": {why}"));
                let mut attempts = self.attempts();
                let attempt = attempts.entry(key).or_default();
                attempt.back_off.fail(wanted.now);
                attempt.why = format!("ErrImagePull: {why}");
                attempt.missing_secrets = missing_secrets;
                Err(WaitingReason::new("ErrImagePull", why))
            }
        }
    }
}

/// The image of a name, if it is present.
pub(super) async fn image(runtime: &Client, name: &str) -> Result<Option<m::Image>, Status> {
    let spec = m::ImageSpec { image: name.to_owned(), ..m::ImageSpec::default() };
    let answer = runtime.image_status(m::ImageStatusRequest { image: Some(spec), verbose: false }).await?;
    Ok(answer.image.filter(|image| !image.id.is_empty()))
}

/// A status as Go prints it, without its code where upstream removes that.
pub(super) fn shown(status: &Status) -> String {
    match status.code() {
        Code::NotFound => format!("rpc error: code = NotFound desc = {}", status.message()),
        _ => status.message().to_owned(),
    }
}

/// A duration as Go prints it, in seconds or milliseconds.
fn seconds(duration: Duration) -> String {
    match duration.as_millis() {
        millis @ 0..1000 => format!("{millis}ms"),
        _ => format!("{:.3}s", duration.as_secs_f64()),
    }
}

/// Rejects a name that cannot be an image's.
fn check_name(name: &str) -> Result<(), String> {
    let bad = |why: &str| Err(format!("couldn't parse image name \"{name}\": invalid reference format{why}"));
    let (rest, digest) = name.split_once('@').map_or((name, None), |(rest, digest)| (rest, Some(digest)));
    let last = rest.rsplit('/').next().unwrap_or_default();
    let (repository, tag) = match last.split_once(':') {
        Some((_, tag)) => (rest.strip_suffix(&format!(":{tag}")).unwrap_or(rest), Some(tag)),
        None => (rest, None),
    };
    let has_registry = repository.split_once('/').is_some_and(|(first, _)| is_registry(first));
    let path = if has_registry { repository.split_once('/').map_or("", |(_, path)| path) } else { repository };
    if path.bytes().any(|byte| byte.is_ascii_uppercase()) {
        let full = if has_registry || path.contains('/') { path.to_owned() } else { format!("library/{path}") };
        return bad(&format!(": repository name ({full}) must be lowercase"));
    }
    let is_part = |part: &str| {
        part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte))
            && part.starts_with(|it: char| it.is_ascii_alphanumeric())
            && part.ends_with(|it: char| it.is_ascii_alphanumeric())
    };
    let tag_fits = tag.is_none_or(|tag| {
        !tag.is_empty() && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    });
    let digest_fits = digest.is_none_or(|digest| {
        digest.split_once(':').is_some_and(|(_, hex)| hex.len() >= 32 && hex.bytes().all(|it| it.is_ascii_hexdigit()))
    });
    if path.is_empty() || !path.split('/').all(is_part) || !tag_fits || !digest_fits { bad("") } else { Ok(()) }
}

fn is_registry(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost"
}

/// The registry of an image's name.
fn registry(name: &str) -> &str {
    name.split_once('/').map(|(first, _)| first).filter(|first| is_registry(first)).unwrap_or("docker.io")
}

/// The credentials to try, one after the other; `None` is an anonymous pull. Also returns the secrets that were not found.
async fn credentials(
    sources: &Sources,
    wanted: &WantedImage<'_>,
    name: &str,
) -> (Vec<Option<m::AuthConfig>>, Vec<String>) {
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for secret in wanted.manifest.list_at(&["spec", "imagePullSecrets"]) {
        let secret = secret.text("name");
        match sources.data(Holder::Secret, &wanted.pod.metadata.namespace, secret).await {
            Ok(Some(data)) => {
                for (key, below) in [(".dockerconfigjson", true), (".dockercfg", false)] {
                    let parsed = data.get(key).and_then(|bytes| api::json::parse(bytes).ok());
                    let all = parsed.and_then(|it| if below { it.get("auths").cloned() } else { Some(it) });
                    found.extend(all.map(|all| matching_credentials(&all, registry(name))).unwrap_or_default());
                }
            }
            _ => missing.push(secret.to_owned()),
        }
    }
    let all = if found.is_empty() { vec![None] } else { found.into_iter().map(Some).collect() };
    (all, missing)
}

fn matching_credentials(all: &Value, registry: &str) -> Vec<m::AuthConfig> {
    let host = |key: &str| -> String {
        let key = key.trim_start_matches("https://").trim_start_matches("http://");
        let host = key.split('/').next().unwrap_or_default();
        if host == "index.docker.io" { "docker.io".to_owned() } else { host.to_owned() }
    };
    let entries = all.as_object().into_iter().flat_map(|all| all.iter());
    entries
        .filter(|(key, _)| host(key) == registry)
        .map(|(_, entry)| {
            let (mut username, mut password) = (entry.text("username").to_owned(), entry.text("password").to_owned());
            let decoded = STANDARD.decode(entry.text("auth")).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            if let Some((user, secret)) = decoded.as_deref().and_then(|it| it.split_once(':')) {
                (username, password) = (user.to_owned(), secret.trim_end_matches('\0').to_owned());
            }
            m::AuthConfig { username, password, ..m::AuthConfig::default() }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images_are_checked() {
        let digest = "a@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        for good in ["busybox", "a/b:1", "localhost:5000/x:latest", "registry.k8s.io/pause:3.10", digest] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        assert_eq!(
            check_name("Not_A:Valid:Name").unwrap_err(),
            "couldn't parse image name \"Not_A:Valid:Name\": invalid reference format: repository name (library/Not_A) must be lowercase"
        );
        for bad in ["", "a b", "a:", "-a", "a//b", "a@sha256:x"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn credentials_are_chosen_by_registry() {
        let all = api::json!({
            "https://index.docker.io/v1/": {"auth": (STANDARD.encode("u:p:x"))},
            "other.example:5000": {"username": "a", "password": "b"},
        });
        let found = matching_credentials(&all, registry("busybox:1"));
        assert_eq!((found.len(), found[0].username.as_str(), found[0].password.as_str()), (1, "u", "p:x"));
        assert_eq!(matching_credentials(&all, registry("other.example:5000/x"))[0].username, "a");
        assert!(matching_credentials(&all, registry("quay.io/x")).is_empty());
    }
}
