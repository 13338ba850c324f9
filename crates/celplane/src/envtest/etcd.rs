//! `etcd` for test environments: its API on plain HTTP, in front of a store in memory.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use store::{EmbeddedStore, Store};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::flags::{Flag, Flags};

/// Flags without a meaning for one member in memory.
const IGNORED: &[&str] = &[
    "advertise-client-urls",
    "auto-compaction-mode",
    "auto-compaction-retention",
    "data-dir",
    "initial-advertise-peer-urls",
    "initial-cluster",
    "initial-cluster-state",
    "initial-cluster-token",
    "listen-metrics-urls",
    "listen-peer-urls",
    "log-level",
    "log-outputs",
    "logger",
    "max-request-bytes",
    "name",
    "quota-backend-bytes",
    "snapshot-count",
    "unsafe-no-fsync",
    "wal-dir",
];

/// Serves until it is stopped.
pub(super) fn run(given: &[String]) -> Result<ExitCode> {
    if given.iter().any(|flag| matches!(flag.as_str(), "--help" | "-h" | "-help")) {
        super::print_line("etcd as served by celplane, for envtest: objects are kept in memory. Flags:\n")?;
        super::print_line("  --listen-client-urls")?;
        super::print_line(&format!("\nFlags without effect: --{}", IGNORED.join(", --")))?;
        return Ok(ExitCode::SUCCESS);
    }
    if given.iter().any(|flag| matches!(flag.as_str(), "--version" | "-version")) {
        super::print_line("etcd Version: 3.6.0\ncelplane: objects are kept in memory")?;
        return Ok(ExitCode::SUCCESS);
    }
    let addresses = addresses(given)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(serve(addresses))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(addresses: Vec<SocketAddr>) -> Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let store: Arc<dyn Store> =
        Arc::new(EmbeddedStore::in_memory(store::Options::default()).context("cannot start the store")?);
    let mut servers = tokio::task::JoinSet::new();
    for address in addresses {
        let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
        servers.spawn(store::etcd::server::serve(listener, store.clone()));
    }
    tokio::select! {
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        Some(ended) = servers.join_next() => ended.context("a server failed"),
    }
}

/// The addresses of `--listen-client-urls`, etcd's default if there is none.
fn addresses(given: &[String]) -> Result<Vec<SocketAddr>> {
    let mut addresses = Vec::new();
    for Flag { name, value } in Flags::parse(given, |_| None)? {
        match name.as_str() {
            "listen-client-urls" => {
                for url in value.unwrap_or_default().split(',') {
                    addresses.push(address(url)?);
                }
            }
            name if IGNORED.contains(&name) => {
                crate::output::complain_line!("etcd: --{name} has no effect in celplane")
            }
            name => bail!("flag provided but not defined: -{name}"),
        }
    }
    if addresses.is_empty() {
        addresses.push(address("http://localhost:2379")?);
    }
    Ok(addresses)
}

fn address(url: &str) -> Result<SocketAddr> {
    let Some(host) = url.strip_prefix("http://") else {
        bail!("`{url}` cannot be served: only http:// on loopback is");
    };
    let host = host.trim_end_matches('/').replace("localhost:", "127.0.0.1:");
    let address: SocketAddr = host.parse().with_context(|| format!("`{url}` is not an address with a port"))?;
    // Without TLS and users, every client of the port has full access.
    if !address.ip().is_loopback() {
        bail!("`{url}` cannot be served: only http:// on loopback is");
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_http_on_loopback_is_served() {
        assert_eq!(address("http://127.0.0.1:2379").unwrap().port(), 2379);
        assert_eq!(address("http://localhost:1/").unwrap().to_string(), "127.0.0.1:1");
        assert!(address("http://[::1]:5").is_ok());
        for refused in ["https://127.0.0.1:1", "http://0.0.0.0:1", "http://10.0.0.1:1", "http://127.0.0.1", ""] {
            assert!(address(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn flags_that_matter_and_are_unknown_are_errors() {
        let flags = |flags: &[&str]| addresses(&flags.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(flags(&["--data-dir=/x", "--unsafe-no-fsync=true"]).unwrap().len(), 1);
        assert!(flags(&["--client-cert-auth=true"]).is_err());
    }
}
