//! Format of the objects in an etcd.
//!
//! A data directory has its format in a file. An etcd is used by several servers without a common directory, so that the format is
//! a key beside the objects. An etcd without the key holds the first format.

use api::json::{self, Value};
use store::{Cause, Error, Outcome, Store, Write};

use crate::data_directory::FORMAT;

/// Beside `/registry/`, so that no list or watch of objects finds it.
const KEY: &str = "/celplane/format";

/// Rejects an etcd with a newer format, and records the format in an etcd without one.
pub(crate) async fn check(store: &dyn Store) -> Result<(), Error> {
    if let Some(entry) = store.get(KEY, 0).await?.entry {
        return accept(&entry.value);
    }
    let text = json::to_string(&api::json!({"format": FORMAT, "version": (env!("CARGO_PKG_VERSION"))}));
    match store.write(Write::create(KEY, text)).await {
        Ok(Outcome::Done { .. }) => Ok(()),
        // Another server has recorded its format at the same time.
        Ok(Outcome::Conflict { current }) => current.map_or(Ok(()), |entry| accept(&entry.value)),
        // A full etcd serves reads and deletes. The next start records the format.
        Err(Error::Full { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn accept(value: &[u8]) -> Result<(), Error> {
    let document = json::parse(value).map_err(|error| Error::Damaged(Cause::new(format!("key {KEY}: {error}"))))?;
    match document.get("format").and_then(Value::as_i64) {
        None => Err(Error::Damaged(Cause::new(format!("key {KEY} does not contain a format")))),
        Some(format) if format > FORMAT => {
            let number = |number: i64| u64::try_from(number).unwrap_or_default();
            Err(Error::Newer { format: number(format), newest: number(FORMAT) })
        }
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use store::{EmbeddedStore, Options};

    use super::*;

    #[tokio::test]
    async fn format_is_recorded_once_and_newer_ones_are_rejected() {
        let store = EmbeddedStore::in_memory(Options::default()).unwrap();
        check(&store).await.unwrap();
        let first = store.get(KEY, 0).await.unwrap().entry.unwrap();
        assert!(first.value.starts_with(br#"{"format":1,"#), "{:?}", first.value);
        check(&store).await.unwrap();
        assert_eq!(store.get(KEY, 0).await.unwrap().entry.unwrap().revision, first.revision);

        _ = store.write(Write::update(KEY, first.revision, &br#"{"format":2,"version":"9.0.0"}"#[..])).await.unwrap();
        assert!(matches!(check(&store).await, Err(Error::Newer { format: 2, newest: 1 })));
        let second = store.get(KEY, 0).await.unwrap().entry.unwrap();
        _ = store.write(Write::update(KEY, second.revision, &b"{}"[..])).await.unwrap();
        assert!(matches!(check(&store).await, Err(Error::Damaged(_))));
    }
}
