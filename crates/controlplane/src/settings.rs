//! Settings of an API server with a data directory.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use apiserver::Options;
use apiserver::audit::Audit;
use apiserver::audit::log::{Log, Rotation};
use apiserver::audit::policy::Policy;
pub use apiserver::server::{Faults, Refusal};
use apiserver::serving::certificates::front_proxy::FrontProxy;
use store::etcd::{self, Etcd};
use store::{EmbeddedStore, Store};
use tokio::net::TcpListener;

use crate::rotation::Files;

/// The store's file in the data directory.
pub const STORE_FILE: &str = "store.redb";

/// Settings of an API server.
#[derive(Clone)]
pub struct ServerSettings {
    /// Directory of the store, the certificates and `admin.kubeconfig`.
    pub data_dir: PathBuf,
    /// Address to listen on.
    pub bind_address: IpAddr,
    /// Port to listen on; 0 takes a free one.
    pub port: u16,
    /// Address at which clients inside the cluster find the server; the one it listens on if not set.
    pub advertise_address: Option<IpAddr>,
    /// Kind of the store.
    pub store: StoreSettings,
    /// Files with identities beside those of the data directory.
    pub identity: IdentityFiles,
    /// Audit log.
    pub audit: Option<AuditSettings>,
    /// Ports of this machine at which separate simulated nodes serve logs. The server connects to no other loopback port
    /// that a Node names.
    pub node_log_ports: Vec<u16>,
    /// Behavior of the server. Address, tokens, audit log and store are set at the start.
    pub options: Options,
}

impl ServerSettings {
    /// A server with its data in a directory, on a free port of this machine, with all other settings as by default.
    #[must_use]
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            bind_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            advertise_address: None,
            store: StoreSettings::File { free_bytes_min: store::Options::default().free_bytes_min },
            identity: IdentityFiles::default(),
            audit: None,
            node_log_ports: Vec::new(),
            options: Options { node_fleet: true, resource_metrics: true, ..Options::default() },
        }
    }
}

/// Kinds of stores.
#[derive(Clone)]
pub enum StoreSettings {
    /// All objects in memory.
    Memory {
        /// Free bytes of the file system below which only deletes are accepted.
        free_bytes_min: u64,
    },
    /// A file in the data directory.
    File {
        /// Free bytes of the file system below which only deletes are accepted.
        free_bytes_min: u64,
    },
    /// An etcd.
    Etcd {
        /// Connection to the members.
        options: etcd::Options,
        /// Interval at which one of the servers compacts etcd; none for never.
        compaction_interval: Option<Duration>,
    },
}

/// Files with identities, beside those of the data directory. All are read again when they change.
#[derive(Debug, Clone, Default)]
pub struct IdentityFiles {
    /// Static tokens: `token,user,uid,"group1,group2"`.
    pub token_auth_file: Option<PathBuf>,
    /// Authorities whose client certificates are accepted, beside the server's own.
    pub client_ca_file: Option<PathBuf>,
    /// The server's certificate with its chain, and its key.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The key that signs service account tokens.
    pub service_account_signing_key_file: Option<PathBuf>,
    /// Further keys whose service account tokens are accepted.
    pub service_account_key_file: Vec<PathBuf>,
    /// The identity towards aggregated API servers; one of the data directory if not set. Read at the start only.
    pub front_proxy: Option<FrontProxyFiles>,
}

/// Files of the identity towards aggregated API servers.
#[derive(Debug, Clone)]
pub struct FrontProxyFiles {
    /// The client certificate with its chain.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// CA certificates with which aggregated API servers verify this server.
    pub authorities: PathBuf,
    /// Names in certificates that aggregated API servers accept; any if there are none.
    pub allowed_names: Vec<String>,
}

impl FrontProxyFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// A file that cannot be read, or holds no certificate or key.
    pub fn read(&self) -> Result<FrontProxy> {
        let read = |path: &Path, wanted: &str| {
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
            let is_usable = text.contains(&format!("{wanted}-----"));
            anyhow::ensure!(is_usable, "`{}` contains no {}", path.display(), wanted.to_lowercase());
            Ok(text)
        };
        Ok(FrontProxy {
            authorities: read(&self.authorities, "CERTIFICATE")?,
            certificate: read(&self.certificate, "CERTIFICATE")?,
            key: read(&self.key, "PRIVATE KEY")?,
            allowed_names: self.allowed_names.clone(),
        })
    }
}

