//! All that is current in a file, as of one commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use redb::{ReadableDatabase as _, ReadableTable as _};

use super::{LOG, LogEntry, LogFile, VALUES, Values, contain, damaged, decode, position, redb_error};
use crate::Error;
use crate::snapshot::{KeptEntry, Snapshot};

impl LogFile {
    /// Returns the current values. Later writes neither change it nor wait for it; closing the file ends it.
    pub(in crate::embedded) fn snapshot(self: &Arc<Self>) -> Result<Snapshot, Error> {
        let file = Arc::downgrade(self);
        contain(|| {
            let transaction = self.database.begin_read().map_err(redb_error)?;
            let position = position(&transaction)?.ok_or_else(|| damaged("the numbers are missing".to_owned()))?;
            let log = transaction.open_table(LOG).map_err(redb_error)?;
            let mut current: BTreeMap<Arc<str>, LogEntry> = BTreeMap::new();
            for entry in log.iter().map_err(redb_error)? {
                let (revision, record) = entry.map_err(redb_error)?;
                let logged = decode(revision.value(), record.value())?;
                if logged.deleted {
                    current.remove(&logged.key);
                } else {
                    current.insert(logged.key.clone(), logged);
                }
            }
            let values = Values { table: transaction.open_table(VALUES).map_err(redb_error)?, _file: None };
            let kept = current.into_values().map(move |logged| {
                let _open = file.upgrade().ok_or(Error::Closed)?;
                let LogEntry { revision, key, expires_at_ms, .. } = logged;
                let value: Option<Bytes> = values.get(revision)?;
                let value = value.ok_or_else(|| damaged(format!("the value of `{key}` is missing")))?;
                Ok(KeptEntry { key, value, revision, expires_at_ms })
            });
            Ok(Snapshot::new(position.revision, kept))
        })
    }
}
