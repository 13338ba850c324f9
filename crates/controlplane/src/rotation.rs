//! Files that may be replaced while the server runs: certificates, tokens and keys.
//!
//! They are checked every second and reloaded when one has changed. A file that cannot be used is reported, and
//! the previous contents stay in effect.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use apiserver::Server;
use apiserver::identity::keys::KeyRing;
use apiserver::identity::{Authenticator, User};
use apiserver::server::listen::{self, TlsAcceptor};
use apiserver::serving::presence::Authorities;
use clock::Clock;
use telemetry::logs::chain;
use tokio::sync::watch;
use tracing::{error, info};

/// Interval of the checks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Files that the server reads besides its store.
#[derive(Debug, Clone)]
pub struct Files {
    /// The server's certificate with its chain, and its key.
    pub serving: (PathBuf, PathBuf),
    /// The authorities of client certificates.
    pub client_authorities: Vec<PathBuf>,
    /// Static tokens.
    pub tokens: Option<PathBuf>,
    /// The key that signs service account tokens.
    pub signing_key: PathBuf,
    /// Additional public keys that verify service account tokens.
    pub keys: Vec<PathBuf>,
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))
}

impl Files {
    /// The files in a directory that `Bundle::load_or_create` has filled.
    pub fn own(directory: &Path) -> Self {
        Self {
            serving: (directory.join("apiserver.crt"), directory.join("apiserver.key")),
            client_authorities: vec![directory.join("ca.crt")],
            tokens: None,
            signing_key: directory.join("sa.key"),
            keys: Vec::new(),
        }
    }

    /// TLS with the server's certificate, for clients with certificates of the authorities that have not expired by the
    /// clock.
    ///
    /// # Errors
    /// A file that cannot be used.
    pub fn tls(&self, clock: &Clock) -> Result<TlsAcceptor> {
        let (chain, key) = (read(&self.serving.0)?, read(&self.serving.1)?);
        Ok(listen::tls_by_clock(&chain, &key, &self.client_authorities()?, clock)?)
    }

    /// The authorities of client certificates, as PEM.
    pub fn client_authorities(&self) -> Result<String> {
        let authorities: Result<Vec<String>> = self.client_authorities.iter().map(|path| read(path)).collect();
        Ok(authorities?.join("\n"))
    }

    /// The users of the static tokens.
    ///
    /// # Errors
    /// A file that cannot be used.
    pub fn users(&self) -> Result<std::collections::HashMap<String, User>> {
        let Some(path) = &self.tokens else { return Ok(std::collections::HashMap::new()) };
        Authenticator::parse_tokens(&read(path)?).with_context(|| format!("cannot use `{}`", path.display()))
    }

    /// The keys of service account tokens.
    ///
    /// # Errors
    /// A file that cannot be used.
    pub fn key_ring(&self) -> Result<KeyRing> {
        let mut keys = KeyRing::load_or_create(&self.signing_key)?;
        for path in &self.keys {
            keys.accept(&read(path)?).with_context(|| format!("cannot use `{}`", path.display()))?;
        }
        Ok(keys)
    }

    fn changed(&self) -> Vec<Option<(SystemTime, u64)>> {
        let (certificate, key) = &self.serving;
        let single = [certificate, key, &self.signing_key];
        let all = single.into_iter().chain(&self.client_authorities).chain(&self.tokens).chain(&self.keys);
        all.map(|path| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        })
        .collect()
    }

    /// Follows the files until the server ends.
    pub async fn follow(self, server: Arc<Server>, tls: watch::Sender<TlsAcceptor>, announced: Authorities) {
        let mut seen = self.changed();
        while !tls.is_closed() {
            tokio::time::sleep(INTERVAL).await;
            let now = self.changed();
            if now == seen {
                continue;
            }
            seen = now;
            let acceptor = self.tls(server.clock()).and_then(|acceptor| Ok((acceptor, self.client_authorities()?)));
            match (acceptor, self.users(), self.key_ring()) {
                (Ok((acceptor, authorities)), Ok(users), Ok(keys)) => {
                    tls.send_replace(acceptor);
                    announced.set(authorities);
                    server.set_tokens(users);
                    server.set_keys(keys);
                    info!("Reloaded certificates, tokens and keys");
                }
                (tls, users, keys) => {
                    for error in [tls.err(), users.err(), keys.err()].into_iter().flatten() {
                        error!(err = %chain(error.as_ref()), "Could not reload a file that has changed");
                    }
                }
            }
        }
    }
}
