//! The queue against a model, over random interleavings of events and cycles: no wake-up is lost, no pod doubled.

#![allow(clippy::arithmetic_side_effects, reason = "tests")]

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use api::core::v1::Pod;
use matching::{Features, Matcher};

use super::*;
use crate::Random;
use crate::cluster::Shapes;
use crate::framework::{Action, Resource};

/// State of a pod in the model.
#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// To be tried, perhaps after a back-off.
    Ready,
    /// Rejected by these plugins.
    Waiting(PluginSet),
    Gated,
    InFlight,
}

struct Model {
    queue: Queue,
    pods: BTreeMap<Text, (State, Option<QueuedPod>)>,
    infos: Vec<Arc<PodInfo>>,
    random: Random,
    now: Duration,
}

fn infos() -> Vec<Arc<PodInfo>> {
    let clock: Arc<dyn Fn() -> Duration + Send + Sync> = Arc::new(|| Duration::ZERO);
    let matcher = Matcher::new(NonZeroUsize::new(4).unwrap(), clock, Features::default()).unwrap();
    let mut shapes = Shapes::default();
    let make = |number: usize| {
        let mut pod = Pod::default();
        pod.metadata.uid = format!("{number}").into();
        pod.metadata.labels.insert("shape".into(), format!("{}", number % 4).into());
        Arc::new(PodInfo::new(&pod, &mut shapes, &matcher))
    };
    (0..24).map(make).collect()
}

fn gate() -> Option<(PluginSet, Status)> {
    Some((1 << 5, Status::unresolvable("closed")))
}

impl Model {
    fn new(seed: u64) -> Self {
        let queue = Queue::new(Backoff::default());
        Model { queue, pods: BTreeMap::new(), infos: infos(), random: Random::new(seed), now: Duration::from_secs(5) }
    }

    fn any_pod(&mut self) -> Arc<PodInfo> {
        self.infos[self.random.below(self.infos.len())].clone()
    }

    fn step(&mut self) {
        let pod = self.any_pod();
        match self.random.below(8) {
            0 => {
                let gated = self.random.below(5) == 0;
                self.queue.add(pod.clone(), 0, if gated { gate() } else { None }, self.now);
                self.pods.insert(pod.uid.clone(), (if gated { State::Gated } else { State::Ready }, None));
            }
            1 => {
                self.queue.remove(&pod.uid);
                self.pods.remove(&pod.uid);
            }
            2 | 3 => {
                if let Some(popped) = self.queue.pop(self.now) {
                    let (state, held) = self.pods.get_mut(&popped.pod.uid).expect("a pod that the model knows");
                    // A pod that waited too long may be tried without an event.
                    assert!(matches!(state, State::Ready | State::Waiting(_)), "{state:?}");
                    *state = State::InFlight;
                    *held = Some(popped);
                }
            }
            4 => {
                let flying = self.pods.values_mut().find(|(state, _)| *state == State::InFlight);
                if let Some((state, held)) = flying {
                    let by = [0, 1, 2, 3][self.random.below(4)];
                    self.queue.reject(held.take().unwrap(), Rejection { by, pending: by & 2 }, self.now);
                    *state = if by == 0 { State::Ready } else { State::Waiting(by) };
                }
            }
            5 => {
                let flying = self.pods.iter().find(|(_, (state, _))| *state == State::InFlight);
                if let Some(uid) = flying.map(|(uid, _)| uid.clone()) {
                    assert!(self.queue.finish(&uid).is_some());
                    self.pods.remove(&uid);
                }
            }
            6 => self.event(),
            _ => self.now += Duration::from_millis(self.random.below(3000) as u64),
        }
        self.check();
    }

    /// An event that may satisfy some plugins for some shapes.
    fn event(&mut self) {
        let listeners: PluginSet = self.random.below(64) as u64;
        let shape = format!("{}", self.random.below(4));
        let wins = |pod: &PodInfo| pod.labels().get("shape").is_some_and(|it| *it == shape);
        let opens = self.random.below(2) == 0;
        self.queue.happened(
            Event::new(Resource::Node, Action::ADD),
            listeners,
            |pod, asked| if wins(pod) { asked } else { 0 },
            |_| if opens { None } else { gate() },
            self.now,
        );
        for (uid, (state, _)) in &mut self.pods {
            let pod = self.infos.iter().find(|pod| pod.uid == *uid).unwrap();
            match state {
                State::Waiting(by) if *by & listeners != 0 && wins(pod) => *state = State::Ready,
                State::Gated if listeners & (1 << 5) != 0 && wins(pod) && opens => *state = State::Ready,
                _ => {}
            }
        }
    }

    fn check(&self) {
        let count = |wanted: fn(&State) -> bool| self.pods.values().filter(|(state, _)| wanted(state)).count();
        let lengths = self.queue.lengths();
        assert_eq!(lengths.gated, count(|state| *state == State::Gated));
        let gating: usize = self.queue.rejected_by().filter(|(_, place, _)| *place == 5).map(|(.., count)| count).sum();
        assert_eq!(gating, lengths.gated);
        let ready = count(|state| *state == State::Ready);
        let waiting = count(|state| matches!(state, State::Waiting(_)));
        // A flush may have moved some that wait, never one that is ready back.
        assert!(lengths.active + lengths.backoff >= ready, "a wake-up was lost: {lengths:?}, {ready} ready");
        assert_eq!(lengths.active + lengths.backoff + lengths.unschedulable, ready + waiting);
    }

    /// After a long time, everything that is not gated or in flight is tried, once.
    fn drain(mut self) {
        self.now += Duration::from_secs(3600);
        let mut left: Vec<Text> = self
            .pods
            .iter()
            .filter(|(_, (state, _))| matches!(state, State::Ready | State::Waiting(_)))
            .map(|(uid, _)| uid.clone())
            .collect();
        while let Some(popped) = self.queue.pop(self.now) {
            let place = left.iter().position(|uid| *uid == popped.pod.uid).expect("tried once");
            left.remove(place);
        }
        assert!(left.is_empty(), "never tried: {left:?}");
    }
}

#[test]
fn no_wake_up_is_lost() {
    for seed in 0..200 {
        let mut model = Model::new(seed);
        for _ in 0..300 {
            model.step();
        }
        model.drain();
    }
}

#[test]
fn back_off_doubles_up_to_its_maximum() {
    let mut queue = Queue::new(Backoff::default());
    let mut now = Duration::from_secs(100);
    queue.add(infos().remove(0), 0, None, now);
    let mut waits = Vec::new();
    for _ in 0..6 {
        let popped = queue.pop(now).unwrap();
        queue.reject(popped, Rejection { by: 0, pending: 0 }, now);
        let until = queue.next_wake_up(now).unwrap();
        waits.push((until - now).as_secs());
        now = until;
    }
    assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
}

#[test]
fn pods_with_pending_operations_are_tried_at_once() {
    let mut queue = Queue::new(Backoff::default());
    let now = Duration::from_secs(100);
    let mut infos = infos();
    queue.add(infos.remove(0), 0, None, now);
    let popped = queue.pop(now).unwrap();
    queue.reject(popped, Rejection { by: 1, pending: 1 }, now);
    assert_eq!(queue.happened(Event::new(Resource::Node, Action::ADD), 1, |_, asked| asked, |_| None, now), 1);
    assert_eq!((queue.lengths().active, queue.lengths().backoff), (1, 0));
}
