//! Fair flow control: decides which requests run, wait, or are rejected with a retry.
//!
//! Kubernetes' API Priority and Fairness, configured by its FlowSchemas and PriorityLevelConfigurations. A request belongs
//! to the first schema that matches it (`schemas`), takes as many seats of the schema's level as it is wide (`width`), and
//! waits in fair `queues` while there are none. Seats are shared out by `shares`, and lent by what was in `demand`. The
//! `objects` follow the API; the `controller` keeps the built-in ones there.

mod controller;
mod demand;
mod metrics;
pub(crate) mod objects;
mod queues;
mod schemas;
mod shares;
mod width;

use locks::{Mutex, RwLock};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::HeaderValue;
use telemetry::metrics::Registry;

pub(crate) use self::controller::run;
use self::metrics::{Families, SchemaSeries};
use self::objects::Configuration;
use self::queues::{Arrival, Place, Queues, Refusal, Ticket};
use self::schemas::Matcher;
pub(crate) use self::schemas::{Request, verb_of};
use crate::wire::request::{Query, Target};

/// Decides which requests run.
pub(crate) struct FlowControl {
    /// All seats.
    total: u64,
    /// A request waits no longer than this.
    wait_max: Duration,
    schemas: RwLock<Arc<[Arc<Schema>]>>,
    levels: Mutex<Vec<Arc<Level>>>,
    families: Families,
    hasher: RandomState,
}

/// A FlowSchema, with the level that its requests go to.
pub(crate) struct Schema {
    name: String,
    matcher: Matcher,
    level: Arc<Level>,
    metrics: SchemaSeries,
    /// UID in response headers.
    pub(crate) uid: HeaderValue,
    /// The same of the level.
    pub(crate) level_uid: HeaderValue,
}

/// A priority level. It lives on when its configuration changes.
struct Level {
    name: String,
    is_exempt: bool,
    /// A request is no wider than this.
    seats_max: AtomicU64,
    queues: Mutex<Queues>,
}

impl Level {
    fn queues(&self) -> locks::MutexGuard<'_, Queues> {
        self.queues.lock()
    }
}

/// The seats of a request that runs, given back when this is dropped.
pub(crate) struct Seat {
    schema: Arc<Schema>,
    ticket: Option<Ticket>,
    seats: u64,
    started: Instant,
}

/// A queued request. Dropping it removes it from its queue, or frees the seats that it got.
struct QueuedRequest {
    schema: Arc<Schema>,
    place: Option<Place>,
    seats: u64,
}

impl FlowControl {
    /// With this many seats for all levels together. Until schemas are set every request is refused.
    pub(crate) fn new(seats: usize, request_timeout: Duration, registry: &Registry) -> Self {
        Self {
            total: u64::try_from(seats).unwrap_or(u64::MAX),
            wait_max: request_timeout.checked_div(4).unwrap_or(request_timeout),
            schemas: RwLock::new(Arc::new([])),
            levels: Mutex::default(),
            families: Families::new(registry),
            hasher: RandomState::new(),
        }
    }

    /// The schema of a request. There is one for everybody.
    pub(crate) fn classify(&self, request: &Request<'_>) -> Option<Arc<Schema>> {
        let schemas = self.schemas.read();
        let found = schemas.iter().find(|schema| schema.matcher.matches(request));
        // A request that matches no schema is treated with the last one.
        found.or_else(|| schemas.last()).cloned()
    }

    /// Takes seats for a request, possibly after waiting; `None` if it is rejected with a retry.
    pub(crate) async fn seat(
        &self,
        schema: &Arc<Schema>,
        request: &Request<'_>,
        query: &Query,
        size: impl Fn(&Target) -> (u64, u64),
    ) -> Option<Seat> {
        let level = &schema.level;
        if level.is_exempt {
            return Some(Seat::new(schema.clone(), None, 1, now()));
        }
        let size = || request.target.map(&size).unwrap_or_default();
        let seats = width::seats(request.target, query, level.seats_max.load(Ordering::Relaxed), size);
        let flow = self.hasher.hash_one((schema.name.as_str(), schema.matcher.flow(request)));
        let arrived = now();
        let arrival = level.queues().arrive(arrived, flow, seats);
        let metrics = &schema.metrics;
        #[expect(clippy::cast_precision_loss, reason = "both are small")]
        let place = match arrival {
            Arrival::Runs(ticket) => {
                metrics.estimated_seats.observe(seats as f64);
                metrics.waited.observe(0.0);
                return Some(Seat::new(schema.clone(), Some(ticket), seats, arrived));
            }
            Arrival::Refused(refusal) => {
                self.refuse(schema, refusal);
                return None;
            }
            Arrival::Waits(place) => {
                metrics.estimated_seats.observe(seats as f64);
                metrics.queue_length.observe(place.length as f64);
                metrics.no_accommodation.increment();
                place
            }
        };
        let mut waiting = QueuedRequest::new(schema.clone(), place, seats);
        let ticket = tokio::time::timeout(self.wait_max, waiting.turn()).await;
        let waited = now().saturating_duration_since(arrived);
        let Some(ticket) = ticket.ok().flatten() else {
            metrics.waited_in_vain.observe_duration(waited);
            self.refuse(schema, Refusal::TimeOut);
            return None;
        };
        metrics.waited.observe_duration(waited);
        Some(Seat::new(schema.clone(), Some(ticket), seats, now()))
    }

