//! The store on etcd (API v3, from 3.4), for several API servers on one set of data.
//!
//! A guarded write is one transaction, a list is read in pages at one revision, and each watch is a stream that
//! is reopened where it ended. etcd compacts and expires keys itself; callers of [`Store::compact`] decide when
//! to compact.

mod connection;
mod leases;
mod proto;
#[cfg(feature = "etcd-server")]
pub mod server;
mod watcher;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch as signal;
use tonic::Status;

use self::connection::{Connection, error};
use self::leases::Leases;
use self::proto::{
    CompactionRequest, CompactionResponse, Compare, CompareResult, CompareTarget, DeleteRangeRequest, KeyValue,
    Operation, PutRequest, RangeRequest, RangeResponse, RequestOp, ResponseHeader, TxnRequest, TxnResponse, call,
    methods,
};
use self::watcher::Watcher;
use crate::{Cause, Change, Entry, Error, Guard, ListOptions, Outcome, Page, Reading, Revision, Store, Watch, Write};

/// Connection to etcd.
#[derive(Debug, Clone)]
pub struct Options {
    /// The members' addresses, such as `https://10.0.0.1:2379`.
    pub endpoints: Vec<String>,
    /// TLS settings; required for `https` endpoints.
    pub tls: Option<Tls>,
    /// Prefix of every key in etcd, and nowhere else. Several stores can share an etcd with different roots.
    pub root: String,
    /// Total time limit of a call.
    pub timeout: Duration,
    /// Larger requests are not sent. etcd has its own limit, 1.5 MiB by default.
    pub request_bytes_max: usize,
    /// Interval of a watch's progress requests while nothing changes in its range.
    ///
    /// Versions before 3.4.31 and 3.5.13 do not support these requests reliably: there, progress arrives at
    /// etcd's configured interval.
    pub progress_interval: Duration,
}

impl Options {
    /// The usual settings for these members.
    pub fn new(endpoints: impl IntoIterator<Item = String>) -> Self {
        Self {
            endpoints: endpoints.into_iter().collect(),
            tls: None,
            root: String::new(),
            timeout: Duration::from_secs(10),
            request_bytes_max: 8 << 20,
            progress_interval: Duration::from_secs(5),
        }
    }
}

