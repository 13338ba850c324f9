//! Starting the API server: data directory, certificates, kubeconfig, store, listener, and a clean end; and beside it, in
//! `celplane up`, the other components.

mod announce;
mod beside;
mod gates;
mod load;
mod nodes;
mod ready;
mod rehearsal;
mod throw_away;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use api::features::Features;
use apiserver::audit::Audit;
use apiserver::audit::log::{Log, Rotation};
use apiserver::audit::policy::Policy;
use apiserver::objects::services::{AddressRange, PortRange};
use apiserver::resources::RuntimeConfig;
use apiserver::server::listen;
use apiserver::serving::certificates::{Bundle, write_private};
use apiserver::serving::presence::Presence;
use apiserver::{Options, Server};
use registry::custom_resource::printer_columns::REQUEST_COST_DEFAULT;
use store::etcd::{self, Etcd};
use store::{Embedded, Store};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::{info, warn};

use self::announce::Announcement;
pub(crate) use self::beside::Beside;
pub(crate) use self::gates::lines as gate_lines;
pub(crate) use self::throw_away::ThrowAway;
use crate::data_directory::{self, DataDirectory};
use crate::dry_run::DryRun;
use crate::roles::kubelet::reach::Reach;
use crate::rotation::Files;

/// The store's file in the data directory.
pub(crate) const STORE_FILE: &str = "store.redb";

/// So long a server that starts waits for etcd.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Room for documents that are nested as deep as they may be, also where nothing is optimized.
const STACK_BYTES: usize = 8 << 20;
/// A thread that is never idle looks for what came over the network after this many steps of tasks: who has just asked
/// something waits for no more than these.
const EVENT_INTERVAL: u32 = 13;

/// What the roles that serve the API take from the command line.
#[derive(clap::Args)]
pub(crate) struct ServerArguments {
    /// Where the store, certificates and `admin.kubeconfig` are kept; by default `celplane` in the user's data directory
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,
    /// The port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 6443)]
    port: u16,
    /// The address to listen on
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind_address: IpAddr,
    /// The address at which clients inside the cluster find the server; the one it listens on if not given
    #[arg(long, value_name = "ADDRESS")]
    advertise_address: Option<IpAddr>,
    /// Keep all objects in memory only
    #[arg(long)]
    ephemeral: bool,
    #[command(flatten)]
    identity: IdentityArguments,
    #[command(flatten)]
    etcd: EtcdArguments,
    /// Features to turn on or off: Name=true,Name=false
    #[arg(long, value_name = "GATES", default_value = "")]
    feature_gates: String,
    /// The addresses that services can have: an IPv4 network
    #[arg(long, value_name = "NETWORK", default_value_t)]
    service_cluster_ip_range: AddressRange,
    /// The ports that services can have on all nodes
    #[arg(long, value_name = "PORTS", default_value_t)]
    service_node_port_range: PortRange,
    /// Versions of the API to turn on or off: group/version=true,group/version=false; alpha versions are off
    #[arg(long, value_name = "VERSIONS", default_value = "")]
    runtime_config: RuntimeConfig,
    /// What the CEL expressions of printer columns may cost in one request; cells beyond that stay empty
    #[arg(long, value_name = "COST", default_value_t = REQUEST_COST_DEFAULT)]
    cel_table_budget: u64,
    /// Admission plugins to turn off
    #[arg(long, value_name = "PLUGINS", value_delimiter = ',', value_parser = ["ServiceAccount"])]
    disable_admission_plugins: Vec<String>,
    #[command(flatten)]
    audit: AuditArguments,
    /// How long events are kept
    #[arg(long, value_name = "DURATION", default_value = "1h0m0s")]
    event_ttl: String,
    /// All events together take about this many bytes in the store; the oldest go first
    #[arg(long, value_name = "BYTES", default_value_t = Options::default().event_bytes_max)]
    event_bytes_max: u64,
    /// The store refuses all but deletes while the file system has less room than this many bytes
    #[arg(long, value_name = "BYTES", default_value_t = store::Options::default().free_bytes_min)]
    store_reserve_bytes: u64,
    /// How many seats there are for requests that read: flow control shares out the seats of all
    #[arg(long, value_name = "COUNT", default_value_t = 400)]
    max_requests_inflight: usize,
    /// How many seats there are for requests that write
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    max_mutating_requests_inflight: usize,
    #[command(flatten)]
    dry_run: DryRun,
    /// How much to log
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 0)]
    verbosity: u8,
    /// How to log
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"], default_value = "text")]
    logging_format: String,
}

