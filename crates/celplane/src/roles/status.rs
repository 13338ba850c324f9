//! Health and metrics of a component that has a process of its own: `/healthz`, `/livez`, `/readyz`, `/metrics`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use client::Health;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use telemetry::metrics::Registry;
use tokio::net::TcpListener;

/// Serves until the process ends.
pub(crate) async fn serve(address: SocketAddr, registry: Arc<Registry>, health: Health) -> Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Most often there are no more file descriptors: wait until there are.
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            };
            let (registry, health) = (registry.clone(), health.clone());
            let service = service_fn(move |request| {
                let answer = answer(&request, &registry, &health);
                async move { Ok::<_, Infallible>(answer) }
            });
            tokio::spawn(
                http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    Ok(())
}

fn answer(request: &Request<Incoming>, registry: &Registry, health: &Health) -> Response<Full<Bytes>> {
    let (code, text) = match request.uri().path() {
        "/metrics" => (StatusCode::OK, registry.text()),
        "/livez" => (StatusCode::OK, "ok".to_owned()),
        "/healthz" | "/readyz" => report(health),
        _ => (StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = code;
    response
}

fn report(health: &Health) -> (StatusCode, String) {
    let failures = health.failures();
    if failures.is_empty() {
        return (StatusCode::OK, "ok".to_owned());
    }
    let lines = failures.iter().map(|(check, why)| format!("[-]{check} failed: {why}\n"));
    (StatusCode::INTERNAL_SERVER_ERROR, lines.collect())
}
