//! Paths that are not resources: discovery, OpenAPI, health, version, metrics.

use std::sync::Arc;
use std::time::Duration;

use http::header::IF_NONE_MATCH;
use percent_encoding::percent_decode_str;

use super::{Server, backup, not_found, openid};
use crate::authorization::Request;
use crate::custom::Snapshot;
use crate::http::answer::Answer;
use crate::http::negotiation;
use crate::http::request::Query;
use crate::http::status::{Failure, Result};
use crate::identity::User;
use crate::resources;
use crate::serving::discovery;
use crate::serving::openapi::v2;
use crate::storage::health;

/// What `/version` says: the Kubernetes release whose API this is.
const VERSION: &str = concat!(
    "{\n  \"major\": \"1\",\n  \"minor\": \"38\",\n  \"emulationMajor\": \"1\",\n  \"emulationMinor\": \"38\",\n",
    "  \"minCompatibilityMajor\": \"1\",\n  \"minCompatibilityMinor\": \"37\",\n",
    "  \"gitVersion\": \"v1.38.0-alpha.0+celplane-",
    env!("CARGO_PKG_VERSION"),
    "\",\n  \"gitCommit\": \"\",\n  \"gitTreeState\": \"clean\",\n",
    "  \"buildDate\": \"1970-01-01T00:00:00Z\",\n  \"goVersion\": \"\",\n  \"compiler\": \"rustc\",\n",
    "  \"platform\": \"linux/amd64\"\n}"
);

/// The check in `/readyz` that fails while nothing can be written, as on a full disk.
const WRITABLE: &str = "store-writable";

/// How long the store may take to show that it is there.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// A request for an OpenAPI document.
struct Documented {
    server: Arc<Server>,
    customs: Arc<Snapshot>,
    path: String,
    query: Query,
    headers: http::HeaderMap,
}

impl Documented {
    fn answer(&self) -> Answer {
        let if_none_match = if_none_match(&self.headers);
        if let Some(rest) = self.path.strip_prefix("/openapi/v3") {
            let (rest, accept) = (rest.trim_start_matches('/'), negotiation::accept(&self.headers));
            let (openapi, customs) = (self.server.openapi(), self.customs.openapi());
            return openapi.answer(rest, &self.query, &accept, if_none_match, customs).unwrap_or_else(not_found);
        }
        let accept = self.headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok());
        let config = &self.server.options.runtime_config;
        v2::answer(accept.unwrap_or_default(), if_none_match, config, &self.customs)
    }
}

fn if_none_match(headers: &http::HeaderMap) -> &str {
    headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

pub(super) async fn answer(
    server: &Arc<Server>,
    parts: &http::request::Parts,
    query: &Query,
    user: &User,
) -> Result<Answer> {
    let whole = percent_decode_str(parts.uri.path()).decode_utf8_lossy();
    let whole = &*whole;
    let path = whole.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or(whole);
    let verb = parts.method.as_str().to_lowercase();
    let asked = Request::Path { verb: &verb, path: whole };
    if server.authorizer.authorize(user, asked).is_err() {
        server.catch_up().await;
        server.authorizer.authorize(user, asked)?;
    }
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let snapshot = server.customs.snapshot();
    let customs = &*snapshot;
    let config = &server.options.runtime_config;
    let served = discovery::Served { config, customs };
    let if_none_match = if_none_match(&parts.headers);
    match segments.as_slice() {
        ["version"] if parts.method != http::Method::GET => Err(Failure::method_not_allowed()),
        ["version"] => Ok(Answer::bytes(200, "application/json", VERSION)),
        ["healthz" | "livez" | "readyz", ..] if path != whole => Ok(not_found()),
        ["healthz" | "livez" | "readyz", ..] => Ok(health(server, &segments, query).await),
        ["metrics"] => {
            let content_type = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
            Ok(Answer::bytes(200, content_type, server.metrics.text()))
        }
        // Kubernetes: who lists all groups may ask with any method.
        ["api" | "apis", ..]
            if segments != ["apis"] && !matches!(parts.method, http::Method::GET | http::Method::HEAD) =>
        {
            Err(Failure::method_not_allowed())
        }
        ["store", "backup"] if parts.method == http::Method::GET => backup::answer(server).await,
        ["metrics", component] => {
            let content_type = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
            let text = server.components.metrics(component);
            Ok(text.map_or_else(not_found, |text| Answer::bytes(200, content_type, text)))
        }
        ["api"] => {
            let accepted = negotiation::negotiate(&parts.headers)?;
            Ok(discovery::api(&accepted, if_none_match, &server.options.address, served))
        }
        ["apis"] => Ok(discovery::apis(&negotiation::negotiate(&parts.headers)?, if_none_match, served)),
        ["api", version] => discovery::group_version("", version, served),
        ["apis", group] => Ok(discovery::group(group, served).unwrap_or_else(not_found)),
        ["apis", group, version] if served.has_version(group, version) => {
            discovery::group_version(group, version, served)
        }
        ["apis", group, _] if resources::groups().iter().any(|(it, _)| it == group) => Err(Failure::no_resource()),
        ["openapi", "v3", ..] | ["openapi", "v2"] => {
            let asked = Documented {
                server: server.clone(),
                customs: snapshot.clone(),
                path: path.to_owned(),
                query: query.clone(),
                headers: parts.headers.clone(),
            };
            // Documents take a while to make, and everybody may ask for them.
            let failed = || Failure::internal("the document could not be made");
            server.threads().run(move || asked.answer()).await.ok_or_else(failed)
        }
        [".well-known", "openid-configuration"] => Ok(openid::configuration(server)),
        ["openid", "v1", "jwks"] => Ok(openid::keys(server)),
        [""] => {
            let mut paths: Vec<String> = [
                "/.well-known/openid-configuration",
                "/api",
                "/apis",
                "/healthz",
                "/livez",
                "/metrics",
                "/openapi/v2",
                "/openapi/v3",
                "/openid/v1/jwks",
                "/readyz",
                backup::PATH,
                "/version",
            ]
            .map(ToOwned::to_owned)
            .to_vec();
            for (group, versions) in discovery::all_groups(served) {
                for version in versions {
                    paths.push(if group.is_empty() {
                        format!("/api/{version}")
                    } else {
                        format!("/apis/{group}/{version}")
                    });
                }
                if !group.is_empty() {
                    paths.push(format!("/apis/{group}"));
                }
            }
            paths.sort();
            let paths: Vec<api::json::Value> = paths.into_iter().map(Into::into).collect();
            Ok(Answer::json(200, &api::json!({"paths": paths})))
        }
        _ => Ok(not_found()),
    }
}

async fn health(server: &Arc<Server>, segments: &[&str], query: &Query) -> Answer {
    let name = segments.first().copied().unwrap_or_default();
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
    // Kubernetes tells nobody why a check fails; that the disk is full is what everybody needs to know.
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
