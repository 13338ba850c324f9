//! Flags of the API server and, in `celplane up`, of the other components; and the output while they run.

mod admission_file;
mod announce;
mod component_arguments;
mod nodes;
mod rehearsal;
mod supervision;

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use api::features::Features;
use apiserver::Options;
use apiserver::audit::log::Rotation;
use apiserver::audit::policy::Policy;
use apiserver::objects::services::{AddressRange, PortRange};
use apiserver::resources::RuntimeConfig;
use apiserver::serving::certificates::write_private;
use controlplane::roles::kubelet::machine;
use controlplane::settings::{AuditSettings, FrontProxyFiles, IdentityFiles, ServerSettings, StoreSettings};
use controlplane::{ControlPlane, data_directory, file_limit, gates};
use registry::custom_resource::printer_columns::REQUEST_COST_DEFAULT;
use store::etcd;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use self::announce::{Announcement, Progress};
pub(crate) use self::component_arguments::ComponentArguments;
use self::supervision::Supervision;
use crate::dry_run::DryRun;
use crate::kubeconfigs;
use crate::remembered_flags::{self, Flag};

/// Room for documents that are nested as deep as they may be, also where nothing is optimized.
const STACK_BYTES: usize = 8 << 20;

/// Time limit for the threads of components to end; the process exits without waiting longer.
const COMPONENTS_END_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of task steps after which a busy thread checks for network events: a new request waits for no more
/// than these.
const EVENT_INTERVAL: u32 = 13;

/// Flags of the commands that serve the API.
#[derive(clap::Args)]
pub(crate) struct ServerArguments {
    /// Directory for the store, the certificates and `admin.kubeconfig`; defaults to `celplane` in the user's
    /// data directory
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,
    /// Cluster name: the kubeconfig context becomes `celplane-NAME`, and the cluster gets its own data
    /// directory
    #[arg(long, value_name = "NAME", value_parser = data_directory::parse_name)]
    name: Option<String>,
    /// Add the cluster to the user's kubeconfig and make its context current; other entries are unchanged
    #[arg(long)]
    merge_kubeconfig: bool,
    /// Flags that are stored with the data; none for commands that store no flags
    #[arg(skip)]
    remembered: Option<Vec<Flag>>,
    /// Port to listen on; 0 selects a free port
    #[arg(long, default_value_t = 6443)]
    port: u16,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind_address: IpAddr,
    /// Address that clients inside the cluster use to reach the server; defaults to the listen address
    #[arg(long, value_name = "ADDRESS")]
    advertise_address: Option<IpAddr>,
    /// Keep all objects in memory only
    #[arg(long)]
    ephemeral: bool,
    /// Feature gates to enable or disable: Name=true,Name=false; `help` lists them, as does `celplane gates`
    #[arg(long, value_name = "GATES", default_value = "")]
    feature_gates: String,
    #[command(flatten)]
    dry_run: DryRun,
    #[command(flatten)]
    supervision: Supervision,
    /// Log verbosity
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 0)]
    verbosity: u8,
    /// Log format
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"], default_value = "text")]
    logging_format: String,
    /// IPv4 network from which Service addresses are allocated
    #[arg(long, value_name = "NETWORK", default_value_t)]
    service_cluster_ip_range: AddressRange,
    /// Port range from which node ports of Services are allocated
    #[arg(long, value_name = "PORTS", default_value_t)]
    service_node_port_range: PortRange,
    /// API versions to enable or disable: group/version=true,group/version=false; alpha versions are disabled
    /// by default
    #[arg(long, value_name = "VERSIONS", default_value = "")]
    runtime_config: RuntimeConfig,
    /// CEL cost limit for the printer columns of one request; cells beyond the limit stay empty
    #[arg(long, value_name = "COST", default_value_t = REQUEST_COST_DEFAULT)]
    cel_table_budget: u64,
    /// Admission plugins to disable
    #[arg(long, value_name = "PLUGINS", value_delimiter = ',')]
    disable_admission_plugins: Vec<String>,
    /// Admission plugins to enable that are disabled by default
    #[arg(long, value_name = "PLUGINS", value_delimiter = ',')]
    enable_admission_plugins: Vec<String>,
    /// Local process that replaces a Service named by webhooks or APIServices; may be repeated
    #[arg(long, value_name = "NAMESPACE/SERVICE:PORT=ADDRESS:PORT", value_parser = backend)]
    backend: Vec<(apiserver::admission::ServicePort, String)>,
    /// Ports of this machine from which logs of separate simulated nodes are read (`--log-port` of `celplane kubelet`);
    /// other loopback ports that a Node names are refused
    #[arg(long, value_name = "PORTS", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..))]
    node_log_ports: Vec<u16>,
    /// Calls to webhooks and aggregated APIs whose pods are simulated: skip them, or fail as in Kubernetes
    #[arg(long, value_name = "skip|fail", value_parser = ["skip", "fail"], default_value = "skip")]
    simulated_backends: String,
    /// Configuration of admission plugins: an apiserver.config.k8s.io/v1 AdmissionConfiguration
    #[arg(long, value_name = "FILE")]
    admission_control_config_file: Option<PathBuf>,
    /// Retention time of events
    #[arg(long, value_name = "DURATION", default_value = "1h0m0s")]
    event_ttl: String,
    /// Approximate limit in bytes for all events in the store; the oldest are deleted first
    #[arg(long, value_name = "BYTES", default_value_t = Options::default().event_bytes_max)]
    event_bytes_max: u64,
    /// Free space of the file system in bytes below which the store accepts only deletes
    #[arg(long, value_name = "BYTES", default_value_t = store::Options::default().free_bytes_min)]
    store_reserve_bytes: u64,
    /// Maximum number of read requests in flight; flow control divides the sum of both limits
    #[arg(long, value_name = "COUNT", default_value_t = 400)]
    max_requests_inflight: usize,
    /// Maximum number of write requests in flight
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    max_mutating_requests_inflight: usize,
    /// Maximum number of requests and watches at a time on one HTTP/2 connection
    #[arg(long, value_name = "COUNT", default_value_t = Options::default().streams_max, value_parser = clap::value_parser!(u32).range(1..))]
    http2_max_streams_per_connection: u32,
    // Each of these has a heading of its own, which would hold for all flags behind it.
    #[command(flatten, next_help_heading = "Identities and certificates")]
    identity: IdentityArguments,
    #[command(flatten, next_help_heading = "etcd")]
    etcd: EtcdArguments,
    #[command(flatten, next_help_heading = "Audit log")]
    audit: AuditArguments,
}