/// Who is who. All files are read again when they change.
#[derive(clap::Args)]
struct IdentityArguments {
    /// A file of static tokens: token,user,uid,"group1,group2"
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    /// Authorities whose client certificates are accepted, beside the server's own
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// The server's certificate with its chain; one is made if none is given
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// The key of the server's certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// The key that signs service account tokens (ECDSA P-256); one is made if none is given
    #[arg(long, value_name = "FILE")]
    service_account_signing_key_file: Option<PathBuf>,
    /// Further keys, private or public, whose service account tokens are accepted
    #[arg(long, value_name = "FILE")]
    service_account_key_file: Vec<PathBuf>,
    /// Who signs service account tokens
    #[arg(long, value_name = "URL", default_value = "https://kubernetes.default.svc")]
    service_account_issuer: String,
    /// Whom service account tokens must be meant for; the issuer if not given
    #[arg(long, value_name = "AUDIENCES", value_delimiter = ',')]
    api_audiences: Vec<String>,
}

impl IdentityArguments {
    fn files(&self, directory: &Path) -> Files {
        let mut files = Files::own(directory);
        files.client_authorities.extend(self.client_ca_file.clone());
        if let (Some(certificate), Some(key)) = (&self.tls_cert_file, &self.tls_private_key_file) {
            files.serving = (certificate.clone(), key.clone());
        }
        if let Some(path) = &self.service_account_signing_key_file {
            files.signing_key.clone_from(path);
        }
        files.tokens.clone_from(&self.token_auth_file);
        files.keys.clone_from(&self.service_account_key_file);
        files
    }
}

/// Who did what, for those who ask later.
#[derive(clap::Args)]
struct AuditArguments {
    /// Which requests are written to the audit log, and how much of them: an audit.k8s.io/v1 Policy
    #[arg(long, value_name = "FILE", requires = "audit_log_path")]
    audit_policy_file: Option<PathBuf>,
    /// Where audit events are written, one a line; - for standard output
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    audit_log_path: Option<PathBuf>,
    /// How many days an audit log that was put aside is kept; 0 for ever
    #[arg(long, value_name = "DAYS", default_value_t = 0)]
    audit_log_maxage: u32,
    /// How many audit logs that were put aside are kept; 0 for all
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    audit_log_maxbackup: usize,
    /// An audit log of this many megabytes is put aside; 0 for 100
    #[arg(long, value_name = "MEGABYTES", default_value_t = 0)]
    audit_log_maxsize: u32,
}

impl AuditArguments {
    fn policy(&self) -> Result<Option<Policy>> {
        let Some(path) = &self.audit_policy_file else { return Ok(None) };
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
        Policy::parse(&text).with_context(|| format!("cannot use `{}`", path.display())).map(Some)
    }

    fn open(&self) -> Result<Option<Arc<Audit>>> {
        let (Some(policy), Some(path)) = (self.policy()?, &self.audit_log_path) else { return Ok(None) };
        let rotation = Rotation {
            file_bytes_max: u64::from(self.audit_log_maxsize) << 20,
            files_max: self.audit_log_maxbackup,
            age_max: Duration::from_secs(u64::from(self.audit_log_maxage).saturating_mul(86_400)),
        };
        let log = Log::open(path, rotation).with_context(|| format!("cannot write `{}`", path.display()))?;
        Ok(Some(Audit::new(policy, log)))
    }
}

