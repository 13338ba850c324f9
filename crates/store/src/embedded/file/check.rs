//! Integrity check of a file: everything in it is read and compared with its checksums.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use redb::{ReadableDatabase as _, ReadableTable as _};

use super::{LOG, LogFile, Medium, VALUES, Values, contain, decode, io_error, redb_error};
use crate::{Error, Revision};

/// Result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The revision of the last write.
    pub revision: Revision,
    /// The oldest revision that can be read.
    pub compacted: Revision,
    /// Number of keys.
    pub keys: u64,
    /// Size of their values in bytes.
    pub bytes: u64,
    /// Size of the history's values in bytes, which are removed over time.
    pub history_bytes: u64,
    /// Length of the file.
    pub file_bytes: u64,
    /// Problems, one sentence each.
    pub problems: Vec<String>,
}

impl LogFile {
    /// Reads everything. `judge` returns the problem of an intact value.
    pub(in crate::embedded) fn check(
        path: &Path,
        cache_bytes: usize,
        mut judge: impl FnMut(&str, &Bytes) -> Option<String>,
    ) -> Result<Report, Error> {
        let file_bytes = path.metadata().map_err(io_error)?.len();
        let (mut file, position) = Self::open(&Medium::Path(path.to_owned()), cache_bytes)?;
        let mut report =
            Report { revision: position.revision, compacted: position.compacted, file_bytes, ..Report::default() };
        let intact = contain(|| file.database.check_integrity().map_err(redb_error));
        match intact {
            Ok(true) => {}
            Ok(false) => {
                report.problems.push("the pages of the file did not fit together and were repaired".to_owned())
            }
            Err(error) => report.problems.push(chain(&error)),
        }
        let read = contain(|| {
            let transaction = file.database.begin_read().map_err(redb_error)?;
            let log = transaction.open_table(LOG).map_err(redb_error)?;
            let values = Values { table: transaction.open_table(VALUES).map_err(redb_error)?, _file: None };
            let mut current: HashMap<Arc<str>, u64> = HashMap::new();
            for entry in log.iter().map_err(redb_error)? {
                let (revision, record) = entry.map_err(redb_error)?;
                let revision = revision.value();
                if revision > position.revision {
                    report.problems.push(format!("revision {revision} comes after the last one"));
                }
                let logged = match decode(revision, record.value()) {
                    Ok(logged) => logged,
                    Err(error) => {
                        report.problems.push(chain(&error));
                        continue;
                    }
                };
                if logged.deleted {
                    let old = current.remove(&logged.key).unwrap_or_default();
                    report.history_bytes = report.history_bytes.saturating_add(old);
                    continue;
                }
                let problem = match values.get(revision) {
                    Ok(Some(value)) if u32::try_from(value.len()) == Ok(logged.length) => judge(&logged.key, &value),
                    Ok(Some(_)) => Some("its value has another length than what was written".to_owned()),
                    Ok(None) => Some("its value is missing".to_owned()),
                    Err(error) => Some(chain(&error)),
                };
                if let Some(problem) = problem {
                    report.problems.push(format!("`{}` at revision {revision}: {problem}", logged.key));
                }
                let old = current.insert(logged.key, u64::from(logged.length)).unwrap_or_default();
                report.history_bytes = report.history_bytes.saturating_add(old);
            }
            report.keys = current.len().try_into().unwrap_or(u64::MAX);
            report.bytes = current.values().copied().fold(0, u64::saturating_add);
            Ok(())
        });
        if let Err(error) = read {
            report.problems.push(chain(&error));
        }
        let _ = contain(|| {
            drop(file);
            Ok(())
        });
        Ok(report)
    }
}

/// An error with its causes.
pub(super) fn chain(error: &Error) -> String {
    use std::error::Error as _;
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