/// Authentication flags. All files are reloaded when they change.
#[derive(clap::Args)]
struct IdentityArguments {
    /// File with static tokens: token,user,uid,"group1,group2"
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    /// CA certificates for client certificates, in addition to the server's own CA
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// Server certificate with its chain; generated if not set
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Private key of the server certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Key that signs service account tokens (ECDSA P-256 or RSA); generated if not set
    #[arg(long, value_name = "FILE")]
    service_account_signing_key_file: Option<PathBuf>,
    /// Additional keys or certificates that verify service account tokens
    #[arg(long, value_name = "FILE")]
    service_account_key_file: Vec<PathBuf>,
    /// Issuer of service account tokens
    #[arg(long, value_name = "URL", default_value = "https://kubernetes.default.svc")]
    service_account_issuer: String,
    /// Accepted token audiences; defaults to the issuer
    #[arg(long, value_name = "AUDIENCES", value_delimiter = ',')]
    api_audiences: Vec<String>,
    /// Accept bootstrap tokens, and publish the ConfigMap kube-public/cluster-info
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set)]
    enable_bootstrap_token_auth: bool,
    /// Client certificate for aggregated API servers; one is generated if not set
    #[arg(long, value_name = "FILE", requires_all = ["proxy_client_key_file", "requestheader_client_ca_file"])]
    proxy_client_cert_file: Option<PathBuf>,
    /// Key of the client certificate for aggregated API servers
    #[arg(long, value_name = "FILE", requires = "proxy_client_cert_file")]
    proxy_client_key_file: Option<PathBuf>,
    /// CA certificate by which aggregated API servers verify that client certificate
    #[arg(long, value_name = "FILE", requires = "proxy_client_cert_file")]
    requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of client certificates that aggregated API servers accept; any if not set
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "proxy_client_cert_file")]
    requestheader_allowed_names: Vec<String>,
}

impl IdentityArguments {
    fn files(&self) -> IdentityFiles {
        IdentityFiles {
            token_auth_file: self.token_auth_file.clone(),
            client_ca_file: self.client_ca_file.clone(),
            tls: self.tls_cert_file.clone().zip(self.tls_private_key_file.clone()),
            service_account_signing_key_file: self.service_account_signing_key_file.clone(),
            service_account_key_file: self.service_account_key_file.clone(),
            front_proxy: self.front_proxy(),
        }
    }

    fn front_proxy(&self) -> Option<FrontProxyFiles> {
        Some(FrontProxyFiles {
            certificate: self.proxy_client_cert_file.clone()?,
            key: self.proxy_client_key_file.clone()?,
            authorities: self.requestheader_client_ca_file.clone()?,
            allowed_names: self.requestheader_allowed_names.clone(),
        })
    }
}

