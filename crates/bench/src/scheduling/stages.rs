//! Processor time of a pod by stage: requests by kind, the scheduler's core, the store's threads, and the rest.
//!
//! Requests and watches are futures of one process: each poll is measured by the processor time of its thread.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use apiserver::Body;
use apiserver::server::listen::Connection;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use rustix::time::{ClockId, clock_gettime};

/// Stage of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Create,
    Bind,
    Event,
    Status,
    Watch,
    Other,
}

const STAGES: [(Stage, &str); 6] = [
    (Stage::Create, "create: the server takes a pod"),
    (Stage::Bind, "bind: the server binds it"),
    (Stage::Event, "event: the server takes its event"),
    (Stage::Status, "status: the server takes its status"),
    (Stage::Watch, "watch: changes are handed to watchers"),
    (Stage::Other, "other requests"),
];

impl Stage {
    fn of<B>(request: &Request<B>) -> Self {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        match *request.method() {
            Method::GET if query.contains("watch=true") => Stage::Watch,
            Method::POST if path.ends_with("/binding") => Stage::Bind,
            Method::POST if path.ends_with("/events") => Stage::Event,
            Method::PATCH | Method::PUT if path.ends_with("/status") => Stage::Status,
            Method::POST if path.ends_with("/pods") => Stage::Create,
            _ => Stage::Other,
        }
    }
}

/// Processor time by stage.
#[derive(Debug, Default)]
pub struct Stages([AtomicU64; STAGES.len()]);

impl Stages {
    fn add(&self, stage: Stage, since: Duration) {
        let spent = thread_time().saturating_sub(since);
        if let Some(slot) = self.0.get(stage as usize) {
            slot.fetch_add(u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// Resets all counts.
    pub fn reset(&self) {
        self.0.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
    }

    /// The stages and what each took, in seconds.
    pub fn seconds(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let nanos = self.0.iter().map(|slot| slot.load(Ordering::Relaxed));
        STAGES.iter().zip(nanos).map(|((_, name), nanos)| (*name, Duration::from_nanos(nanos).as_secs_f64()))
    }
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0));
    Duration::new(seconds, nanos)
}

/// A way to the server that is measured.
#[derive(Clone)]
pub struct MeteredConnection {
    /// The way.
    pub connection: Connection,
    /// Recorder of the times.
    pub stages: Arc<Stages>,
}

impl tower_service::Service<Request<Full<Bytes>>> for MeteredConnection {
    type Response = Response<MeteredBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let (stage, stages) = (Stage::of(&request), self.stages.clone());
        let mut answer = tower_service::Service::call(&mut self.connection, request);
        Box::pin(async move {
            let answered = std::future::poll_fn(|context| {
                let begun = thread_time();
                let polled = answer.as_mut().poll(context);
                stages.add(stage, begun);
                polled
            })
            .await?;
            Ok(answered.map(|body| MeteredBody { body, stage, stages }))
        })
    }
}

/// An answer whose parts are measured as they are made.
pub struct MeteredBody {
    body: Body,
    stage: Stage,
    stages: Arc<Stages>,
}

impl http_body::Body for MeteredBody {
    type Data = <Body as http_body::Body>::Data;
    type Error = <Body as http_body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Self::Data>, Self::Error>>> {
        let begun = thread_time();
        let polled = Pin::new(&mut self.body).poll_frame(context);
        self.stages.add(self.stage, begun);
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

/// The processor time of all threads of this name in this process, in seconds.
#[must_use]
pub fn threads_seconds(name: &str) -> f64 {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return 0.0 };
    let is_named = |path: &std::path::Path| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end().starts_with(name))
    };
    let paths = threads.flatten().map(|thread| thread.path()).filter(|path| is_named(path));
    let nanos = paths.filter_map(|path| {
        let spent = std::fs::read_to_string(path.join("schedstat")).ok()?;
        spent.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum()).as_secs_f64()
}

/// The sum of a metric over the series that have a label.
#[must_use]
pub fn sum(metrics: &str, name: &str, label: &str) -> f64 {
    let lines = metrics.lines().filter(|line| line.starts_with(name) && line.contains(label));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}
