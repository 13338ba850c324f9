//! A backup of the store while it is used: `GET /store/backup`.
//!
//! It requires the permission to get that path, which only administrators have by default: the backup contains
//! everything, including secrets.

use bytes::Bytes;
use store::backup;
use tokio::sync::mpsc;
use tracing::warn;

use super::Server;
use crate::wire::answer::Answer;
use crate::wire::body::Body;
use crate::wire::status::{Failure, Result};

/// Pieces of a backup have about this many bytes.
const PIECE: usize = 256 << 10;
/// Number of pieces that wait for the client.
const PIECES_WAITING: usize = 2;

pub(super) async fn answer(server: &Server) -> Result<Answer> {
    let snapshot = match server.store.snapshot().await {
        Err(store::Error::Refused(cause)) => {
            return Err(Failure::new(501, "NotImplemented", format!("there is no backup of this store: {cause}")));
        }
        snapshot => snapshot?,
    };
    let (sender, receiver) = mpsc::channel::<Bytes>(PIECES_WAITING);
    // Reading blocks, and waits for a slow client.
    tokio::task::spawn_blocking(move || {
        let mut piece = Vec::with_capacity(PIECE);
        backup::begin(snapshot.revision(), &mut piece);
        let mut count = 0_u64;
        for entry in snapshot {
            match entry {
                Ok(entry) => backup::add(&entry, &mut piece),
                Err(error) => {
                    // Without its end it is not accepted as complete.
                    warn!(err = %telemetry::logs::chain(&error), "Backup ended early");
                    return;
                }
            }
            count = count.saturating_add(1);
            if piece.len() > PIECE && sender.blocking_send(std::mem::take(&mut piece).into()).is_err() {
                return;
            }
        }
        backup::end(count, &mut piece);
        let _ = sender.blocking_send(piece.into());
    });
    Ok(Answer::bytes(200, "application/octet-stream", Body::Stream(receiver)))
}
