//! Health, metrics and profiles of a component in its own process: `/healthz`, `/livez`, `/readyz`, `/metrics`,
//! `/configz` and `/debug/profile`; `/health` and `/ready` are the paths of CoreDNS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use apiserver::identity::User;
use apiserver::server::listen;
use bytes::Bytes;
use client::Health;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use scheduler::profile::Profiler;
use telemetry::metrics::Registry;
use tokio::net::TcpListener;

use super::access::{Access, AccessRejection};

/// Default duration of a profile.
const PROFILE_SECONDS: u64 = 30;
/// Maximum duration of a profile.
const PROFILE_SECONDS_MAX: u64 = 300;

/// Address and access of the status port.
pub struct Place {
    /// The address to listen on.
    pub address: SocketAddr,
    /// Over TLS to authorized clients; without it, to all clients.
    pub access: Option<Access>,
}

/// Contents of the status port.
pub struct Page {
    /// Metrics.
    pub registry: Arc<Registry>,
    /// Health checks.
    pub health: Health,
    /// Profiles, where they are served.
    pub profiler: Option<Profiler>,
    /// The configuration, as JSON.
    pub configuration: Option<String>,
}

/// Takes a port.
pub async fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

/// Serves until the process ends, under the limits and timeouts of the API server.
pub async fn serve(place: Place, page: Page) -> Result<()> {
    let listener = listen(place.address).await?;
    let tls = place.access.as_ref().map(|access| access.tls());
    let (access, page) = (place.access.map(Arc::new), Arc::new(page));
    let answer: listen::Page = Arc::new(move |request: Request<Incoming>, user: Option<Arc<User>>| {
        let (access, page) = (access.clone(), page.clone());
        Box::pin(async move {
            respond(&request, access.as_deref(), user.as_deref(), &page).await.map(listen::PageBody::from)
        })
    });
    tokio::spawn(match tls {
        Some(tls) => listen::serve_renewed_pages(answer, listener, tls),
        None => listen::serve_pages(answer, listener, None),
    });
    Ok(())
}

async fn respond(
    request: &Request<Incoming>,
    access: Option<&Access>,
    user: Option<&User>,
    page: &Page,
) -> Response<Bytes> {
    let path = request.uri().path();
    if let Some(access) = access {
        let header = request.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap_or_default());
        let token = header.map(|value| value.strip_prefix("Bearer ").unwrap_or_default());
        if let Err(AccessRejection { code, message }) = access.check(user, token, path).await {
            return answer(code, "text/plain; charset=utf-8", message);
        }
    }
    let text = "text/plain; charset=utf-8";
    match (path, &page.profiler, &page.configuration) {
        ("/metrics", ..) => answer(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", page.registry.text()),
        ("/livez" | "/health", ..) => answer(StatusCode::OK, text, "ok".to_owned()),
        ("/healthz" | "/readyz" | "/ready", ..) => {
            let (code, said) = report(&page.health, request.uri().query().unwrap_or_default(), path);
            answer(code, text, said)
        }
        ("/configz", _, Some(configuration)) => answer(StatusCode::OK, "application/json", configuration.clone()),
        ("/debug/profile", Some(profiler), _) => match seconds(request.uri().query().unwrap_or_default()) {
            Some(seconds) => answer(StatusCode::OK, text, profiler.take(Duration::from_secs(seconds)).await),
            None => {
                let said = format!("seconds must be a number from 1 to {PROFILE_SECONDS_MAX}\n");
                answer(StatusCode::BAD_REQUEST, text, said)
            }
        },
        _ => answer(StatusCode::NOT_FOUND, text, "404 page not found\n".to_owned()),
    }
}

fn answer(code: StatusCode, content_type: &'static str, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}

/// Requested duration of a profile.
fn seconds(query: &str) -> Option<u64> {
    let given = query.split('&').find_map(|pair| pair.strip_prefix("seconds="));
    let seconds = given.map_or(Ok(PROFILE_SECONDS), str::parse).ok()?;
    (1..=PROFILE_SECONDS_MAX).contains(&seconds).then_some(seconds)
}

fn report(health: &Health, query: &str, path: &str) -> (StatusCode, String) {
    let results = health.results();
    let fails = results.iter().any(|(_, result)| result.is_err());
    let is_verbose = query.split('&').any(|pair| pair == "verbose" || pair.starts_with("verbose="));
    let code = if fails { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK };
    if !fails && !is_verbose {
        return (code, "ok".to_owned());
    }
    let lines = results.iter().map(|(check, result)| match result {
        Ok(()) => format!("[+]{check} ok\n"),
        Err(why) => format!("[-]{check} failed: {why}\n"),
    });
    let said = if fails { "failed" } else { "passed" };
    let lines: String = lines.collect();
    (code, format!("{lines}{} check {said}\n", path.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_lists_checks_on_failure_or_request() {
        let health = Health::new();
        health.add("a", || Ok(()));
        assert_eq!(report(&health, "", "/readyz"), (StatusCode::OK, "ok".to_owned()));
        assert_eq!(report(&health, "verbose", "/readyz").1, "[+]a ok\nreadyz check passed\n");
        health.add("b", || Err("gone".to_owned()));
        let (code, said) = report(&health, "", "/healthz");
        assert_eq!((code.as_u16(), said.as_str()), (500, "[+]a ok\n[-]b failed: gone\nhealthz check failed\n"));
    }

    #[test]
    fn profiles_have_a_length() {
        assert_eq!((seconds(""), seconds("seconds=5")), (Some(PROFILE_SECONDS), Some(5)));
        assert_eq!([seconds("seconds=0"), seconds("seconds=x"), seconds("seconds=9999")], [None; 3]);
    }
}
