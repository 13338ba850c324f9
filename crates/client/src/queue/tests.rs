//! Keys, delays, back-off and the end, in paused time; and a model of the whole.
#![allow(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "tests")]

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(test);
}

/// The next key, if one is ready.
async fn next(queue: &Arc<Queue<u8>>) -> Option<Item<u8>> {
    tokio::select! {
        biased;
        key = queue.get() => key,
        () = std::future::ready(()) => None,
    }
}

fn key(item: Option<Item<u8>>) -> Option<u8> {
    item.map(|item| {
        let key = *item;
        item.done();
        key
    })
}

#[test]
fn a_key_waits_once_and_is_worked_on_by_one() {
    run(async {
        let queue = Arc::new(Queue::default());
        queue.add(1);
        queue.add(1);
        assert_eq!(queue.len(), 1);
        let item = queue.get().await.unwrap();
        queue.add(1);
        assert!(next(&queue).await.is_none(), "it is worked on");
        item.done();
        assert_eq!(key(queue.get().await), Some(1));
        assert!(next(&queue).await.is_none());
    });
}

#[test]
fn delays_count_from_the_earliest() {
    run(async {
        let queue = Arc::new(Queue::default());
        queue.add_after(1, Duration::from_secs(10));
        queue.add_after(2, Duration::from_secs(5));
        queue.add_after(1, Duration::from_secs(1));
        queue.add_after(1, Duration::from_secs(20));
        let started = Instant::now();
        assert_eq!(key(queue.get().await), Some(1));
        assert_eq!(started.elapsed().as_secs(), 1);
        assert_eq!(key(queue.get().await), Some(2));
        assert_eq!(started.elapsed().as_secs(), 5);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(next(&queue).await.is_none(), "later times of the same key do not count");
    });
}

#[test]
fn failures_come_back_later_and_later() {
    run(async {
        let backoff = Backoff { first: Duration::from_secs(1), max: Duration::from_secs(6) };
        let queue = Arc::new(Queue::new(backoff, None));
        queue.add(7);
        queue.get().await.unwrap().retry();
        for expected in [1, 2, 4, 6, 6] {
            let started = Instant::now();
            let item = queue.get().await.unwrap();
            assert_eq!(started.elapsed().as_secs(), expected);
            // A worker that panics, or whose task is dropped, drops the item.
            drop(item);
        }
        assert_eq!(queue.failures(&7), 6);
        queue.get().await.unwrap().again_after(Duration::from_secs(9));
        assert_eq!(queue.failures(&7), 0);
        let started = Instant::now();
        assert_eq!(key(queue.get().await), Some(7));
        assert_eq!(started.elapsed().as_secs(), 9);
    });
}

#[test]
fn a_bucket_limits_all_keys_together() {
    run(async {
        let backoff = Backoff { first: Duration::from_millis(1), max: Duration::from_millis(1) };
        let queue = Arc::new(Queue::new(backoff, Some(Bucket::new(1.0, 2))));
        (0..5).for_each(|key| queue.add_rate_limited(key));
        let started = Instant::now();
        for _ in 0..5 {
            queue.get().await.unwrap().done();
        }
        assert_eq!(started.elapsed().as_secs(), 3);
    });
}

#[test]
fn drain_waits_for_added_keys() {
    run(async {
        let queue = Arc::new(Queue::default());
        (0..3).for_each(|key| queue.add(key));
        queue.add_after(9, Duration::from_secs(1));
        let worker = tokio::spawn({
            let queue = queue.clone();
            async move {
                let mut seen = Vec::new();
                while let Some(item) = queue.get().await {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    seen.push(*item);
                    item.done();
                }
                seen
            }
        });
        let started = Instant::now();
        queue.drain().await;
        assert_eq!(started.elapsed().as_secs(), 3);
        queue.add(4);
        assert_eq!(worker.await.unwrap(), [0, 1, 2]);
    });
}

#[test]
fn an_abandoned_queue_hands_out_nothing_more() {
    run(async {
        let queue = Arc::new(Queue::default());
        (0..3).for_each(|key| queue.add(key));
        let item = queue.get().await.unwrap();
        queue.abandon();
        assert!(queue.get().await.is_none());
        item.retry();
        assert!(queue.get().await.is_none());
    });
}

#[test]
fn queues_are_measured_under_the_names_of_client_go() {
    run(async {
        let registry = telemetry::metrics::Registry::new();
        let metrics = Metrics::new(&registry);
        let queue = metrics.queue("node", Backoff::default(), None, &Clock::system());
        (0..3).for_each(|key| queue.add(key));
        let item = queue.get().await.unwrap();
        queue.get().await.unwrap().retry();
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(queue.len(), 2, "the one that failed has come back");
        let text = registry.text();
        for line in [
            "workqueue_adds_total{name=\"node\"} 4",
            "workqueue_depth{name=\"node\"} 2",
            "workqueue_longest_running_processor_seconds{name=\"node\"} 5",
            "workqueue_queue_duration_seconds_bucket{name=\"node\",le=\"1e-08\"} 2",
            "workqueue_retries_total{name=\"node\"} 1",
            "workqueue_unfinished_work_seconds{name=\"node\"} 5",
            "workqueue_work_duration_seconds_count{name=\"node\"} 1",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
        }
        item.done();
        drop(queue);
        assert!(!registry.text().contains("workqueue_depth"), "the queue is gone");
    });
}

#[derive(Debug, Clone)]
enum Step {
    Add(u8),
    Later(u8, u8),
    Get,
    Done(u8),
    Wait(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..5_u8).prop_map(Step::Add),
        (0..5_u8, 0..4_u8).prop_map(|(key, seconds)| Step::Later(key, seconds)),
        Just(Step::Get),
        (0..5_u8).prop_map(Step::Done),
        (0..4_u8).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 0..60)
}

proptest! {
    /// No key is lost, none is processed twice at a time, and none is returned that was not added.
    #[test]
    fn every_key_that_was_added_is_worked_on_afterwards(steps in steps()) {
        run(async {
            let queue: Arc<Queue<u8>> = Arc::default();
            let mut working: Vec<Item<u8>> = Vec::new();
            let mut wanted: HashSet<u8> = HashSet::new();
            let mut later: HashMap<u8, Instant> = HashMap::new();
            for step in steps {
                let now = Instant::now();
                wanted.extend(later.extract_if(|_, at| *at <= now).map(|(key, _)| key));
                match step {
                    Step::Add(key) | Step::Later(key, 0) => {
                        queue.add(key);
                        wanted.insert(key);
                    }
                    Step::Later(key, seconds) => {
                        let delay = Duration::from_secs(seconds.into());
                        queue.add_after(key, delay);
                        let at = later.entry(key).or_insert(now + delay);
                        *at = (*at).min(now + delay);
                    }
                    Step::Get => {
                        if let Some(item) = next(&queue).await {
                            assert!(working.iter().all(|it| **it != *item), "{} is handed out twice", *item);
                            assert!(wanted.remove(&*item), "{} was not added", *item);
                            working.push(item);
                        } else {
                            let worked = |key: &u8| working.iter().any(|it| **it == *key);
                            assert!(wanted.iter().all(worked), "{wanted:?} is lost");
                        }
                    }
                    Step::Done(key) => {
                        working.extract_if(.., |it| **it == key).for_each(Item::done);
                    }
                    Step::Wait(seconds) => tokio::time::advance(Duration::from_secs(seconds.into())).await,
                }
            }
        });
    }
}
