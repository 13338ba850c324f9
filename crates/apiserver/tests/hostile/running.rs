//! A server in this process that listens on its own port.

use locks::{Mutex, MutexGuard};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use apiserver::server::listen;
use apiserver::serving::certificates::{Authority, Bundle, Pair};
use apiserver::{Options, Server};
use rustls::pki_types::CertificateDer;
use store::EmbeddedStore;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::client::{Endpoint, Response};

/// Files and memory are those of the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

pub(crate) struct RunningServer {
    pub(crate) endpoint: Endpoint,
    /// The same server, for a client without a certificate.
    pub(crate) anonymous: Endpoint,
    bundle: Bundle,
    runtime: Option<Runtime>,
    stop: watch::Sender<bool>,
    serving: Option<JoinHandle<()>>,
    _alone: MutexGuard<'static, ()>,
}

impl RunningServer {
    pub(crate) fn start(options: Options) -> Self {
        let alone = ALONE.lock();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .thread_stack_size(8 << 20)
            .build()
            .unwrap();
        let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let authority = Authority::generate().unwrap();
        let (server, admin) = (authority.server(&[local]), authority.client("admin", "system:masters"));
        let bundle = Bundle { authority, server: server.unwrap(), admin: admin.unwrap() };
        let (stop, stopped) = watch::channel(false);
        let (address, serving) = runtime.block_on(async {
            let listener = TcpListener::bind(SocketAddr::new(local, 0)).await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = Server::start(store, options).await.unwrap();
            let tls = listen::tls(&bundle).unwrap();
            (address, tokio::spawn(listen::serve(server, listener, tls, stopped)))
        });
        let authority = authority_of(&bundle);
        let identity = (bundle.admin.certificate_der().unwrap(), bundle.admin.key_der().unwrap());
        Self {
            endpoint: Endpoint::new(address, authority.clone(), Some(identity)),
            anonymous: Endpoint::new(address, authority, None),
            bundle,
            runtime: Some(runtime),
            stop,
            serving: Some(serving),
            _alone: alone,
        }
    }

    pub(crate) fn authority(&self) -> CertificateDer<'static> {
        authority_of(&self.bundle)
    }

    /// Sends a request on a new connection and expects a response.
    #[track_caller]
    pub(crate) fn ask(&self, method: &str, path: &str, content_type: &str, body: &[u8]) -> Response {
        let headers = [("Content-Type", content_type)];
        let answer = self.endpoint.request(method, path, &headers, body);
        answer.unwrap_or_else(|error| {
            let shown: String = String::from_utf8_lossy(body).chars().take(60).collect();
            panic!("{method} {content_type} {shown:?}: {error}")
        })
    }

    /// The server still works.
    #[track_caller]
    pub(crate) fn check_alive(&self) {
        assert_eq!(self.ask("GET", "/readyz", "", b"").status, 200);
        let list = self.ask("GET", "/api/v1/namespaces", "", b"");
        assert_eq!(list.status, 200);
    }
}

impl Drop for RunningServer {
    /// The server ends regardless of its clients; a panic in one of its tasks would have been printed and shows
    /// as a wrong response.
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let (Some(runtime), Some(serving)) = (self.runtime.take(), self.serving.take()) {
            let ended =
                runtime.block_on(async { tokio::time::timeout(std::time::Duration::from_secs(15), serving).await });
            if !std::thread::panicking() {
                ended.expect("the server ends").unwrap();
            }
            runtime.shutdown_background();
        }
    }
}

fn authority_of(bundle: &Bundle) -> CertificateDer<'static> {
    let certificate = bundle.authority.certificate().to_owned();
    Pair { certificate, key: String::new() }.certificate_der().unwrap()
}

/// Number of open files of this process.
pub(crate) fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Resident memory of this process in kilobytes.
pub(crate) fn resident_kilobytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

/// Waits until something holds; the operating system takes its time to close what was closed.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..400 {
        if holds() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(25));
    }
    panic!("{what}: not in ten seconds");
}
