//! The end of the server, for tasks that run as long as it does.

use tokio::sync::watch;

/// Resolves when the server stops.
pub(crate) struct ShutdownSignal(watch::Receiver<bool>);

impl ShutdownSignal {
    /// Follows the shutdown that the sender announces.
    pub(crate) fn new(sender: &watch::Sender<bool>) -> Self {
        Self(sender.subscribe())
    }

    /// Waits until the server stops.
    pub(crate) async fn stopped(&mut self) {
        // An error means that the server has ended.
        let _ = self.0.wait_for(|stopping| *stopping).await;
    }
}