/// Audit log flags.
#[derive(clap::Args)]
struct AuditArguments {
    /// Audit policy file (audit.k8s.io/v1 Policy): the requests to log, and in which detail
    #[arg(long, value_name = "FILE", requires = "audit_log_path")]
    audit_policy_file: Option<PathBuf>,
    /// File for audit events, one per line; - for standard output
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    audit_log_path: Option<PathBuf>,
    /// Days to keep rotated audit logs; 0 keeps them forever
    #[arg(long, value_name = "DAYS", default_value_t = 0)]
    audit_log_maxage: u32,
    /// Number of rotated audit logs to keep; 0 keeps all
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    audit_log_maxbackup: usize,
    /// Size in megabytes at which the audit log is rotated; 0 means 100
    #[arg(long, value_name = "MEGABYTES", default_value_t = 0)]
    audit_log_maxsize: u32,
}

impl AuditArguments {
    fn policy(&self) -> Result<Option<Policy>> {
        let Some(path) = &self.audit_policy_file else { return Ok(None) };
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
        Policy::parse(&text).with_context(|| format!("cannot use `{}`", path.display())).map(Some)
    }

    fn settings(&self) -> Result<Option<AuditSettings>> {
        let (Some(policy), Some(path)) = (self.policy()?, &self.audit_log_path) else { return Ok(None) };
        let rotation = Rotation {
            file_bytes_max: u64::from(self.audit_log_maxsize) << 20,
            files_max: self.audit_log_maxbackup,
            age_max: Duration::from_secs(u64::from(self.audit_log_maxage).saturating_mul(86_400)),
        };
        Ok(Some(AuditSettings { policy, path: path.clone(), rotation }))
    }
}

/// Connection to etcd, for several servers that share their data.
#[derive(clap::Args)]
struct EtcdArguments {
    /// Addresses of the etcd members that store all objects
    #[arg(long, value_name = "URLS", value_delimiter = ',', conflicts_with = "ephemeral")]
    etcd_servers: Vec<String>,
    /// CA certificate for etcd
    #[arg(long, value_name = "FILE", requires = "etcd_servers")]
    etcd_cafile: Option<PathBuf>,
    /// Client certificate for etcd
    #[arg(long, value_name = "FILE", requires = "etcd_keyfile")]
    etcd_certfile: Option<PathBuf>,
    /// Private key of the client certificate for etcd
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    etcd_keyfile: Option<PathBuf>,
    /// Prefix of all keys in etcd
    #[arg(long, value_name = "TEXT", default_value = "", requires = "etcd_servers")]
    etcd_prefix: String,
    /// Interval at which one of the servers compacts etcd; 0 disables compaction
    #[arg(long, value_name = "DURATION", default_value = "5m0s")]
    etcd_compaction_interval: String,
}

impl EtcdArguments {
    fn options(&self) -> Result<etcd::Options> {
        let read = |path: &PathBuf| std::fs::read(path).with_context(|| format!("cannot read `{}`", path.display()));
        let identity = match (&self.etcd_certfile, &self.etcd_keyfile) {
            (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
            _ => None,
        };
        let authority = self.etcd_cafile.as_ref().map(read).transpose()?;
        let speaks_tls = self.etcd_servers.iter().any(|server| server.starts_with("https://"));
        let tls =
            speaks_tls.then_some(etcd::Tls { authority_pem: authority, identity_pem: identity, server_name: None });
        Ok(etcd::Options {
            tls,
            root: self.etcd_prefix.clone(),
            ..etcd::Options::new(self.etcd_servers.iter().cloned())
        })
    }

    fn compaction_interval(&self) -> Result<Option<Duration>> {
        let interval = duration(&self.etcd_compaction_interval).context("cannot use --etcd-compaction-interval")?;
        Ok(Some(interval).filter(|interval| !interval.is_zero()))
    }
}

/// Threads of the components in the server's process. The server's own threads serve connections, so that busy components
/// cannot delay responses.
fn components_runtime() -> Result<tokio::runtime::Runtime> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).max(2);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("component")
        .enable_all()
        .thread_stack_size(STACK_BYTES)
        .build()
        .context("cannot start threads")
}

/// Parses a duration in the notation of Kubernetes' flags, such as `1m30s`.
fn duration(text: &str) -> Result<Duration> {
    let parsed = api::duration::Duration::parse(text)?;
    Ok(Duration::from_nanos(u64::try_from(parsed.nanos).context("the duration is negative")?))
}