/// How to reach etcd, for several servers on one set of data.
#[derive(clap::Args)]
struct EtcdArguments {
    /// Keep all objects in etcd: the addresses of its members
    #[arg(long, value_name = "URLS", value_delimiter = ',', conflicts_with = "ephemeral")]
    etcd_servers: Vec<String>,
    /// Who vouches for the members of etcd
    #[arg(long, value_name = "FILE", requires = "etcd_servers")]
    etcd_cafile: Option<PathBuf>,
    /// The certificate to show to etcd
    #[arg(long, value_name = "FILE", requires = "etcd_keyfile")]
    etcd_certfile: Option<PathBuf>,
    /// The key of the certificate to show to etcd
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    etcd_keyfile: Option<PathBuf>,
    /// Goes before every key in etcd
    #[arg(long, value_name = "TEXT", default_value = "", requires = "etcd_servers")]
    etcd_prefix: String,
    /// How often one of the servers makes etcd forget old history; 0 for never
    #[arg(long, value_name = "DURATION", default_value = "5m0s")]
    etcd_compaction_interval: String,
}

impl EtcdArguments {
    fn open(&self) -> Result<Etcd> {
        let read = |path: &PathBuf| std::fs::read(path).with_context(|| format!("cannot read `{}`", path.display()));
        let identity = match (&self.etcd_certfile, &self.etcd_keyfile) {
            (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
            _ => None,
        };
        let authority = self.etcd_cafile.as_ref().map(read).transpose()?;
        let speaks_tls = self.etcd_servers.iter().any(|server| server.starts_with("https://"));
        let tls =
            speaks_tls.then_some(etcd::Tls { authority_pem: authority, identity_pem: identity, server_name: None });
        let options = etcd::Options {
            tls,
            root: self.etcd_prefix.clone(),
            ..etcd::Options::new(self.etcd_servers.iter().cloned())
        };
        Etcd::new(options).context("cannot use etcd")
    }

    fn compaction_interval(&self) -> Result<Option<Duration>> {
        let interval = duration(&self.etcd_compaction_interval).context("cannot use --etcd-compaction-interval")?;
        Ok(Some(interval).filter(|interval| !interval.is_zero()))
    }
}

/// A duration as Kubernetes' flags have it.
fn duration(text: &str) -> Result<Duration> {
    let parsed = api::duration::Duration::parse(text)?;
    Ok(Duration::from_nanos(u64::try_from(parsed.nanos).context("it is negative")?))
}

impl ServerArguments {
    /// Where data is kept.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.data_dir.clone().unwrap_or_else(data_directory::default_path)
    }

