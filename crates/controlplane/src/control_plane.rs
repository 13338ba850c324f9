//! An API server that runs in this process, and the components beside it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use apiserver::server::listen;
use apiserver::serving::certificates::front_proxy::FrontProxy;
use apiserver::serving::certificates::{Authority, Bundle, write_private};
use apiserver::serving::presence::{AnnouncedServer, Presence};
use apiserver::{Options, Server};
use client::Client;
use store::Store;
use telemetry::logs::chain;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::components::{Components, RunningComponents};
use crate::data_directory::DataDirectory;
use crate::etcd_format;
use crate::load::LoadResult;
use crate::roles::kubelet::agent_tls::AgentTls;
use crate::roles::kubelet::reach::Reach;
use crate::rotation::Files;
use crate::settings::{ServerSettings, StoreSettings};

/// Time that a server waits for etcd at its start.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Name of the store in messages and metrics if it is an etcd.
const ETCD: &str = "etcd";

/// A control plane at work.
pub struct ControlPlane {
    server: Arc<Server>,
    url: String,
    kubeconfig: PathBuf,
    /// The certificate authority, taken when the components are started.
    authority: Option<Authority>,
    /// Ports at which separate simulated nodes serve logs.
    node_log_ports: Vec<u16>,
    running: Option<RunningComponents>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    following: JoinHandle<()>,
    announced: AnnouncedServer,
    /// Holds the lock until everything has ended.
    _directory: DataDirectory,
}

impl ControlPlane {
    /// Starts an API server: when this returns, requests are answered.
    ///
    /// # Errors
    /// A directory, port, file or store that cannot be used.
    pub async fn start(settings: ServerSettings) -> Result<Self> {
        // A port that is taken leaves no directory behind.
        DataDirectory::look(&settings.data_dir)?;
        let listener = settings.listen().await?;
        let directory = DataDirectory::take(&settings.data_dir)?;
        let reached = settings.address(listener.local_addr()?.port());
        let address = reached.to_string();
        let mut addresses = vec![
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            settings.bind_address,
            IpAddr::V4(settings.options.service_addresses.first_address()),
        ];
        addresses.extend(settings.advertise_address);
        let pki = directory.path().join("pki");
        let bundle = Bundle::load_or_create(&pki, &addresses)?;
        let front_proxy = match &settings.identity.front_proxy {
            Some(files) => files.read()?,
            None => FrontProxy::load_or_create(&pki)?,
        };
        let files = settings.identity.files(&pki);
        let (store_name, compaction_interval) = match &settings.store {
            StoreSettings::Etcd { compaction_interval, .. } => (ETCD, *compaction_interval),
            _ => ("store", None),
        };
        let options = Options {
            tokens: files.users()?,
            address: address.clone(),
            audit: settings.audit.as_ref().map(|audit| audit.open()).transpose()?,
            store_name,
            compaction_interval,
            front_proxy: Some(Arc::new(front_proxy)),
            ..settings.options.clone()
        };
        let tls = files.tls(&settings.options.clock)?;
        let server = start(settings.store.open(directory.path())?, options, &files).await?;
        let kubeconfig = directory.path().join("admin.kubeconfig");
        let url = format!("https://{address}");
        write_kubeconfig(&kubeconfig, &bundle.kubeconfig(&url))?;
        let (stop, stopped) = watch::channel(false);
        let (tls, newest_tls) = watch::channel(tls);
        let serving = tokio::spawn(listen::serve_rotating(server.clone(), listener, newest_tls, stopped));
        let published = SocketAddr::new(settings.advertise_address.unwrap_or(reached.ip()), reached.port());
        // The authority of a certificate that the user provides is not known.
        let publishes = settings.options.bootstrap_tokens && settings.identity.tls.is_none();
        let announced = server.announce(Presence {
            address: published,
            hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            client_authorities: files.client_authorities()?,
            cluster_info: publishes.then(|| cluster_info(bundle.authority.certificate(), published)),
        });
        let following = tokio::spawn(files.follow(server.clone(), tls, announced.authorities()));
        let authority = Some(bundle.authority);
        let running = None;
        Ok(Self {
            server,
            url,
            kubeconfig,
            authority,
            node_log_ports: settings.node_log_ports,
            running,
            stop,
            serving,
            following,
            announced,
            _directory: directory,
        })
    }

    /// Starts components in this process, or none, and returns what was loaded. Call this once.
    ///
    /// # Errors
    /// Objects that cannot be created.
    pub async fn start_components(&mut self, components: Option<Components>) -> Result<Option<LoadResult>> {
        let mut loaded = None;
        let reach = self.reach()?;
        if let (Some(components), Some(authority)) = (components, self.authority.take()) {
            let (running, from_dump) = components.start(&self.server, authority, reach.clone(), self.address()).await?;
            self.running = Some(running);
            loaded = from_dump;
        }
        // Node agents of another process are reached over the network.
        self.server.set_kubelets(Arc::new(reach));
        Ok(loaded)
    }

