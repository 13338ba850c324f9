//! Logs that are followed: what a container writes is passed on until it ends.
//!
//! Node agents return the existing text. One [`Tail`] for each container polls them while the pod's status
//! shows that the container is running; all its followers read the text by position, in pieces of bounded size.

use locks::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::json::Value;
use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use super::{Kubelets, Logs};
use crate::shutdown::ShutdownSignal;
use crate::wire::answer::Answer;
use crate::wire::body::Body;
use crate::wire::budget::Charge;
use cache::ResourceCache;

/// Interval at which node agents are polled.
const PAUSE: Duration = Duration::from_millis(500);
/// Number of pieces that wait for a slow reader.
const PIECES_WAITING: usize = 1;
/// The size of a piece. It is a copy: a part of the whole text would keep all of it in memory.
const PIECE_BYTES: usize = 16 << 10;
/// Bytes that a follower counts as among the unread answers of its user.
pub(crate) const FOLLOWER_BYTES: usize = 256 << 10;

/// The text of a container, as far as it is known.
#[derive(Debug, Clone, Default)]
struct LogText {
    text: Bytes,
    /// Whether the text is complete.
    is_over: bool,
}

/// The containers that are followed.
#[derive(Debug, Default)]
pub(crate) struct Tails(Mutex<HashMap<Key, Weak<watch::Sender<LogText>>>>);

/// One run of a container, with times or without.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    uid: String,
    container: String,
    has_times: bool,
}

/// A container that is followed.
pub(crate) struct Tail {
    pub(crate) kubelets: Arc<dyn Kubelets>,
    /// A request for all lines.
    pub(crate) wanted: Logs,
    pub(crate) pods: Arc<ResourceCache>,
    pub(crate) key: String,
    pub(crate) uid: String,
    pub(crate) stopping: ShutdownSignal,
}

impl Tails {
    /// Follows a container together with its other followers.
    fn follow(self: &Arc<Self>, tail: Tail) -> watch::Receiver<LogText> {
        let has_times = tail.wanted.options.iter().any(|(option, _)| *option == "timestamps");
        let key = Key { uid: tail.uid.clone(), container: tail.wanted.container.clone(), has_times };
        let mut tails = self.0.lock();
        if let Some(sender) = tails.get(&key).and_then(Weak::upgrade) {
            return sender.subscribe();
        }
        let sender = Arc::new(watch::Sender::new(LogText::default()));
        let receiver = sender.subscribe();
        tails.insert(key.clone(), Arc::downgrade(&sender));
        drop(tails);
        let tails = self.clone();
        tokio::spawn(async move {
            tail.read(&sender).await;
            let mut tails = tails.0.lock();
            // A follower that arrived meanwhile waits at the old one, and is notified that it has ended.
            tails.remove(&key);
            sender.send_modify(|written| written.is_over = true);
        });
        receiver
    }
}

impl Tail {
    /// Reads until the text is complete or there are no followers.
    async fn read(mut self, sender: &watch::Sender<LogText>) {
        loop {
            // Checked before the lines are read, so that the last of them are not missed.
            let has_ended = !self.runs();
            let Ok(text) = self.kubelets.logs(self.wanted.clone()).await else { return };
            let known = sender.borrow().text.clone();
            if !text.starts_with(&known) {
                // The container was started again: this run is over.
                return;
            }
            if text.len() > known.len() {
                sender.send_modify(|written| written.text = text);
            }
            if has_ended {
                return;
            }
            tokio::select! {
                () = sender.closed() => return,
                () = self.stopping.stopped() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }

    /// Whether the pod is there and its container has not ended.
    fn runs(&self) -> bool {
        let pod = self.pods.get(&self.key).map(|pod| pod.decode());
        pod.is_some_and(|pod| {
            pod.str_at(&["metadata", "uid"]) == Some(&self.uid) && !has_ended(&pod, &self.wanted.container)
        })
    }
}

/// A follower of a container.
pub(crate) struct Follower {
    /// Data that precedes the text of the container.
    pub(crate) first: Bytes,
    /// Position in the text.
    pub(crate) position: usize,
    /// Maximum number of bytes to send.
    pub(crate) limit: Option<usize>,
    /// Counts as long as it follows.
    pub(crate) charge: Charge,
}

impl Follower {
    /// An answer that lasts as long as the container.
    pub(crate) fn begin(self, tails: &Arc<Tails>, tail: Tail) -> Answer {
        let (sender, receiver) = mpsc::channel(PIECES_WAITING);
        let written = tails.follow(tail);
        let mut reader = Reader { sender, left: self.limit.unwrap_or(usize::MAX) };
        let (first, position) = (self.first, self.position);
        tokio::spawn(async move {
            if reader.pass_on(&first).await.is_some() {
                drop(first);
                reader.follow(written, position).await;
            }
        });
        Answer::bytes(200, "text/plain", Body::Counted(Box::new((Body::Stream(receiver), self.charge))))
    }
}

/// The client of a follower.
struct Reader {
    sender: mpsc::Sender<Bytes>,
    /// Bytes that it still gets.
    left: usize,
}

impl Reader {
    async fn follow(&mut self, mut written: watch::Receiver<LogText>, mut position: usize) -> Option<()> {
        loop {
            // What lies before the position was passed on already, perhaps before the tail has read it.
            let LogText { text, is_over } = written.borrow_and_update().clone();
            if let Some(news) = text.get(position..).filter(|news| !news.is_empty()) {
                let piece = news.get(..PIECE_BYTES).unwrap_or(news);
                position = position.saturating_add(piece.len());
                let piece = Bytes::copy_from_slice(piece);
                // Not while the client is waited for: others read on.
                drop(text);
                self.send(piece).await?;
                continue;
            }
            drop(text);
            if is_over {
                return Some(());
            }
            tokio::select! {
                () = self.sender.closed() => return None,
                changed = written.changed() => changed.ok()?,
            }
        }
    }

    /// Sends a text to the client; `None` if its limit is reached or it has disconnected.
    async fn pass_on(&mut self, text: &Bytes) -> Option<()> {
        for piece in text.chunks(PIECE_BYTES) {
            self.send(Bytes::copy_from_slice(piece)).await?;
        }
        (self.left > 0).then_some(())
    }

    async fn send(&mut self, mut piece: Bytes) -> Option<()> {
        piece.truncate(self.left);
        self.left = self.left.saturating_sub(piece.len());
        self.sender.send(piece).await.ok()?;
        (self.left > 0).then_some(())
    }
}

/// Whether a container has ended, according to the status.
fn has_ended(pod: &Value, container: &str) -> bool {
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let statuses = lists.iter().filter_map(|list| pod.array_at(&["status", list])).flatten();
    let is_over = matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed"));
    let mut own = statuses.filter(|it| it.str_at(&["name"]) == Some(container));
    is_over || own.any(|it| it.at(&["state", "terminated"]).is_some())
}
