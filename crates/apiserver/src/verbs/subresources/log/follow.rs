//! Logs that are followed: what a container writes is passed on until it ends.
//!
//! Node agents answer with what there is. They are asked again while the pod's status says that the container has not
//! ended, and what is new is passed on.

use std::sync::Arc;
use std::time::Duration;

use api::json::Value;
use bytes::Bytes;
use tokio::sync::mpsc;

use crate::http::answer::Answer;
use crate::http::body::Body;
use crate::server::{Kubelets, Logs, Stopping};
use crate::storage::cache::ResourceCache;

/// How often node agents are asked for more.
const PAUSE: Duration = Duration::from_millis(500);
/// How many pieces wait for a slow reader.
const PIECES_WAITING: usize = 4;

/// What is followed.
pub(super) struct Followed {
    pub(super) kubelets: Arc<dyn Kubelets>,
    /// Asks for all lines, so that what is new can be told.
    pub(super) wanted: Logs,
    pub(super) pods: Arc<ResourceCache>,
    pub(super) key: String,
    pub(super) uid: String,
    /// How many bytes are passed on at the most.
    pub(super) limit: Option<usize>,
    pub(super) stopping: Stopping,
}

impl Followed {
    /// An answer that begins with `first` and goes on with what follows `known`.
    pub(super) fn begin(self, first: Bytes, known: Bytes) -> Answer {
        let (sender, receiver) = mpsc::channel(PIECES_WAITING);
        tokio::spawn(self.pass_on(first, known, sender));
        Answer::bytes(200, "text/plain", Body::Stream(receiver))
    }

    async fn pass_on(mut self, first: Bytes, mut known: Bytes, sender: mpsc::Sender<Bytes>) {
        let mut left = self.limit.map(|limit| limit.saturating_sub(first.len()));
        if !first.is_empty() && sender.send(first).await.is_err() {
            return;
        }
        while left != Some(0) {
            // Asked before the lines are, so that the last of them are not missed.
            let has_ended = !self.runs();
            let Ok(text) = self.kubelets.logs(self.wanted.clone()).await else { return };
            if !text.starts_with(&known) {
                // The container was started again: this run is over.
                return;
            }
            let mut news = text.slice(known.len()..);
            known = text;
            if let Some(left) = &mut left {
                news.truncate(*left);
                *left = left.saturating_sub(news.len());
            }
            if !news.is_empty() && sender.send(news).await.is_err() {
                return;
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

/// Whether the status says that a container has ended.
fn has_ended(pod: &Value, container: &str) -> bool {
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let statuses = lists.iter().filter_map(|list| pod.at(&["status", list]).and_then(Value::as_array)).flatten();
    let is_over = matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed"));
    let mut own = statuses.filter(|it| it.str_at(&["name"]) == Some(container));
    is_over || own.any(|it| it.at(&["state", "terminated"]).is_some())
}
