//! A control plane for a moment: in memory, without a socket, gone when it ends.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use api::features::Features;
use apiserver::serving::certificates::Authority;
use apiserver::{Options, Server};
use client::Client;
use store::Embedded;

use super::beside::{Checked, Running};

/// A control plane that is not kept.
pub(crate) struct ThrowAway {
    server: Arc<Server>,
    running: Running,
}

impl ThrowAway {
    /// Starts one with these gates in all components; only nodes that ask for it are played.
    pub(crate) async fn start(features: Features) -> Result<Self> {
        let store = Arc::new(Embedded::in_memory(store::Options::default())?);
        let options = Options { features, node_fleet: true, ..Options::default() };
        let server = Server::start(store, options).await.context("cannot start")?;
        let running = Checked::without_nodes(features).start(&server, Authority::generate()?).await?;
        running.ready().await?;
        Ok(Self { server, running })
    }

    /// A connection that may do everything.
    pub(crate) fn admin(&self) -> &Client {
        self.running.admin()
    }

    /// Ends it.
    pub(crate) async fn end(self) -> Result<()> {
        self.running.end().await;
        Ok(self.server.stop().await?)
    }
}