    /// The way to node agents of other processes.
    fn reach(&self) -> Result<Reach> {
        let tls = self.authority.as_ref().map(AgentTls::new).transpose()?;
        Ok(Reach { tls, log_ports: self.node_log_ports.clone(), ..Reach::default() })
    }

    /// The address at which the API is served.
    fn address(&self) -> Option<SocketAddr> {
        self.url.strip_prefix("https://")?.trim_end_matches('/').parse().ok()
    }

    /// As [`start_components`](Self::start_components), on the threads of another runtime: whatever components do, those that
    /// serve connections are free.
    ///
    /// # Errors
    /// Objects that cannot be created.
    pub async fn start_components_on(
        &mut self,
        components: Option<Components>,
        runtime: tokio::runtime::Handle,
    ) -> Result<Option<LoadResult>> {
        let mut loaded = None;
        let address = self.address();
        let reach = self.reach()?;
        let for_components = reach.clone();
        if let (Some(components), Some(authority)) = (components, self.authority.take()) {
            let server = self.server.clone();
            let start = move || runtime.block_on(components.start(&server, authority, for_components, address));
            let started = tokio::task::spawn_blocking(start).await.context("components did not start")?;
            let (running, from_dump) = started?;
            self.running = Some(running);
            loaded = from_dump;
        }
        self.server.set_kubelets(Arc::new(reach));
        Ok(loaded)
    }

    /// The URL at which the API is served.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The path of the administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Revision up to which the server has followed its store.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.server.revision()
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// A client with all rights; none if there are no components.
    #[must_use]
    pub fn admin(&self) -> Option<&Client> {
        self.running.as_ref().map(RunningComponents::admin)
    }

    /// Waits until all components work, and returns the number of ready nodes. `progress` receives what is still missing.
    ///
    /// # Errors
    /// The time is up.
    pub async fn ready(&self, progress: &mut (dyn FnMut(&str) + Send)) -> Result<usize> {
        match &self.running {
            Some(running) => running.ready(progress).await,
            None => Ok(0),
        }
    }

    /// Ends the components, then the server, and closes the store.
    ///
    /// # Errors
    /// A store that does not close cleanly.
    pub async fn end(self) -> Result<()> {
        if let Some(running) = self.running {
            running.end().await;
        }
        info!("Stopping API server");
        self.stop.send_replace(true);
        self.serving.await.context("serving failed")?;
        self.following.abort();
        self.announced.gone().await;
        self.server.stop().await.context("the store did not close cleanly")
    }
}

/// A kubeconfig that names nothing but the cluster.
fn cluster_info(authority: &str, address: SocketAddr) -> String {
    let authority = api::base64::encode(authority.as_bytes());
    format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {authority}\n    server: https://{address}\n  \
         name: \"\"\ncontexts: null\ncurrent-context: \"\"\nkind: Config\npreferences: {{}}\nusers: null\n"
    )
}

/// Writes the administrator's kubeconfig, unless it is unchanged: a full disk must not prevent reads. Only the
/// owner can read it, whatever file existed before.
fn write_kubeconfig(path: &Path, text: &str) -> Result<()> {
    let is_file = std::fs::symlink_metadata(path).is_ok_and(|there| there.is_file());
    if is_file && std::fs::read_to_string(path).is_ok_and(|there| there == text) {
        let permissions = std::fs::Permissions::from_mode(0o600);
        return std::fs::set_permissions(path, permissions)
            .with_context(|| format!("cannot protect `{}`", path.display()));
    }
    Ok(write_private(path, text)?)
}

/// Starts the server; waits for etcd if it is not available yet.
async fn start(store: Arc<dyn Store>, options: Options, files: &Files) -> Result<Arc<Server>> {
    let started = Instant::now();
    loop {
        let error = match try_start(&store, &options, files).await? {
            Ok(server) => return Ok(server),
            Err(error) => error,
        };
        let passes = matches!(error, store::Error::Unavailable(_) | store::Error::TimedOut(_));
        if !passes || started.elapsed() > START_TIMEOUT {
            return Err(error).with_context(|| format!("cannot start on the {}", options.store_name));
        }
        warn!(err = %chain(&error), "Waiting for the store");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Starts the server, once. The outer error is one that waiting does not change.
async fn try_start(
    store: &Arc<dyn Store>,
    options: &Options,
    files: &Files,
) -> Result<Result<Arc<Server>, store::Error>> {
    if options.store_name == ETCD
        && let Err(error) = etcd_format::check(&**store).await
    {
        return Ok(Err(error));
    }
    Ok(Server::start_with_keys(store.clone(), options.clone(), files.key_ring()?).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_kubeconfig_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("admin.kubeconfig"), directory.path().join("other"));
        let mode = || std::fs::symlink_metadata(&path).unwrap().permissions().mode();
        write_kubeconfig(&path, "secret").unwrap();
        // It exists already, and was made readable to others.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        write_kubeconfig(&path, "secret").unwrap();
        assert_eq!(mode() & 0o777, 0o600);
        // It exists already, at another path.
        std::fs::rename(&path, &other).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        write_kubeconfig(&path, "secret").unwrap();
        assert!(std::fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(mode() & 0o777, 0o600);
    }
}