    /// Whether nothing is to be started.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.dry_run.is_on()
    }

    /// Serves until a signal comes, or only says what it would do. `features` are those that are on unless the command line says otherwise. Who runs in the
    /// background tells when it is ready.
    pub(crate) fn run(self, features: Features, beside: Option<Beside>, is_background: bool) -> Result<()> {
        let format =
            if self.logging_format == "json" { telemetry::logs::Format::Json } else { telemetry::logs::Format::Text };
        telemetry::logs::start(format, self.verbosity);
        crate::file_limit::raise();
        // One more than there are processors: while all others are busy, somebody still listens.
        let threads = std::thread::available_parallelism().map_or(1, usize::from).saturating_add(1);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .event_interval(EVENT_INTERVAL)
            .enable_all()
            .thread_stack_size(STACK_BYTES)
            .build()
            .context("cannot start threads")?;
        match self.dry_run.is_on() {
            true => runtime.block_on(rehearsal::rehearse(&self, features, beside)),
            false => runtime.block_on(self.serve(features, beside, is_background)),
        }
    }

    async fn serve(self, features: Features, beside: Option<Beside>, is_background: bool) -> Result<()> {
        let started = Instant::now();
        let shared_features = features.with_flag(&self.feature_gates)?;
        let beside = beside.map(|beside| beside.check(shared_features)).transpose()?;
        let features = beside.as_ref().map_or(shared_features, |beside| beside.apiserver);
        let directory = DataDirectory::take(&self.data_dir())?;
        // Signals that come while starting are not lost.
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let listener = self.listen().await?;
        let reached = self.address(listener.local_addr()?.port());
        let address = reached.to_string();
        let mut addresses = vec![
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            self.bind_address,
            IpAddr::V4(self.service_cluster_ip_range.first_address()),
        ];
        addresses.extend(self.advertise_address);
        let pki = directory.path().join("pki");
        let bundle = Bundle::load_or_create(&pki, &addresses)?;
        let files = self.identity.files(&pki);
        let on_etcd = !self.etcd.etcd_servers.is_empty();
        let options = Options {
            features,
            tokens: files.users()?,
            issuer: self.identity.service_account_issuer.clone(),
            audiences: self.identity.api_audiences.clone(),
            address: address.clone(),
            node_fleet: true,
            reads_max: self.max_requests_inflight,
            writes_max: self.max_mutating_requests_inflight,
            table_cost_max: self.cel_table_budget,
            service_addresses: self.service_cluster_ip_range,
            service_ports: self.service_node_port_range,
            runtime_config: self.runtime_config.clone(),
            disabled_admission_plugins: self.disable_admission_plugins.clone(),
            audit: self.audit.open()?,
            logs_requests: self.verbosity >= 3,
            event_ttl: duration(&self.event_ttl).context("cannot use --event-ttl")?,
            event_bytes_max: self.event_bytes_max,
            store_name: if on_etcd { "etcd" } else { "store" },
            compaction_interval: if on_etcd { self.etcd.compaction_interval()? } else { None },
            ..Options::default()
        };
        let tls = files.tls()?;
        let server = start(self.open_store(directory.path())?, options, &files).await?;
        let kubeconfig = directory.path().join("admin.kubeconfig");
        let url = format!("https://{address}");
        write_kubeconfig(&kubeconfig, &bundle.kubeconfig(&url))?;
        let (stop, stopped) = watch::channel(false);
        let (tls, newest_tls) = watch::channel(tls);
        let serving = tokio::spawn(listen::serve_rotating(server.clone(), listener, newest_tls, stopped));
        let announced = server.announce(Presence {
            address: SocketAddr::new(self.advertise_address.unwrap_or(reached.ip()), reached.port()),
            hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            client_authorities: files.client_authorities()?,
        });
        let following = tokio::spawn(files.follow(server.clone(), tls, announced.authorities()));
        let gates = beside.as_ref().map_or_else(|| vec![("kube-apiserver", features)], |beside| beside.gates());
        let announcement = Announcement {
            url: &url,
            kubeconfig: &kubeconfig,
            data: &self.store_text(directory.path()),
            gates: &gates::lines(&gates),
            is_background,
        };
        let took = started.elapsed();
        announcement.serving(took);
        info!(address, duration = ?took, "Started API server");
        let running = match beside {
            Some(beside) => Some(beside.start(&server, bundle.authority).await?),
            None => None,
        };
        // Those of another process are asked over the network.
        server.set_kubelets(Arc::new(Reach { own: None }));
        let ready = async {
            match &running {
                None => announcement.alone(),
                Some(running) => {
                    let nodes = running.ready().await?;
                    announcement.ready(nodes, started.elapsed());
                    if is_background {
                        crate::background::tell_ready();
                    }
                }
            }
            std::future::pending::<Result<()>>().await
        };
        let ended = tokio::select! {
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
            failed = ready => failed,
        };
        if let Some(running) = running {
            running.end().await;
        }
        info!("Stopping API server");
        stop.send_replace(true);
        serving.await.context("serving failed")?;
        following.abort();
        announced.gone().await;
        server.stop().await.context("the store did not close cleanly")?;
        ended
    }

    async fn listen(&self) -> Result<TcpListener> {
        let listener = TcpListener::bind(SocketAddr::new(self.bind_address, self.port)).await;
        listener.map_err(|error| self.cannot_listen(error))
    }

    /// Where clients on this machine find the server.
    fn address(&self, port: u16) -> SocketAddr {
        let host = if self.bind_address.is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { self.bind_address };
        SocketAddr::new(host, port)
    }

    fn cannot_listen(&self, error: std::io::Error) -> anyhow::Error {
        let (address, port) = (self.bind_address, self.port);
        match error.kind() {
            std::io::ErrorKind::AddrInUse => anyhow::anyhow!(
                "port {port} on {address} is taken by another program; choose another with --port, or --port 0 for a free one"
            ),
            _ => anyhow::Error::new(error).context(format!("cannot listen on {address}:{port}")),
        }
    }

    /// Where objects are kept, for people.
    fn store_text(&self, directory: &Path) -> String {
        let directory = directory.display();
        match (self.ephemeral, self.etcd.etcd_servers.as_slice()) {
            (true, _) => format!("objects in memory only; certificates in {directory}"),
            (false, []) => directory.to_string(),
            (false, servers) => format!("objects in etcd at {}; certificates in {directory}", servers.join(", ")),
        }
    }

    fn open_store(&self, directory: &Path) -> Result<Arc<dyn Store>> {
        if !self.etcd.etcd_servers.is_empty() {
            return Ok(Arc::new(self.etcd.open()?));
        }
        let options = store::Options { free_bytes_min: self.store_reserve_bytes, ..store::Options::default() };
        if self.ephemeral {
            return Ok(Arc::new(Embedded::in_memory(options)?));
        }
        let path = directory.join(STORE_FILE);
        Ok(Arc::new(Embedded::open(&path, options).map_err(|error| cannot_open(error, &path))?))
    }
}

