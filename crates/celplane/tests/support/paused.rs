//! Controllers on a server in one process whose time is paused: it moves on when nothing is under way.
//!
//! Two servers use the same data, one with the gates and one without, and a switch connects the controllers to
//! one of them. Their requests are recorded.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use api::features::Features;
use apiserver::identity::User;
use apiserver::server::listen::Connection;
use apiserver::{Body, Options, Server};
use bytes::Bytes;
use client::{Client, Stop};
use http::{Method, Request, Response};
use store::{EmbeddedStore, Store};
use tokio::time::Instant;

/// Step by which time advances.
const STEP: Duration = Duration::from_millis(100);

/// A request that was answered.
#[derive(Debug, Clone)]
pub(crate) struct SentRequest {
    pub(crate) at: Instant,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) code: u16,
}

#[derive(Default)]
pub(crate) struct Log {
    asked: Mutex<Vec<SentRequest>>,
    under_way: AtomicUsize,
}

impl Log {
    /// The requests from a time on, for as long.
    pub(crate) fn between(&self, from: Instant, length: Duration) -> Vec<SentRequest> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|it| it.at >= from && it.at < from + length).cloned().collect()
    }

    /// Creation times of objects of a kind, from a time on.
    pub(crate) fn made(&self, plural: &str, from: Instant) -> Vec<Instant> {
        let asked = self.asked.lock().unwrap();
        let is_made = |it: &&SentRequest| {
            it.at >= from && it.code == 201 && it.method == Method::POST && it.path.ends_with(&format!("/{plural}"))
        };
        asked.iter().filter(is_made).map(|it| it.at).collect()
    }
}

/// The server that counts, for one user; every request that reads or writes single objects is noted.
#[derive(Clone)]
pub(crate) struct Switch {
    with: Arc<Server>,
    without: Arc<Server>,
    pub(crate) is_on: Arc<AtomicBool>,
    user: User,
    pub(crate) log: Arc<Log>,
}

impl<B> tower_service::Service<Request<B>> for Switch
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = if self.is_on.load(Ordering::SeqCst) { &self.with } else { &self.without };
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        // Informers list and watch, whatever is refused.
        let follows = method == Method::GET && request.uri().query().is_some_and(|it| !it.is_empty());
        let answer = Connection::new(server.clone(), Some(self.user.clone())).call(request);
        let log = self.log.clone();
        Box::pin(async move {
            if follows {
                return answer.await;
            }
            log.under_way.fetch_add(1, Ordering::SeqCst);
            let answer = answer.await;
            if let Ok(response) = &answer {
                let code = response.status().as_u16();
                log.asked.lock().unwrap().push(SentRequest { at: Instant::now(), method, path, code });
            }
            log.under_way.fetch_sub(1, Ordering::SeqCst);
            answer
        })
    }
}

/// Two servers, and controllers that are led to one of them.
pub(crate) struct Cluster {
    pub(crate) admin: Client,
    pub(crate) switch: Switch,
    clock: clock::Clock,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
        let clock = clock::Clock::starting_at(clock::Clock::system().now());
        let options = |features| Options { features, clock: clock.clone(), ..Options::default() };
        let with = Server::start(store.clone(), options(Features::all_proposals())).await.unwrap();
        let without = Server::start(store, options(Features::none())).await.unwrap();
        let user = User::authenticated("admin", &["system:masters"]);
        let admin = Client::in_process(Connection::new(with.clone(), Some(user.clone())), "admin");
        let switch = Switch { with, without, is_on: Arc::default(), user, log: Arc::default() };
        Self { admin, switch, clock }
    }

    /// Runs controllers, until what is given back is dropped.
    pub(crate) fn controllers(&self, names: &[&str], features: Features) -> Stop {
        self.controllers_with(names, features, controllers::settings::Settings::default())
    }

    /// Like [`controllers`](Self::controllers), with settings.
    pub(crate) fn controllers_with(
        &self,
        names: &[&str],
        features: Features,
        settings: controllers::settings::Settings,
    ) -> Stop {
        let (stop, shutdown) = client::Shutdown::channel();
        let switch = self.switch.clone();
        let options = controllers::manager::Options {
            clients: Arc::new(move |name| Client::in_process(switch.clone(), name)),
            controllers: names.iter().map(ToString::to_string).collect(),
            features,
            settings,
            runtime: client::controller::Runtime::new(
                &telemetry::metrics::Registry::new(),
                client::Health::new(),
                shutdown,
            )
            .with_clock(&self.clock),
        };
        tokio::spawn(controllers::manager::run(options));
        stop
    }

    /// Lets everybody work until nothing is under way any more. Time stands still.
    pub(crate) async fn settle(&self) {
        let log = &self.switch.log;
        let mut quiet = 0;
        let mut count = 0;
        while quiet < 3 {
            for _ in 0..64 {
                tokio::task::yield_now().await;
            }
            // The store and the evaluation of expressions have separate threads, which use real time.
            std::thread::sleep(Duration::from_micros(300));
            let now = log.asked.lock().unwrap().len();
            let is_busy = log.under_way.load(Ordering::SeqCst) > 0 || client::costly::pending() > 0;
            let is_quiet = !is_busy && now == count;
            (quiet, count) = (if is_quiet { quiet + 1 } else { 0 }, now);
        }
    }

    /// Does something while time stands still: it would move on while all wait for the store.
    pub(crate) async fn at_once<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            if let Poll::Ready(done) = std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
                return done;
            }
            std::thread::sleep(Duration::from_micros(100));
            tokio::task::yield_now().await;
        }
    }

    /// Lets time pass, until something holds at the latest.
    pub(crate) async fn pass(&self, length: Duration, mut is_enough: impl FnMut() -> bool) {
        let end = Instant::now() + length;
        self.settle().await;
        while Instant::now() < end && !is_enough() {
            tokio::time::advance(STEP).await;
            self.settle().await;
        }
    }
}
