//! Resolution of a request's resource, including definitions that were just written.

use std::sync::Arc;

use super::Server;
use crate::custom::serving::ServedVersion;
use crate::resources::{self, Resource};
use crate::wire::request::Target;
use crate::wire::status::Result;

impl Server {
    /// The built-in resource that a request is about, if its version is served.
    pub(super) fn find_built_in(&self, target: &Target) -> Option<&'static Resource<'static>> {
        let found = resources::find(&target.group, &target.version, &target.resource);
        found.filter(|_| self.options.runtime_config.serves(&target.group, &target.version))
    }

    /// The custom resource that a request is about. A definition that was just written is waited for.
    pub(super) async fn find_custom(&self, target: &Target) -> Result<Option<Arc<ServedVersion>>> {
        let find = || self.customs.snapshot().find(&target.group, &target.version, &target.resource).cloned();
        let found = find();
        if found.is_some() || !target.group.contains('.') {
            return Ok(found);
        }
        self.wait_for_definitions().await?;
        Ok(find())
    }

    /// Waits until definitions of custom resources that were written before now are served, or decided about.
    pub(super) async fn wait_for_definitions(&self) -> Result<()> {
        let current = self.store.current_revision().await?;
        // An error means that the cache is outdated; then its present contents count.
        let _ = self.cache.reach(current).await;
        self.customs.settled(self.cache.resource(&resources::DEFINITIONS.prefix()).newest()).await;
        Ok(())
    }

    /// Waits until requests see the effects of all earlier writes.
    ///
    /// # Errors
    /// Those of the store, as clients see them.
    pub async fn settle(&self) -> Result<()> {
        self.wait_for_definitions().await?;
        self.customs.warmed().await;
        Ok(())
    }
}