/// Certificates for etcd, all as PEM.
#[derive(Clone, Default)]
pub struct Tls {
    /// CA certificate for the members.
    pub authority_pem: Option<Vec<u8>>,
    /// The client's certificate and key.
    pub identity_pem: Option<(Vec<u8>, Vec<u8>)>,
    /// The name to expect in a member's certificate, if it is not the one in its address.
    pub server_name: Option<String>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key must not be logged.
        f.debug_struct("Tls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

/// A store on etcd.
#[derive(Debug)]
pub struct Etcd {
    connection: Arc<Connection>,
    leases: Leases,
    options: Options,
    closed: signal::Sender<bool>,
}

/// Lists are read from etcd in pieces of this many entries.
const PIECE: usize = 500;
/// The first of them, where bytes are limited: the size of entries is not known yet.
const FIRST_PIECE: usize = 32;

impl Etcd {
    /// Prepares a store. Connections are made when they are needed, so this succeeds also while etcd is away.
    ///
    /// # Errors
    /// [`Error::Refused`] if the endpoints or certificates cannot be used.
    pub fn new(options: Options) -> Result<Self, Error> {
        let connection = Arc::new(Connection::new(&options)?);
        Ok(Self { connection, leases: Leases::default(), options, closed: signal::Sender::new(false) })
    }

    fn check_open(&self) -> Result<(), Error> {
        if *self.closed.borrow() { Err(Error::Closed) } else { Ok(()) }
    }

    fn full_key(&self, key: &str) -> Bytes {
        let mut full = Vec::with_capacity(self.options.root.len().saturating_add(key.len()).saturating_add(1));
        full.extend_from_slice(self.options.root.as_bytes());
        full.extend_from_slice(key.as_bytes());
        full.into()
    }

    fn entry(&self, pair: KeyValue) -> Result<Entry, Error> {
        Ok(Entry {
            key: own_key(&self.options.root, &pair.key)?,
            revision: revision(pair.mod_revision),
            value: pair.value,
        })
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Status> {
        self.connection.read(|channel| call(channel, methods::RANGE, request.clone())).await
    }

    /// One attempt at a list; the revision may be compacted away under it.
    async fn list_once(&self, prefix: &str, options: &ListOptions) -> Result<Page, Error> {
        let (first, range_end) = range_of(self.full_key(prefix));
        let start = match &options.after_key {
            Some(key) if key.as_str() >= prefix => after(self.full_key(key)),
            _ => first.clone(),
        };
        let limit = options.limit.unwrap_or(usize::MAX);
        let bytes_max = options.bytes_max.unwrap_or(usize::MAX);
        let mut at = options.revision;
        let mut entries: Vec<Entry> = Vec::new();
        let mut bytes = 0_usize;
        let mut start = Some(start).filter(|start| range_end == EVERYTHING || *start < range_end);
        loop {
            let room = limit.saturating_sub(entries.len()).min(match options.bytes_max {
                None => PIECE,
                // etcd has no limit on bytes: the next piece is as long as the entries so far let expect.
                Some(_) if bytes == 0 => FIRST_PIECE,
                Some(max) => {
                    let left = max.saturating_sub(bytes).saturating_mul(entries.len());
                    left.checked_div(bytes).unwrap_or(PIECE).clamp(1, PIECE)
                }
            });
            // With nothing to list there is still the revision to check, and the rest to count.
            let count_only = room == 0 || start.is_none();
            let request = RangeRequest {
                key: start.clone().unwrap_or_else(|| first.clone()),
                range_end: range_end.clone(),
                limit: if count_only { 0 } else { signed(room as u64) },
                revision: signed(at.unwrap_or(0)),
                count_only,
            };
            let response = match self.range(request).await {
                Ok(response) => response,
                Err(status) => return Err(self.revision_error(status, at.unwrap_or(0)).await),
            };
            let revision_now = *at.get_or_insert(header_revision(response.header));
            let returned = response.kvs.len();
            if let Some(last) = response.kvs.last() {
                start = Some(after(last.key.clone()));
            }
            for pair in response.kvs {
                bytes = bytes.saturating_add(pair.value.len());
                entries.push(self.entry(pair)?);
            }
            let remaining = if start.is_none() { 0 } else { revision(response.count).saturating_sub(returned as u64) };
            if remaining == 0 || entries.len() >= limit || bytes >= bytes_max || count_only {
                return Ok(Page { revision: revision_now, entries, remaining });
            }
        }
    }

    /// Adds the revision that etcd omits from an error.
    async fn revision_error(&self, status: Status, requested: Revision) -> Error {
        match error(status, requested) {
            Error::FutureRevision { requested, current } => {
                let current = self.current_revision().await.unwrap_or(current);
                Error::FutureRevision { requested, current }
            }
            other => other,
        }
    }

    async fn change(&self, key: &Bytes, change: Change) -> Result<Operation, Status> {
        Ok(match change {
            Change::Put { value, ttl } => {
                let lease = match ttl {
                    Some(ttl) => self.leases.grant(&self.connection, ttl).await?,
                    None => 0,
                };
                Operation::Put(PutRequest { key: key.clone(), value, lease })
            }
            Change::Delete => Operation::DeleteRange(DeleteRangeRequest { key: key.clone() }),
        })
    }
}

#[async_trait]
impl Store for Etcd {
    async fn current_revision(&self) -> Result<Revision, Error> {
        self.check_open()?;
        let (key, _) = range_of(self.full_key(""));
        let request = RangeRequest { key, count_only: true, ..RangeRequest::default() };
        let response = self.range(request).await.map_err(|status| error(status, 0))?;
        Ok(header_revision(response.header))
    }

    async fn get(&self, key: &str, at_least: Revision) -> Result<Reading, Error> {
        self.check_open()?;
        if key.is_empty() {
            return Ok(Reading { revision: self.current_revision().await?, entry: None });
        }
        let request = RangeRequest { key: self.full_key(key), ..RangeRequest::default() };
        let response = self.range(request).await.map_err(|status| error(status, at_least))?;
        let revision = header_revision(response.header);
        if revision < at_least {
            return Err(Error::FutureRevision { requested: at_least, current: revision });
        }
        let entry = response.kvs.into_iter().next().map(|pair| self.entry(pair)).transpose()?;
        Ok(Reading { revision, entry })
    }

    async fn list(&self, prefix: &str, options: ListOptions) -> Result<Page, Error> {
        loop {
            self.check_open()?;
            match self.list_once(prefix, &options).await {
                // Between two pieces of a list at no revision in particular: start over at a newer one.
                Err(Error::Compacted { .. }) if options.revision.is_none() => {}
                result => return result,
            }
        }
    }

    async fn write(&self, write: Write) -> Result<Outcome, Error> {
        self.check_open()?;
        write.check()?;
        let Write { key, guard, change } = write;
        let value_bytes = match &change {
            Change::Put { value, .. } => value.len(),
            Change::Delete => 0,
        };
        let size = value_bytes.saturating_add(key.len());
        if size > self.options.request_bytes_max {
            let limit = self.options.request_bytes_max;
            return Err(Error::TooLarge { what: "request", size: size as u64, limit: limit as u64 });
        }
        let unchanged_since = match guard {
            Guard::Absent => 0,
            // To etcd this would mean that the key must not exist.
            Guard::Unchanged(0) => {
                return Ok(Outcome::Conflict { current: self.get(&key, 0).await?.entry });
            }
            Guard::Unchanged(revision) => signed(revision),
        };
        let key = self.full_key(&key);
        let change = self.change(&key, change).await.map_err(|status| error(status, 0))?;
        let request = TxnRequest {
            compare: vec![Compare {
                result: CompareResult::Equal.into(),
                target: CompareTarget::Mod.into(),
                key: key.clone(),
                mod_revision: Some(unchanged_since),
            }],
            success: vec![RequestOp { request: Some(change) }],
            failure: vec![RequestOp {
                request: Some(Operation::Range(RangeRequest { key, ..RangeRequest::default() })),
            }],
        };
        let transaction = |channel| call::<_, TxnResponse>(channel, methods::TXN, request.clone());
        let response = self.connection.write(transaction).await.map_err(|status| error(status, 0))?;
        if response.succeeded {
            return Ok(Outcome::Done { revision: header_revision(response.header) });
        }
        let current = response.responses.into_iter().find_map(|operation| operation.range?.kvs.into_iter().next());
        Ok(Outcome::Conflict { current: current.map(|pair| self.entry(pair)).transpose()? })
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, Error> {
        self.check_open()?;
        let (key, range_end) = range_of(self.full_key(prefix));
        Ok(Watch::new(Watcher::new(
            self.connection.clone(),
            self.closed.subscribe(),
            (key, range_end),
            after,
            &self.options,
        )))
    }

    async fn compact(&self, revision: Revision) -> Result<(), Error> {
        self.check_open()?;
        // Compacting twice is compacting once.
        let request = CompactionRequest { revision: signed(revision) };
        let compaction = |channel| call::<_, CompactionResponse>(channel, methods::COMPACT, request);
        match self.connection.read(compaction).await {
            Ok(_) => Ok(()),
            Err(status) => match self.revision_error(status, revision).await {
                Error::Compacted { .. } => Ok(()),
                other => Err(other),
            },
        }
    }

    async fn close(&self) -> Result<(), Error> {
        self.closed.send_replace(true);
        Ok(())
    }
}

/// The key that denotes "no end" in a range.
const EVERYTHING: &[u8] = b"\0";

/// First key and end of the range of keys with a prefix.
fn range_of(prefix: Bytes) -> (Bytes, Bytes) {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return (prefix, end.into());
        }
    }
    let first = if prefix.is_empty() { Bytes::from_static(EVERYTHING) } else { prefix };
    (first, Bytes::from_static(EVERYTHING))
}

/// The least key that is greater.
fn after(key: Bytes) -> Bytes {
    let mut next = Vec::with_capacity(key.len().saturating_add(1));
    next.extend_from_slice(&key);
    next.push(0);
    next.into()
}

fn own_key(root: &str, key: &[u8]) -> Result<Arc<str>, Error> {
    let own = key.strip_prefix(root.as_bytes()).and_then(|key| std::str::from_utf8(key).ok());
    Ok(own.ok_or_else(|| Error::Damaged(Cause::new("a key that is not text")))?.into())
}

fn header_revision(header: Option<ResponseHeader>) -> Revision {
    header.map_or(0, |header| revision(header.revision))
}

fn revision(signed: i64) -> Revision {
    Revision::try_from(signed).unwrap_or(0)
}

fn signed(revision: Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}
