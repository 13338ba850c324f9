//! Background tasks, owned by the component that needs them.

use locks::Mutex;
use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::task::JoinSet;
use tracing::error;

/// The background tasks of one owner. They end with it: dropping this aborts them.
#[derive(Debug, Default)]
pub struct Tasks(Mutex<JoinSet<()>>);

impl Tasks {
    /// Runs a task in the background. A panic in it is logged when it happens and ends only this task.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let logged = async move {
            let mut task = pin!(task);
            let finished = poll_fn(|context| {
                // A task that panicked is never polled again, so no one can observe a broken state of it.
                match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context))) {
                    Ok(Poll::Pending) => Poll::Pending,
                    Ok(Poll::Ready(())) => Poll::Ready(Ok(())),
                    Err(panic) => Poll::Ready(Err(panic)),
                }
            });
            if let Err(panic) = finished.await {
                error!(task = name, err = panic_text(&*panic), "Background task panicked");
            }
        };
        let mut tasks = self.0.lock();
        // An owner that starts a task for each event must not collect the ended ones.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(logged);
    }

    /// Waits until all tasks have ended; after `timeout` the remaining ones are aborted.
    pub async fn finish(&self, timeout: Duration) {
        let mut tasks = std::mem::take(&mut *self.0.lock());
        let ended = async { while tasks.join_next().await.is_some() {} };
        // An elapsed timeout is the case that `shutdown` handles.
        let _ = tokio::time::timeout(timeout, ended).await;
        tasks.shutdown().await;
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn panicking_task_leaves_the_others_running() {
        let tasks = Tasks::default();
        let (sender, receiver) = oneshot::channel();
        tasks.spawn("broken", async { panic!("planted") });
        tasks.spawn("working", async move { sender.send(7).unwrap() });
        assert_eq!(receiver.await, Ok(7));
        tasks.finish(Duration::from_secs(60)).await;
    }

    #[tokio::test]
    async fn ended_tasks_are_not_kept() {
        let tasks = Tasks::default();
        for _ in 0..100 {
            let (sender, receiver) = oneshot::channel();
            tasks.spawn("short", async move { sender.send(()).unwrap() });
            receiver.await.unwrap();
            // On one thread, the task has ended once this one runs again.
            tokio::task::yield_now().await;
        }
        assert_eq!(tasks.0.lock().len(), 1);
        tasks.finish(Duration::from_secs(60)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn finish_aborts_tasks_that_do_not_end() {
        let tasks = Tasks::default();
        let (sender, receiver) = oneshot::channel::<()>();
        tasks.spawn("endless", async move {
            std::future::pending::<()>().await;
            drop(sender);
        });
        tasks.finish(Duration::from_secs(1)).await;
        assert!(receiver.await.is_err(), "the task was dropped");
    }

    #[tokio::test]
    async fn dropping_the_owner_aborts_its_tasks() {
        let tasks = Tasks::default();
        let (sender, receiver) = oneshot::channel::<()>();
        tasks.spawn("endless", async move {
            std::future::pending::<()>().await;
            drop(sender);
        });
        drop(tasks);
        assert!(receiver.await.is_err(), "the task was dropped");
    }
}
