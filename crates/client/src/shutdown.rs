//! The signal that ends a component: one side asks, all others see it.

use tokio::sync::watch;

/// Asks for the end, at the latest when it is dropped.
#[derive(Debug)]
pub struct Stop(watch::Sender<bool>);

/// Whether the end was asked for. Clones see the same.
#[derive(Debug, Clone)]
pub struct Shutdown(watch::Receiver<bool>);

impl Stop {
    /// Asks for the end.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Who may ask, and who is asked.
    #[must_use]
    pub fn channel() -> (Stop, Shutdown) {
        let (sender, receiver) = watch::channel(false);
        (Stop(sender), Shutdown(receiver))
    }

    /// Waits until the end is asked for.
    pub async fn requested(&self) {
        // An error means that nobody is left who could ask: then it is the end.
        let _ = self.0.clone().wait_for(|stop| *stop).await;
    }

    /// Whether the end was asked for.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}