/// Reads `NAMESPACE/SERVICE:PORT=ADDRESS:PORT`.
fn backend(text: &str) -> std::result::Result<(apiserver::admission::ServicePort, String), String> {
    let wanted = || "expected NAMESPACE/SERVICE:PORT=ADDRESS:PORT".to_owned();
    let (service, address) = text.split_once('=').ok_or_else(wanted)?;
    let (namespace, service) = service.split_once('/').ok_or_else(wanted)?;
    let (name, port) = service.rsplit_once(':').ok_or_else(wanted)?;
    let port: u16 = port.parse().map_err(|_| wanted())?;
    let address: std::net::SocketAddr = address.parse().map_err(|_| wanted())?;
    if namespace.is_empty() || name.is_empty() || port == 0 {
        return Err(wanted());
    }
    Ok(((namespace.to_owned(), name.to_owned(), port), address.to_string()))
}

impl ServerArguments {
    /// Data directory.
    pub(crate) fn data_dir(&self) -> PathBuf {
        let path = self.data_dir.clone().unwrap_or_else(|| data_directory::path_of(self.name.as_deref()));
        std::path::absolute(&path).unwrap_or(path)
    }

    /// Sets the flags that are stored in the data directory for the next start.
    pub(crate) fn remember(&mut self, flags: Vec<Flag>) {
        self.remembered = Some(flags);
    }

    /// Whether `--feature-gates help` requests the list of gates.
    pub(crate) fn asks_for_gates(&self) -> bool {
        self.feature_gates == "help"
    }

    /// Names the context of the kubeconfig, adds it to the user's, and keeps the flags with the data.
    fn finish(&self, kubeconfig: &Path) -> Result<()> {
        let context = kubeconfigs::context_name(self.name.as_deref());
        let text =
            std::fs::read_to_string(kubeconfig).with_context(|| format!("cannot read `{}`", kubeconfig.display()))?;
        let named = kubeconfigs::rename(&text, &context);
        if named != text {
            write_private(kubeconfig, &named)?;
        }
        if self.merge_kubeconfig {
            kubeconfigs::merge_into(&kubeconfigs::users_file()?, &named)?;
        }
        if let (Some(flags), false) = (&self.remembered, self.ephemeral) {
            remembered_flags::save(&self.data_dir(), flags)?;
        }
        Ok(())
    }

