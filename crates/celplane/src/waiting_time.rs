//! Times to wait, as flags of Kubernetes have them: `20s`, `1m30s`.

use std::time::Duration;

use anyhow::Context as _;

/// Parses a waiting time, which must not be zero.
pub(crate) fn parse(text: &str) -> anyhow::Result<Duration> {
    let duration = api::duration::Duration::parse(text)?;
    let nanos = u64::try_from(duration.nanos).ok().filter(|nanos| *nanos > 0);
    Ok(Duration::from_nanos(nanos.with_context(|| format!("`{text}` is not a duration"))?))
}