/// Settings of the audit log.
#[derive(Debug, Clone)]
pub struct AuditSettings {
    /// Audit policy.
    pub policy: Policy,
    /// File of the log; `-` for standard output.
    pub path: PathBuf,
    /// Limits of the files.
    pub rotation: Rotation,
}

impl IdentityFiles {
    /// All files of a server whose own are in `directory`.
    #[must_use]
    pub fn files(&self, directory: &Path) -> Files {
        let mut files = Files::own(directory);
        files.client_authorities.extend(self.client_ca_file.clone());
        if let Some(serving) = &self.tls {
            files.serving.clone_from(serving);
        }
        if let Some(path) = &self.service_account_signing_key_file {
            files.signing_key.clone_from(path);
        }
        files.tokens.clone_from(&self.token_auth_file);
        files.keys.clone_from(&self.service_account_key_file);
        files
    }
}

impl AuditSettings {
    pub(crate) fn open(&self) -> Result<Arc<Audit>> {
        let log = Log::open(&self.path, self.rotation.clone())
            .with_context(|| format!("cannot write `{}`", self.path.display()))?;
        Ok(Audit::new(self.policy.clone(), log))
    }
}

impl StoreSettings {
    /// Opens the store of a data directory.
    ///
    /// # Errors
    /// A file that cannot be used.
    pub fn open(&self, directory: &Path) -> Result<Arc<dyn Store>> {
        let options = |free_bytes_min: &u64| store::Options { free_bytes_min: *free_bytes_min, ..Default::default() };
        Ok(match self {
            Self::Etcd { options, .. } => Arc::new(Etcd::new(options.clone()).context("cannot use etcd")?),
            Self::Memory { free_bytes_min } => Arc::new(EmbeddedStore::in_memory(options(free_bytes_min))?),
            Self::File { free_bytes_min } => {
                let path = directory.join(STORE_FILE);
                Arc::new(
                    EmbeddedStore::open(&path, options(free_bytes_min)).map_err(|error| cannot_open(error, &path))?,
                )
            }
        })
    }
}

impl ServerSettings {
    /// Takes the port.
    ///
    /// # Errors
    /// A port that cannot be had.
    pub async fn listen(&self) -> Result<TcpListener> {
        let listener = TcpListener::bind(SocketAddr::new(self.bind_address, self.port)).await;
        listener.map_err(|error| self.cannot_listen(error))
    }

    /// The address at which clients on this machine find the server.
    #[must_use]
    pub fn address(&self, port: u16) -> SocketAddr {
        let host = if self.bind_address.is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { self.bind_address };
        SocketAddr::new(host, port)
    }

    fn cannot_listen(&self, error: std::io::Error) -> anyhow::Error {
        let (address, port) = (self.bind_address, self.port);
        match error.kind() {
            std::io::ErrorKind::AddrInUse => anyhow::anyhow!(
                "port {port} on {address} is in use by another program; choose another with --port, or --port 0 for a free one"
            ),
            _ => anyhow::Error::new(error).context(format!("cannot listen on {address}:{port}")),
        }
    }

    /// The place of the objects, for people.
    #[must_use]
    pub fn store_text(&self) -> String {
        let directory = self.data_dir.display();
        match &self.store {
            StoreSettings::Memory { .. } => format!("objects in memory only; certificates in {directory}"),
            StoreSettings::File { .. } => directory.to_string(),
            StoreSettings::Etcd { options, .. } => {
                format!("objects in etcd at {}; certificates in {directory}", options.endpoints.join(", "))
            }
        }
    }
}

/// An error of a store's file, with advice.
#[must_use]
pub fn cannot_open(error: store::Error, path: &Path) -> anyhow::Error {
    let path_text = path.display();
    let context = match (&error, path.try_exists()) {
        (store::Error::Newer { .. }, _) => {
            format!("cannot use `{path_text}` (use that version, or another directory with --data-dir)")
        }
        (_, Ok(true)) => format!("cannot open `{path_text}` (`celplane store check` reports the cause)"),
        _ => format!("cannot make `{path_text}`"),
    };
    anyhow::Error::new(error).context(context)
}