    fn refuse(&self, schema: &Schema, refusal: Refusal) {
        self.families.rejected(&schema.name, &schema.level.name, refusal.reason());
    }

    /// Applies a configuration. Existing levels keep their running and waiting requests.
    fn configure(&self, configuration: &Configuration, now: Instant) {
        let mut levels = self.levels.lock();
        let shares: Vec<_> = configuration.levels.iter().map(|it| it.shares).collect();
        let total = self.total_number();
        let seats = shares::nominal(total, &shares);
        let mut next: Vec<Arc<Level>> = Vec::new();
        for (wanted, seats) in configuration.levels.iter().zip(&seats) {
            let known = levels.iter().find(|it| it.name == wanted.name && it.is_exempt == wanted.shares.is_exempt);
            next.push(known.cloned().unwrap_or_else(|| {
                let queues = Mutex::new(Queues::new(wanted.shape, whole(seats.nominal), now));
                let (name, is_exempt) = (wanted.name.clone(), wanted.shares.is_exempt);
                Arc::new(Level { name, is_exempt, seats_max: AtomicU64::new(0), queues })
            }));
        }
        *levels = next;
        self.share_out(&levels, configuration, now);
        let mut schemas: Vec<Arc<Schema>> = Vec::new();
        for schema in &configuration.schemas {
            let at = configuration.levels.iter().position(|level| level.name == schema.level);
            let Some((at, level)) = at.and_then(|at| Some((at, levels.get(at)?))) else { continue };
            let of_level = configuration.levels.get(at);
            schemas.push(Arc::new(Schema {
                name: schema.name.clone(),
                matcher: Matcher::of(&schema.document),
                level: level.clone(),
                metrics: self.families.of_schema(&schema.name, &level.name),
                uid: header(&schema.uid),
                level_uid: header(of_level.map_or("", |level| &level.uid)),
            }));
        }
        schemas
            .sort_by(|left, right| (left.matcher.precedence, &left.name).cmp(&(right.matcher.precedence, &right.name)));
        *self.schemas.write() = schemas.into();
    }

    /// Lends the seats that levels do not need to those that do.
    fn adjust(&self, configuration: &Configuration, now: Instant) {
        let levels = self.levels.lock();
        self.share_out(&levels, configuration, now);
    }

    fn share_out(&self, levels: &[Arc<Level>], configuration: &Configuration, now: Instant) {
        let shares: Vec<_> = configuration.levels.iter().map(|it| it.shares).collect();
        let seats = shares::nominal(self.total_number(), &shares);
        let observed = levels.iter().map(|level| level.queues().demand.end_period(now));
        let both: Vec<_> = seats.into_iter().zip(observed).collect();
        let current = shares::current(&both);
        for (((level, wanted), (seats, observed)), current) in
            levels.iter().zip(&configuration.levels).zip(&both).zip(current)
        {
            // A request does not take more than a part of its level.
            level.seats_max.store(whole((seats.nominal * SEATS_MAX_PART).ceil()).max(1), Ordering::Relaxed);
            level.queues().configure(wanted.shape, whole(current).max(1), now);
            self.families.adjusted(&level.name, seats, observed, current);
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "seats are few")]
    fn total_number(&self) -> f64 {
        self.total as f64
    }
}

/// The time, which tests can stop.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The part of a level's seats that one request may take.
const SEATS_MAX_PART: f64 = 0.15;

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seats are few and not negative")]
fn whole(seats: f64) -> u64 {
    seats.max(0.0) as u64
}

fn header(uid: &str) -> HeaderValue {
    HeaderValue::from_str(uid).unwrap_or_else(|_| HeaderValue::from_static(""))
}

impl Seat {
    fn new(schema: Arc<Schema>, ticket: Option<Ticket>, seats: u64, started: Instant) -> Self {
        let metrics = &schema.metrics;
        metrics.dispatched.increment();
        metrics.executing.add(1);
        metrics.executing_seats.add(i64::try_from(seats).unwrap_or(i64::MAX));
        Self { schema, ticket, seats, started }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let now = now();
        let metrics = &self.schema.metrics;
        metrics.executing.add(-1);
        metrics.executing_seats.add(i64::try_from(self.seats).map_or(i64::MIN, i64::wrapping_neg));
        metrics.executed.observe_duration(now.saturating_duration_since(self.started));
        if let Some(ticket) = self.ticket {
            self.schema.level.queues().leave(now, ticket);
        }
    }
}

impl QueuedRequest {
    fn new(schema: Arc<Schema>, place: Place, seats: u64) -> Self {
        schema.metrics.in_queue.add(1);
        schema.metrics.seats_in_queue.add(i64::try_from(seats).unwrap_or(i64::MAX));
        Self { schema, place: Some(place), seats }
    }

    async fn turn(&mut self) -> Option<Ticket> {
        let ticket = (&mut self.place.as_mut()?.ticket).await.ok();
        self.place = None;
        ticket
    }
}

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        let metrics = &self.schema.metrics;
        metrics.in_queue.add(-1);
        metrics.seats_in_queue.add(i64::try_from(self.seats).map_or(i64::MIN, i64::wrapping_neg));
        let Some(mut place) = self.place.take() else { return };
        let now = now();
        let mut queues = self.schema.level.queues();
        queues.give_up(now, &place);
        // The turn may have come in between.
        if let Ok(ticket) = place.ticket.try_recv() {
            queues.leave(now, ticket);
        }
    }
}

#[cfg(test)]
mod tests;
