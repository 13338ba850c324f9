//! The time by which a request must be answered, for parts that wait for other servers.
//!
//! A client may ask for less time than the server allows, with the parameter `timeout`.

use std::time::Duration;

use tokio::time::Instant;

use super::request::Query;
use super::status::{Failure, Result};

tokio::task_local! {
    static DEADLINE: Instant;
}

/// Runs the work of a request that ends after `limit`; none if it does not end in time.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let deadline = Instant::now().checked_add(limit).unwrap_or_else(Instant::now);
    tokio::time::timeout_at(deadline, DEADLINE.scope(deadline, work)).await.ok()
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
