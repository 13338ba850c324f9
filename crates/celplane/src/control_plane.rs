//! Starting the API server: data directory, certificates, kubeconfig, store, listener, and a clean end.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use api::features::Features;
use apiserver::certificates::{Bundle, write_private};
use apiserver::identity::Authenticator;
use apiserver::server::listen;
use apiserver::{Options, Server};
use store::{Embedded, Store};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::info;

/// Room for documents that are nested as deep as they may be, also where nothing is optimized.
const STACK_BYTES: usize = 8 << 20;

/// What the roles that serve the API take from the command line.
#[derive(clap::Args)]
pub(crate) struct ServerArguments {
    /// Where the store, certificates and `admin.kubeconfig` are kept
    #[arg(long, value_name = "DIRECTORY", default_value = "celplane-data")]
    data_dir: PathBuf,
    /// The port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 6443)]
    port: u16,
    /// The address to listen on
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind_address: IpAddr,
    /// Keep all objects in memory only
    #[arg(long)]
    ephemeral: bool,
    /// A file of static tokens: token,user,uid,"group1,group2"
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    /// Features to turn on or off: Name=true,Name=false
    #[arg(long, value_name = "GATES", default_value = "")]
    feature_gates: String,
    /// How much to log
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 0)]
    verbosity: u8,
    /// How to log
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"], default_value = "text")]
    logging_format: String,
}

impl ServerArguments {
    /// Serves until a signal comes. `features` are those that are on unless the command line says otherwise.
    pub(crate) fn run(self, features: Features) -> Result<()> {
        let format =
            if self.logging_format == "json" { telemetry::logs::Format::Json } else { telemetry::logs::Format::Text };
        telemetry::logs::start(format, self.verbosity);
        crate::file_limit::raise();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_stack_size(STACK_BYTES)
            .build()
            .context("cannot start threads")?;
        runtime.block_on(self.serve(features))
    }

    async fn serve(self, features: Features) -> Result<()> {
        let started = Instant::now();
        let features = features.with_flag(&self.feature_gates)?;
        std::fs::create_dir_all(&self.data_dir)
            .with_context(|| format!("cannot create `{}`", self.data_dir.display()))?;
        // Signals that come while starting are not lost.
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let listener = TcpListener::bind(SocketAddr::new(self.bind_address, self.port))
            .await
            .with_context(|| format!("cannot listen on {}:{}", self.bind_address, self.port))?;
        let port = listener.local_addr()?.port();
        let host = if self.bind_address.is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { self.bind_address };
        let address = SocketAddr::new(host, port).to_string();
        let addresses = [IpAddr::V4(Ipv4Addr::LOCALHOST), self.bind_address, IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))];
        let bundle = Bundle::load_or_create(&self.data_dir.join("pki"), &addresses)?;
        let store = self.open_store()?;
        let tokens = match &self.token_auth_file {
            Some(path) => {
                let text =
                    std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
                Authenticator::parse_tokens(&text)
            }
            None => Default::default(),
        };
        let options = Options { features, tokens, address: address.clone(), ..Options::default() };
        let server = Server::start(store, options).await.context("cannot start on the store")?;
        let kubeconfig = self.data_dir.join("admin.kubeconfig");
        let url = format!("https://{address}");
        write_private(&kubeconfig, &bundle.kubeconfig(&url))?;
        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(listen::serve(server.clone(), listener, listen::tls(&bundle)?, stopped));
        let took = started.elapsed();
        // Nobody needs to read this: a closed standard output is no failure.
        let _ = writeln!(
            std::io::stdout(),
            "The API is served at {url} after {} ms.\nUse it with: kubectl --kubeconfig {} get namespaces",
            took.as_millis(),
            kubeconfig.display()
        );
        info!(address, duration = ?took, "Started API server");
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        info!("Stopping API server");
        stop.send_replace(true);
        serving.await.context("serving failed")?;
        server.stop().await.context("the store did not close cleanly")?;
        Ok(())
    }

    fn open_store(&self) -> Result<Arc<dyn Store>> {
        let options = store::Options::default();
        if self.ephemeral {
            return Ok(Arc::new(Embedded::in_memory(options)?));
        }
        let path = self.data_dir.join("store.redb");
        let store = Embedded::open(&path, options).with_context(|| format!("cannot open `{}`", path.display()))?;
        Ok(Arc::new(store))
    }
}