    /// Whether nothing is to be started.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.dry_run.is_on()
    }

    /// Serves until a signal arrives, or only prints the planned actions. `features` are the defaults of the
    /// gates. A background process reports when it is ready.
    pub(crate) fn run(
        mut self,
        features: Features,
        component_arguments: Option<ComponentArguments>,
        is_background: bool,
    ) -> Result<()> {
        // Pods reach the server from their own network: loopback would be theirs.
        if component_arguments.as_ref().is_some_and(ComponentArguments::runs_containers)
            && self.bind_address.is_loopback()
        {
            self.bind_address = machine::own_address(None);
        }
        let format =
            if self.logging_format == "json" { telemetry::logs::Format::Json } else { telemetry::logs::Format::Text };
        telemetry::logs::start(format, self.verbosity);
        file_limit::raise();
        apiserver::admission::check_plugin_names(&self.enable_admission_plugins, &self.disable_admission_plugins)?;
        // One more than there are processors: while all others are busy, one still accepts connections.
        let threads = std::thread::available_parallelism().map_or(1, usize::from).saturating_add(1);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .event_interval(EVENT_INTERVAL)
            .enable_all()
            .thread_stack_size(STACK_BYTES)
            .build()
            .context("cannot start threads")?;
        if self.dry_run.is_on() {
            return runtime.block_on(rehearsal::rehearse(&self, features, component_arguments));
        }
        let components = component_arguments.is_some().then(components_runtime).transpose()?;
        let handle = components.as_ref().map(|components| components.handle().clone());
        let served = runtime.block_on(self.serve(features, component_arguments.zip(handle), is_background));
        if let Some(components) = components {
            components.shutdown_timeout(COMPONENTS_END_TIMEOUT);
        }
        served
    }

    /// The settings that the flags stand for, with the features of the server.
    fn settings(&self, features: Features) -> Result<ServerSettings> {
        let free_bytes_min = self.store_reserve_bytes;
        let store = match (self.ephemeral, self.etcd.etcd_servers.is_empty()) {
            (_, false) => StoreSettings::Etcd {
                options: self.etcd.options()?,
                compaction_interval: self.etcd.compaction_interval()?,
            },
            (true, true) => StoreSettings::Memory { free_bytes_min },
            (false, true) => StoreSettings::File { free_bytes_min },
        };
        let plugins = self.admission_control_config_file.as_deref().map(admission_file::read).transpose()?;
        let options = Options {
            features,
            pod_security: plugins.unwrap_or_default().pod_security,
            issuer: self.identity.service_account_issuer.clone(),
            audiences: self.identity.api_audiences.clone(),
            bootstrap_tokens: self.identity.enable_bootstrap_token_auth,
            node_fleet: true,
            reads_max: self.max_requests_inflight,
            writes_max: self.max_mutating_requests_inflight,
            streams_max: self.http2_max_streams_per_connection,
            table_cost_max: self.cel_table_budget,
            service_addresses: self.service_cluster_ip_range,
            service_ports: self.service_node_port_range,
            runtime_config: self.runtime_config.clone(),
            backends: self.backend.iter().cloned().collect(),
            simulated_backends: match self.simulated_backends.as_str() {
                "fail" => apiserver::admission::SimulatedBackends::Fail,
                _ => apiserver::admission::SimulatedBackends::Skip,
            },
            enabled_admission_plugins: self.enable_admission_plugins.clone(),
            disabled_admission_plugins: self.disable_admission_plugins.clone(),
            logs_requests: self.verbosity >= 3,
            event_ttl: duration(&self.event_ttl).context("cannot use --event-ttl")?,
            event_bytes_max: self.event_bytes_max,
            ..Options::default()
        };
        Ok(ServerSettings {
            data_dir: self.data_dir(),
            bind_address: self.bind_address,
            port: self.port,
            advertise_address: self.advertise_address,
            store,
            identity: self.identity.files(),
            audit: self.audit.settings()?,
            node_log_ports: self.node_log_ports.clone(),
            options,
        })
    }

    async fn serve(
        self,
        features: Features,
        component_arguments: Option<(ComponentArguments, tokio::runtime::Handle)>,
        is_background: bool,
    ) -> Result<()> {
        let started = Instant::now();
        let shared_features = features.with_flag(&self.feature_gates)?;
        let (component_arguments, components) = component_arguments.unzip();
        let console_port = component_arguments.as_ref().and_then(ComponentArguments::console_port);
        let api_server = self.service_cluster_ip_range.first_address();
        let services = component_arguments.as_ref().and_then(|it| it.services_text(api_server));
        let component_arguments =
            component_arguments.map(|components| components.check(shared_features, &self.data_dir())).transpose()?;
        let features = component_arguments.as_ref().map_or(shared_features, |components| components.apiserver);
        let mut settings = self.settings(features)?;
        settings.options.resource_metrics = component_arguments.is_some();
        let data = settings.store_text();
        // Signals that come while starting are not lost.
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let mut running = ControlPlane::start(settings).await?;
        let gates = component_arguments
            .as_ref()
            .map_or_else(|| vec![("kube-apiserver", features)], |components| components.gates());
        let (url, kubeconfig) = (running.url().to_owned(), running.kubeconfig().to_owned());
        self.finish(&kubeconfig)?;
        let announcement = Announcement {
            url: &url,
            kubeconfig: &kubeconfig,
            data: &data,
            gates: &gates::lines(&gates),
            is_background,
            is_kept: !self.ephemeral,
            services: services.as_deref(),
        };
        let took = started.elapsed();
        announcement.serving(took);
        info!(address = url.trim_start_matches("https://"), duration = ?took, "Started API server");
        let is_alone = component_arguments.is_none();
        let loaded = match components {
            Some(components) => running.start_components_on(component_arguments, components).await?,
            None => running.start_components(component_arguments).await?,
        };
        if let Some(loaded) = loaded {
            announce::loaded(&loaded, is_background);
        }
        let ready = async {
            if is_alone {
                announcement.alone();
            } else {
                let mut progress = Progress::new();
                let nodes = running.ready(&mut |missing| progress.show(missing)).await;
                progress.clear();
                announcement.ready(nodes?, started.elapsed());
                if let Some(port) = console_port {
                    let console = announce::console(port, &kubeconfig).await.context("cannot serve the console")?;
                    // It ends with this process, as everything that it started does.
                    tokio::spawn(console.serve());
                }
                if is_background {
                    crate::background::report_ready();
                }
            }
            self.supervision.ready(&url, &kubeconfig)?;
            std::future::pending::<Result<()>>().await
        };
        let ended = tokio::select! {
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
            () = self.supervision.stdin_closed() => Ok(()),
            failed = ready => failed,
        };
        running.end().await?;
        ended
    }
}
