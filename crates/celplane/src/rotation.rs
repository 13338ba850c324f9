//! Files that may be replaced while the server runs: certificates, tokens and keys.
//!
//! They are looked at every second and read again when one has changed. A file that cannot be used is reported, and what
//! was read before stays in force.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use apiserver::Server;
use apiserver::identity::keys::KeyRing;
use apiserver::identity::{Authenticator, User};
use apiserver::server::listen::{self, TlsAcceptor};
use apiserver::serving::presence::Authorities;
use tokio::sync::watch;
use tracing::{error, info};

/// How often the files are looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// What the server reads besides its store.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    /// The server's certificate with its chain, and its key.
    pub(crate) serving: (PathBuf, PathBuf),
    /// The authorities of client certificates.
    pub(crate) client_authorities: Vec<PathBuf>,
    /// Static tokens.
    pub(crate) tokens: Option<PathBuf>,
    /// The key that signs service account tokens.
    pub(crate) signing_key: PathBuf,
    /// More keys that verify them.
    pub(crate) keys: Vec<PathBuf>,
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))
}

impl Files {
    /// The files in a directory that `Bundle::load_or_create` has filled.
    pub(crate) fn own(directory: &Path) -> Self {
        Self {
            serving: (directory.join("apiserver.crt"), directory.join("apiserver.key")),
            client_authorities: vec![directory.join("ca.crt")],
            tokens: None,
            signing_key: directory.join("sa.key"),
            keys: Vec::new(),
        }
    }

    pub(crate) fn tls(&self) -> Result<TlsAcceptor> {
        let (chain, key) = (read(&self.serving.0)?, read(&self.serving.1)?);
        Ok(listen::tls_from_pem(&chain, &key, &self.client_authorities()?)?)
    }

    /// The authorities of client certificates, as PEM.
    pub(crate) fn client_authorities(&self) -> Result<String> {
        let authorities: Result<Vec<String>> = self.client_authorities.iter().map(|path| read(path)).collect();
        Ok(authorities?.join("\n"))
    }

    pub(crate) fn users(&self) -> Result<std::collections::HashMap<String, User>> {
        let Some(path) = &self.tokens else { return Ok(std::collections::HashMap::new()) };
        Authenticator::parse_tokens(&read(path)?).with_context(|| format!("cannot use `{}`", path.display()))
    }

    pub(crate) fn key_ring(&self) -> Result<KeyRing> {
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

    /// Follows the files until the server is gone.
    pub(crate) async fn follow(self, server: Arc<Server>, tls: watch::Sender<TlsAcceptor>, announced: Authorities) {
        let mut seen = self.changed();
        while !tls.is_closed() {
            tokio::time::sleep(INTERVAL).await;
            let now = self.changed();
            if now == seen {
                continue;
            }
            seen = now;
            let acceptor = self.tls().and_then(|acceptor| Ok((acceptor, self.client_authorities()?)));
            match (acceptor, self.users(), self.key_ring()) {
                (Ok((acceptor, authorities)), Ok(users), Ok(keys)) => {
                    tls.send_replace(acceptor);
                    announced.set(authorities);
                    server.set_tokens(users);
                    server.set_keys(keys);
                    info!("Read certificates, tokens and keys again");
                }
                (tls, users, keys) => {
                    for error in [tls.err(), users.err(), keys.err()].into_iter().flatten() {
                        error!(err = %format!("{error:#}"), "Could not read a file that has changed");
                    }
                }
            }
        }
    }
}
