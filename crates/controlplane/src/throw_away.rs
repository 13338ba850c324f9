//! A temporary control plane: in memory, without a socket, lost when it ends.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use api::features::Features;
use apiserver::serving::certificates::Authority;
use apiserver::{Options, Server};
use client::Client;
use store::EmbeddedStore;

use crate::components::{Components, RunningComponents};
use crate::roles::kubelet::reach::Reach;

/// A control plane that is not kept.
pub struct TemporaryPlane {
    server: Arc<Server>,
    running: RunningComponents,
}

impl TemporaryPlane {
    /// Starts one with these gates in all components; only nodes that request it are simulated.
    ///
    /// # Errors
    /// A component that does not become ready.
    pub async fn start(features: Features) -> Result<Self> {
        let store = Arc::new(EmbeddedStore::in_memory(store::Options::default())?);
        let options = Options { features, node_fleet: true, resource_metrics: true, ..Options::default() };
        let server = Server::start(store, options).await.context("cannot start")?;
        let (running, _) =
            Components::without_nodes(features).start(&server, Authority::generate()?, Reach::default(), None).await?;
        running.ready(&mut |_| ()).await?;
        Ok(Self { server, running })
    }

    /// A connection that may do everything.
    #[must_use]
    pub fn admin(&self) -> &Client {
        self.running.admin()
    }

    /// Stops the components and the server.
    ///
    /// # Errors
    /// A store that does not close cleanly.
    pub async fn end(self) -> Result<()> {
        self.running.end().await;
        Ok(self.server.stop().await?)
    }
}
