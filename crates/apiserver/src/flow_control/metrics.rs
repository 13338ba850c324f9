//! Metrics of flow control, under Kubernetes' names.

use std::sync::Arc;

use telemetry::metrics::{Counter, Family, Gauge, Histogram, Registry};

use super::demand::ObservedDemand;
use super::shares::Seats;

const SECONDS: &[f64] = &[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
const QUEUE_LENGTHS: &[f64] = &[0.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];
const SEATS: &[f64] = &[1.0, 2.0, 4.0, 10.0, 20.0, 50.0];

/// All families.
pub(super) struct Families {
    rejected: Arc<Family<Counter>>,
    dispatched: Arc<Family<Counter>>,
    no_accommodation: Arc<Family<Counter>>,
    in_queue: Arc<Family<Gauge>>,
    seats_in_queue: Arc<Family<Gauge>>,
    queue_length: Arc<Family<Histogram>>,
    executing: Arc<Family<Gauge>>,
    executing_seats: Arc<Family<Gauge>>,
    waited: Arc<Family<Histogram>>,
    executed: Arc<Family<Histogram>>,
    estimated_seats: Arc<Family<Histogram>>,
    of_levels: LevelSeats,
}

/// Numbers of seats, by priority level.
struct LevelSeats {
    nominal: Arc<Family<Gauge>>,
    lower: Arc<Family<Gauge>>,
    upper: Arc<Family<Gauge>>,
    current: Arc<Family<Gauge>>,
    highest: Arc<Family<Gauge>>,
    average: Arc<Family<Gauge>>,
    deviation: Arc<Family<Gauge>>,
    smoothed: Arc<Family<Gauge>>,
}

/// The series of one schema, looked up once.
pub(super) struct SchemaSeries {
    pub(super) dispatched: Arc<Counter>,
    pub(super) no_accommodation: Arc<Counter>,
    pub(super) in_queue: Arc<Gauge>,
    pub(super) seats_in_queue: Arc<Gauge>,
    pub(super) queue_length: Arc<Histogram>,
    pub(super) executing: Arc<Gauge>,
    pub(super) executing_seats: Arc<Gauge>,
    pub(super) waited: Arc<Histogram>,
    pub(super) waited_in_vain: Arc<Histogram>,
    pub(super) executed: Arc<Histogram>,
    pub(super) estimated_seats: Arc<Histogram>,
}

const SCHEMA: &[&str] = &["flow_schema", "priority_level"];
const LEVEL: &[&str] = &["priority_level"];

macro_rules! name {
    ($name:literal) => {
        concat!("apiserver_flowcontrol_", $name)
    };
}

impl Families {
    pub(super) fn new(registry: &Registry) -> Self {
        let gauge = |name, help| registry.family(name, help, LEVEL, &[]);
        Self {
            rejected: registry.family(
                name!("rejected_requests_total"),
                "[STABLE] Number of requests rejected by API Priority and Fairness subsystem",
                &["flow_schema", "priority_level", "reason"],
                &[],
            ),
            dispatched: registry.family(
                name!("dispatched_requests_total"),
                "[STABLE] Number of requests executed by API Priority and Fairness subsystem",
                SCHEMA,
                &[],
            ),
            no_accommodation: registry.family(
                name!("request_dispatch_no_accommodation_total"),
                "[ALPHA] Number of times a dispatch attempt resulted in a non accommodation due to lack of available seats",
                SCHEMA,
                &[],
            ),
            in_queue: registry.family(
                name!("current_inqueue_requests"),
                "[STABLE] Number of requests currently pending in queues of the API Priority and Fairness subsystem",
                SCHEMA,
                &[],
            ),
            seats_in_queue: registry.family(
                name!("current_inqueue_seats"),
                "[ALPHA] Number of seats currently pending in queues of the API Priority and Fairness subsystem",
                SCHEMA,
                &[],
            ),
            queue_length: registry.family(
                name!("request_queue_length_after_enqueue"),
                "[ALPHA] Length of queue in the API Priority and Fairness subsystem, as seen by each request after it is enqueued",
                SCHEMA,
                QUEUE_LENGTHS,
            ),
            executing: registry.family(
                name!("current_executing_requests"),
                "[STABLE] Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API Priority and Fairness subsystem",
                SCHEMA,
                &[],
            ),
            executing_seats: registry.family(
                name!("current_executing_seats"),
                "[STABLE] Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage otherwise) requests in the API Priority and Fairness subsystem",
                SCHEMA,
                &[],
            ),
            waited: registry.family(
                name!("request_wait_duration_seconds"),
                "[STABLE] Length of time a request spent waiting in its queue",
                &["execute", "flow_schema", "priority_level"],
                SECONDS,
            ),
            executed: registry.family(
                name!("request_execution_seconds"),
                "[ALPHA] Duration of initial stage (for a WATCH) or any (for a non-WATCH) stage of request execution in the API Priority and Fairness subsystem",
                &["flow_schema", "priority_level", "type"],
                SECONDS,
            ),
            estimated_seats: registry.family(
                name!("work_estimated_seats"),
                "[ALPHA] Number of estimated seats (maximum of initial and final seats) associated with requests in API Priority and Fairness",
                SCHEMA,
                SEATS,
            ),
            of_levels: LevelSeats {
                nominal: gauge(
                    name!("nominal_limit_seats"),
                    "[STABLE] Nominal number of execution seats configured for each priority level",
                ),
                lower: gauge(
                    name!("lower_limit_seats"),
                    "[ALPHA] Configured lower bound on number of execution seats available to each priority level",
                ),
                upper: gauge(
                    name!("upper_limit_seats"),
                    "[ALPHA] Configured upper bound on number of execution seats available to each priority level",
                ),
                current: gauge(
                    name!("current_limit_seats"),
                    "[ALPHA] current derived number of execution seats available to each priority level",
                ),
                highest: gauge(
                    name!("demand_seats_high_watermark"),
                    "[ALPHA] High watermark, over last adjustment period, of demand_seats",
                ),
                average: gauge(
                    name!("demand_seats_average"),
                    "[ALPHA] Time-weighted average, over last adjustment period, of demand_seats",
                ),
                deviation: gauge(
                    name!("demand_seats_stdev"),
                    "[ALPHA] Time-weighted standard deviation, over last adjustment period, of demand_seats",
                ),
                smoothed: gauge(name!("demand_seats_smoothed"), "[ALPHA] Smoothed seat demands"),
            },
        }
    }

    pub(super) fn of_schema(&self, schema: &str, level: &str) -> SchemaSeries {
        let both = &[schema, level];
        SchemaSeries {
            dispatched: self.dispatched.with(both),
            no_accommodation: self.no_accommodation.with(both),
            in_queue: self.in_queue.with(both),
            seats_in_queue: self.seats_in_queue.with(both),
            queue_length: self.queue_length.with(both),
            executing: self.executing.with(both),
            executing_seats: self.executing_seats.with(both),
            waited: self.waited.with(&["true", schema, level]),
            waited_in_vain: self.waited.with(&["false", schema, level]),
            executed: self.executed.with(&[schema, level, "regular"]),
            estimated_seats: self.estimated_seats.with(both),
        }
    }

    pub(super) fn rejected(&self, schema: &str, level: &str, reason: &str) {
        self.rejected.with(&[schema, level, reason]).increment();
    }

    #[expect(clippy::cast_possible_truncation, reason = "seats are few")]
    pub(super) fn adjusted(&self, level: &str, seats: &Seats, observed: &ObservedDemand, current: f64) {
        let Seats { nominal, min, max, .. } = seats;
        let ObservedDemand { highest, average, deviation, smoothed } = observed;
        let of = &self.of_levels;
        let all = [
            (&of.nominal, nominal),
            (&of.lower, min),
            (&of.upper, max),
            (&of.current, &current),
            (&of.highest, highest),
            (&of.average, average),
            (&of.deviation, deviation),
            (&of.smoothed, smoothed),
        ];
        for (family, value) in all {
            family.with(&[level]).set(value.round() as i64);
        }
    }
}
