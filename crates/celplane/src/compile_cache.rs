//! The compile cache of a tool that runs once.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use matching::CompileCache;

/// A compile cache for a tool that runs once.
pub(crate) fn compile_cache() -> anyhow::Result<CompileCache> {
    let start = Instant::now();
    let capacity = NonZeroUsize::new(4096).context("a capacity is not zero")?;
    Ok(CompileCache::new(capacity, Arc::new(move || start.elapsed()))?)
}
