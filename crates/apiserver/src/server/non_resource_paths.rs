//! Handlers of paths that are not resources: discovery, OpenAPI, health, version, metrics. Their rows are in `routes`.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::kubernetes;
use http::header::IF_NONE_MATCH;

use super::routes::PathRequest;
use super::{Server, not_found};
use crate::aggregator::{self, RemoteVersion, documents};
use crate::custom::{Edition, Snapshot};
use crate::openapi::{AggregatedDocument, v2};
use crate::resources;
use crate::serving::discovery;
use crate::storage::health;
use crate::wire::answer::Answer;
use crate::wire::negotiation;
use crate::wire::request::Query;
use crate::wire::status::{Failure, Result};

/// The content type of metrics.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// The check in `/readyz` that fails while nothing can be written, as on a full disk.
const WRITABLE: &str = "store-writable";

/// Time limit for the health check of the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// A request for an OpenAPI document.
struct DocumentRequest {
    server: Arc<Server>,
    customs: Arc<Snapshot>,
    aggregated: Arc<aggregator::Snapshot>,
    path: String,
    query: Query,
    headers: http::HeaderMap,
}

impl DocumentRequest {
    fn answer(&self) -> Answer {
        let if_none_match = if_none_match(&self.headers);
        if let Some(rest) = self.path.strip_prefix("/openapi/v3") {
            let (rest, accept) = (rest.trim_start_matches('/'), negotiation::accept(&self.headers));
            let (openapi, aggregated) = (self.server.openapi(), self.aggregated_documents());
            let answer = openapi.answer(rest, &self.query, &accept, if_none_match, &self.customs, &aggregated);
            return answer.unwrap_or_else(|| Answer::bytes(404, "", ""));
        }
        let accept = self.headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok());
        let edition = self.edition();
        let edition = edition.as_deref().unwrap_or(&self.customs.older_openapi);
        let document = || {
            let mut document = v2::document(&self.server.options.runtime_config, &self.customs);
            documents::merge_older(&mut document, self.aggregated.remotes());
            document
        };
        v2::answer(accept.unwrap_or_default(), if_none_match, edition, &document)
    }

    /// The documents of aggregated APIs.
    fn aggregated_documents(&self) -> Vec<AggregatedDocument> {
        let path = |remote: &RemoteVersion| format!("apis/{}/{}", remote.group, remote.version);
        let of_remote = |it: &RemoteVersion| it.documents.openapi.clone().map(|(text, hash)| (path(it), text, hash));
        self.aggregated.remotes().iter().filter_map(of_remote).collect()
    }

    /// The older document of everything with aggregated APIs; none if those have none.
    fn edition(&self) -> Option<Arc<OnceLock<Edition>>> {
        if self.aggregated.remotes().iter().all(|it| it.documents.older_openapi.is_none()) {
            return None;
        }
        let mut known = self.aggregated.older_openapi.lock();
        if let Some((customs, edition)) = &*known
            && customs.upgrade().is_some_and(|it| Arc::ptr_eq(&it, &self.customs))
        {
            return Some(edition.clone());
        }
        let edition = Arc::default();
        *known = Some((Arc::downgrade(&self.customs), Arc::clone(&edition)));
        Some(edition)
    }
}

fn if_none_match(headers: &http::HeaderMap) -> &str {
    headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The Kubernetes release whose API this is.
pub(super) fn version() -> Answer {
    let (minor, build) = (kubernetes::MINOR, kubernetes::BUILD);
    let before = minor.saturating_sub(1);
    let text = format!(
        r#"{{
  "major": "1",
  "minor": "{minor}",
  "emulationMajor": "1",
  "emulationMinor": "{minor}",
  "minCompatibilityMajor": "1",
  "minCompatibilityMinor": "{before}",
  "gitVersion": "{build}",
  "gitCommit": "",
  "gitTreeState": "clean",
  "buildDate": "1970-01-01T00:00:00Z",
  "goVersion": "",
  "compiler": "rustc",
  "platform": "linux/amd64"
}}"#
    );
    Answer::bytes(200, "application/json", text)
}

pub(super) fn metrics(server: &Server) -> Answer {
    Answer::bytes(200, METRICS_TYPE, server.metrics.text())
}

pub(super) fn component_metrics(request: &PathRequest<'_>) -> Answer {
    let text = request.server.components.metrics(request.segment(1));
    text.map_or_else(not_found, |text| Answer::bytes(200, METRICS_TYPE, text))
}

