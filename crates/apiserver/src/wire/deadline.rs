//! The time by which a request must be answered, for parts that wait for other servers.
//!
//! A client may ask for less time than the server allows, with the parameter `timeout`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::request::Query;
use super::status::{Failure, Result};

tokio::task_local! {
    static DEADLINE: Instant;
    static EVALUATION: EvaluationTime;
}

/// The time that the expressions of policies and webhooks took for one request so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct EvaluationTime(Arc<AtomicU64>);

impl EvaluationTime {
    /// That of the current request; a new one outside of requests.
    pub(crate) fn of_request() -> Self {
        EVALUATION.try_with(Clone::clone).unwrap_or_default()
    }

    /// Adds the time of one evaluation.
    pub(crate) fn add(&self, elapsed: Duration) {
        self.0.fetch_add(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The part of `limit` that is left.
    pub(crate) fn left_of(&self, limit: Duration) -> Duration {
        limit.saturating_sub(Duration::from_nanos(self.0.load(Ordering::Relaxed)))
    }
}

/// Runs a part of a request that has its own time for evaluations, such as the deletion of one object of a collection.
pub(crate) async fn with_own_evaluation<T>(work: impl Future<Output = T>) -> T {
    EVALUATION.scope(EvaluationTime::default(), work).await
}

/// Runs the work of a request that ends after `limit`; none if it does not end in time.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let deadline = Instant::now().checked_add(limit).unwrap_or_else(Instant::now);
    let work = DEADLINE.scope(deadline, with_own_evaluation(work));
    tokio::time::timeout_at(deadline, work).await.ok()
}

/// The time that is left; none outside of a request.
pub(crate) fn remaining() -> Option<Duration> {
    DEADLINE.try_with(|deadline| deadline.saturating_duration_since(Instant::now())).ok()
}

/// The time that a client gives a request.
///
/// # Errors
/// 400 for a value that is no duration.
pub(crate) fn requested(query: &Query) -> Result<Option<Duration>> {
    let text = query.get("timeout");
    if text.is_empty() {
        return Ok(None);
    }
    let parsed = api::duration::Duration::parse(text)
        .map_err(|error| Failure::bad_request(format!("invalid timeout specified in the request URL - {error}")))?;
    // Kubernetes: nothing means the limit of the server.
    Ok(u64::try_from(parsed.nanos).ok().filter(|it| *it > 0).map(Duration::from_nanos))
}