/// What is wrong with a store's file, and what to do about it.
fn cannot_open(error: store::Error, path: &Path) -> anyhow::Error {
    let path_text = path.display();
    let context = match (&error, path.try_exists()) {
        (store::Error::Newer { .. }, _) => {
            format!("cannot use `{path_text}` (use that version, or another directory with --data-dir)")
        }
        (_, Ok(true)) => format!("cannot open `{path_text}` (`celplane store check` says what is wrong with it)"),
        _ => format!("cannot make `{path_text}`"),
    };
    anyhow::Error::new(error).context(context)
}

/// Writes the administrator's kubeconfig, unless it is there already: a full disk keeps nobody from reading. Nobody else can
/// read it, whatever was there.
fn write_kubeconfig(path: &Path, text: &str) -> Result<()> {
    let is_file = std::fs::symlink_metadata(path).is_ok_and(|there| there.is_file());
    if is_file && std::fs::read_to_string(path).is_ok_and(|there| there == text) {
        let permissions = std::fs::Permissions::from_mode(0o600);
        return std::fs::set_permissions(path, permissions)
            .with_context(|| format!("cannot protect `{}`", path.display()));
    }
    Ok(write_private(path, text)?)
}

/// Starts the server, if need be once etcd is there.
async fn start(store: Arc<dyn Store>, options: Options, files: &Files) -> Result<Arc<Server>> {
    let started = Instant::now();
    loop {
        let error = match Server::start_with_keys(store.clone(), options.clone(), files.key_ring()?).await {
            Ok(server) => return Ok(server),
            Err(error) => error,
        };
        let passes = matches!(error, store::Error::Unavailable(_) | store::Error::TimedOut(_));
        if !passes || started.elapsed() > START_TIMEOUT {
            return Err(error).with_context(|| format!("cannot start on the {}", options.store_name));
        }
        warn!(err = %error, "Waiting for the store");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_reads_the_kubeconfig_of_the_administrator() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("admin.kubeconfig"), directory.path().join("other"));
        let mode = || std::fs::symlink_metadata(&path).unwrap().permissions().mode();
        write_kubeconfig(&path, "secret").unwrap();
        // It is there already, and somebody has opened it to others.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        write_kubeconfig(&path, "secret").unwrap();
        assert_eq!(mode() & 0o777, 0o600);
        // It is there already, but somewhere else.
        std::fs::rename(&path, &other).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        write_kubeconfig(&path, "secret").unwrap();
        assert!(std::fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(mode() & 0o777, 0o600);
    }
}
