//! Health, metrics and profiles of a component that has a process of its own: `/healthz`, `/livez`, `/readyz`, `/metrics`,
//! `/configz` and `/debug/profile`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use apiserver::identity::{User, subject};
use bytes::Bytes;
use client::Health;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use scheduler::profile::Profiler;
use telemetry::metrics::Registry;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tracing::debug;

use super::access::{Access, Refused};

/// How long a client has for its certificate and for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a profile is taken unless the client says,
const PROFILE_SECONDS: u64 = 30;
/// and at most.
const PROFILE_SECONDS_MAX: u64 = 300;

/// Where it is served, and to whom.
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    /// Over TLS to those who may; without, to everybody.
    pub(crate) access: Option<Access>,
}

/// What is served.
pub(crate) struct Page {
    pub(crate) registry: Arc<Registry>,
    pub(crate) health: Health,
    pub(crate) profiler: Option<Profiler>,
    /// The configuration, as JSON.
    pub(crate) configuration: Option<String>,
}

/// Takes a port.
pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

/// Serves until the process ends.
pub(crate) async fn serve(place: Place, page: Page) -> Result<()> {
    let listener = listen(place.address).await?;
    let (access, page) = (place.access.map(Arc::new), Arc::new(page));
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Most often there are no more file descriptors: wait until there are.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            tokio::spawn(connection(stream, access.clone(), page.clone()));
        }
    });
    Ok(())
}

async fn connection(stream: TcpStream, access: Option<Arc<Access>>, page: Arc<Page>) {
    let Some(access) = access else { return converse(stream, None, None, page).await };
    let stream = match tokio::time::timeout(HEAD_TIMEOUT, access.tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return debug!(err = %error, "Connection ended"),
        Err(_) => return,
    };
    let certificates = stream.get_ref().1.peer_certificates();
    // Whom a certificate names must be clear before anything is answered.
    let user = certificates.and_then(|chain| chain.first()).map(|shown| subject(shown)).transpose();
    let Ok(user) = user else { return };
    converse(stream, Some(access), user.flatten().map(Arc::new), page).await;
}

async fn converse<S>(stream: S, access: Option<Arc<Access>>, user: Option<Arc<User>>, page: Arc<Page>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (access, user, page) = (access.clone(), user.clone(), page.clone());
        async move { Ok::<_, Infallible>(respond(&request, access.as_deref(), user.as_deref(), &page).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder.http2().timer(TokioTimer::new());
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        debug!(err = %error, "Connection ended");
    }
}

async fn respond(
    request: &Request<Incoming>,
    access: Option<&Access>,
    user: Option<&User>,
    page: &Page,
) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    if let Some(access) = access {
        let header = request.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap_or_default());
        let token = header.map(|value| value.strip_prefix("Bearer ").unwrap_or_default());
        if let Err(Refused { code, message }) = access.check(user, token, path).await {
            return answer(code, "text/plain; charset=utf-8", message);
        }
    }
    let text = "text/plain; charset=utf-8";
    match (path, &page.profiler, &page.configuration) {
        ("/metrics", ..) => answer(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", page.registry.text()),
        ("/livez", ..) => answer(StatusCode::OK, text, "ok".to_owned()),
        ("/healthz" | "/readyz", ..) => {
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

fn answer(code: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}

/// How long a profile is to be taken.
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
    fn health_tells_each_check_when_one_fails_or_somebody_asks() {
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
