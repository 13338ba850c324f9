//! The shutdown signal of a component: one side sends it, all others receive it.

use tokio::sync::watch;

/// Requests the shutdown, at the latest when it is dropped.
#[derive(Debug)]
pub struct Stop(watch::Sender<bool>);

/// Receives the shutdown request. Clones receive the same.
#[derive(Debug, Clone)]
pub struct Shutdown(watch::Receiver<bool>);

impl Stop {
    /// Requests the shutdown.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Returns both sides of a signal.
    #[must_use]
    pub fn channel() -> (Stop, Shutdown) {
        let (sender, receiver) = watch::channel(false);
        (Stop(sender), Shutdown(receiver))
    }

    /// Waits until shutdown is requested.
    pub async fn requested(&self) {
        // An error means that the sender was dropped, which also requests the shutdown.
        let _ = self.0.clone().wait_for(|stop| *stop).await;
    }

    /// Whether shutdown was requested.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}
