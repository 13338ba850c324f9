//! Can the store be written to? The log says when that changes, and `/readyz` while it is not so.

use std::sync::Arc;
use std::time::Duration;

use store::{Error, Store};
use tracing::{error, info};

use crate::server::Stopping;

/// How often to look.
const INTERVAL: Duration = Duration::from_secs(5);
/// How long the store may take to show that it is there.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Why nothing can be written, if so.
pub(crate) async fn trouble(store: &dyn Store) -> Option<Error> {
    match tokio::time::timeout(TIMEOUT, store.check_writable()).await {
        Ok(checked) => checked.err(),
        Err(error) => Some(Error::TimedOut(store::Cause::new(error))),
    }
}

/// An error and what caused it, in one line.
pub(crate) fn reason(error: &Error) -> String {
    use std::error::Error as _;
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// Says in the log when the store stops taking writes, and when it takes them again, until the server stops.
pub(crate) async fn run(store: Arc<dyn Store>, mut stopping: Stopping) {
    let mut was_well = true;
    loop {
        let trouble = trouble(&*store).await;
        match &trouble {
            Some(Error::Closed) => return,
            Some(trouble) if was_well => error!(err = reason(trouble), "Store takes no writes"),
            None if !was_well => info!("Store takes writes again"),
            _ => {}
        }
        was_well = trouble.is_none();
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = stopping.stopped() => return,
        }
    }
}
