//! Writability of the store: changes are logged, and reported by `/readyz`.

use std::sync::Arc;
use std::time::Duration;

use store::{Error, Store};
use telemetry::logs::chain;
use tracing::{error, info};

use crate::shutdown::ShutdownSignal;

/// Interval of the checks.
const INTERVAL: Duration = Duration::from_secs(5);
/// Time limit for the check of the store.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the reason why nothing can be written.
pub(crate) async fn trouble(store: &dyn Store) -> Option<Error> {
    match tokio::time::timeout(TIMEOUT, store.check_writable()).await {
        Ok(checked) => checked.err(),
        Err(error) => Some(Error::TimedOut(store::Cause::new(error))),
    }
}

/// Logs when the store stops and resumes accepting writes, until the server stops.
pub(crate) async fn run(store: Arc<dyn Store>, mut stopping: ShutdownSignal) {
    let mut was_well = true;
    loop {
        let trouble = trouble(&*store).await;
        match &trouble {
            Some(Error::Closed) => return,
            Some(trouble) if was_well => error!(err = %chain(trouble), "Store rejects writes"),
            None if !was_well => info!("Store accepts writes again"),
            _ => {}
        }
        was_well = trouble.is_none();
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = stopping.stopped() => return,
        }
    }
}