/// Answers a request for a discovery document.
fn discover(
    request: &PathRequest<'_>,
    answer: impl FnOnce(discovery::ServedApis<'_>) -> Result<Answer>,
) -> Result<Answer> {
    let snapshot = request.server.customs.snapshot();
    let aggregated = request.server.aggregator.snapshot();
    let config = &request.server.options.runtime_config;
    answer(discovery::ServedApis { config, customs: &snapshot, aggregated: &aggregated })
}

pub(super) fn api(request: &PathRequest<'_>) -> Result<Answer> {
    let accepted = negotiation::negotiate(&request.parts.headers)?;
    let address = &request.server.options.address;
    discover(request, |served| Ok(discovery::api(&accepted, if_none_match(&request.parts.headers), address, served)))
}

pub(super) fn apis(request: &PathRequest<'_>) -> Result<Answer> {
    request.server.aggregator.count_aggregation();
    let accepted = negotiation::negotiate(&request.parts.headers)?;
    discover(request, |served| Ok(discovery::apis(&accepted, if_none_match(&request.parts.headers), served)))
}

pub(super) fn core_version(request: &PathRequest<'_>) -> Result<Answer> {
    discover(request, |served| discovery::group_version("", request.segment(1), served))
}

pub(super) fn group(request: &PathRequest<'_>) -> Result<Answer> {
    discover(request, |served| Ok(discovery::group(request.segment(1), served).unwrap_or_else(not_found)))
}

pub(super) fn group_version(request: &PathRequest<'_>) -> Result<Answer> {
    let (group, version) = (request.segment(1), request.segment(2));
    discover(request, |served| {
        if served.has_version(group, version) {
            return discovery::group_version(group, version, served);
        }
        if resources::groups().iter().any(|(it, _)| *it == group) {
            return Err(Failure::no_resource());
        }
        Ok(not_found())
    })
}

pub(super) async fn openapi(request: &PathRequest<'_>) -> Result<Answer> {
    let asked = DocumentRequest {
        server: request.server.clone(),
        customs: request.server.customs.snapshot(),
        aggregated: request.server.aggregator.snapshot(),
        path: request.path.to_owned(),
        query: request.query.clone(),
        headers: request.parts.headers.clone(),
    };
    // Documents take a while to build, and all clients may request them.
    let failed = || Failure::internal("the document could not be made");
    request.server.threads().run(move || asked.answer()).await.ok_or_else(failed)
}

pub(super) async fn health(request: &PathRequest<'_>) -> Answer {
    let PathRequest { server, query, segments, .. } = *request;
    if request.path != request.sent_path {
        return not_found();
    }
    let name = request.segment(0);
    let store = server.options.store_name;
    let components = if name == "livez" { Vec::new() } else { server.components.checks() };
    let mut checks: Vec<&str> = vec!["ping", "log", store, "watch-cache"];
    if name == "readyz" {
        checks.push(WRITABLE);
    }
    checks.extend(components.iter().map(|(check, _)| check.as_str()));
    if name == "readyz" {
        checks.push("shutdown");
    }
    // Probes that were written for Kubernetes know the store by this name.
    let named = |check| if check == "etcd" { store } else { check };
    let excluded: Vec<&str> = query.all("exclude").map(named).collect();
    let one = segments.get(1).map(|check| named(check));
    let excluded_store = excluded.contains(&store) || one.is_some_and(|it| it != store);
    let store_is_away = !excluded_store && {
        let answered = tokio::time::timeout(STORE_TIMEOUT, server.store.current_revision()).await;
        !matches!(answered, Ok(Ok(_)))
    };
    let asks_writable = one.map_or(name == "readyz" && !excluded.contains(&WRITABLE), |one| one == WRITABLE);
    let unwritable = if asks_writable { health::trouble(&*server.store).await } else { None };
    // A store that cannot be reached fails the check of the store, not this one as well.
    let is_away = |it: &store::Error| matches!(it, store::Error::Unavailable(_) | store::Error::TimedOut(_));
    let unwritable = unwritable.filter(|it| !is_away(it));
    let stopping = *server.stopping.borrow();
    let component_failed = |check: &str| components.iter().any(|(it, healthy)| it == check && !healthy);
    let failed = |check: &str| {
        check == "shutdown" && stopping
            || check == store && store_is_away
            || check == WRITABLE && unwritable.is_some()
            || component_failed(check)
    };
    // Kubernetes does not publish why a check fails; a full disk is an exception, because every user needs to
    // know it.
    let why = |check: &str| match &unwritable {
        Some(full @ store::Error::Full { .. }) if check == WRITABLE => full.to_string(),
        _ => "reason withheld".to_owned(),
    };
    if let Some(one) = one {
        return match checks.contains(&one) {
            false => not_found(),
            true if failed(one) && one == WRITABLE => {
                Answer::text(500, format!("internal server error: {one} failed: {}\n", why(one)))
            }
            true if failed(one) => Answer::text(500, format!("internal server error: {one} failed\n")),
            true => Answer::text(200, "ok"),
        };
    }
    let mut lines = String::new();
    let mut healthy = true;
    for check in &checks {
        if excluded.contains(check) {
            lines.push_str(&format!("[+]{check} excluded: ok\n"));
        } else if failed(check) {
            healthy = false;
            lines.push_str(&format!("[-]{check} failed: {}\n", why(check)));
        } else {
            lines.push_str(&format!("[+]{check} ok\n"));
        }
    }
    if !healthy {
        return Answer::text(500, format!("{lines}{name} check failed\n"));
    }
    if query.has("verbose") {
        return Answer::text(200, format!("{lines}{name} check passed\n"));
    }
    Answer::text(200, "ok")
}
