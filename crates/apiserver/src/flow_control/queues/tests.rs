//! Running, waiting and rejected requests, with a manual clock.

use super::*;

const QUEUED: Shape = Shape { queues: 64, hand: 6, length_max: 3 };

struct Level {
    queues: Queues,
    now: Instant,
    running: Vec<(u64, Ticket)>,
    waiting: Vec<(u64, Place)>,
}

impl Level {
    fn new(shape: Shape, limit: u64) -> Self {
        let now = Instant::now();
        Self { queues: Queues::new(shape, limit, now), now, running: Vec::new(), waiting: Vec::new() }
    }

    /// Result of a request: `runs`, `waits`, or the reason of the rejection.
    fn ask(&mut self, flow: u64, seats: u64) -> &'static str {
        let outcome = match self.queues.arrive(self.now, flow, seats) {
            Arrival::Runs(ticket) => {
                self.running.push((flow, ticket));
                "runs"
            }
            Arrival::Waits(place) => {
                self.waiting.push((flow, place));
                "waits"
            }
            Arrival::Refused(refusal) => refusal.reason(),
        };
        self.collect();
        outcome
    }

    fn collect(&mut self) {
        let mut rest = Vec::new();
        for (flow, mut place) in self.waiting.drain(..) {
            match place.ticket.try_recv() {
                Ok(ticket) => self.running.push((flow, ticket)),
                Err(_) => rest.push((flow, place)),
            }
        }
        self.waiting = rest;
    }

    /// The one that has run longest ends.
    fn end_one(&mut self) -> u64 {
        self.now = self.now.checked_add(Duration::from_millis(10)).unwrap();
        let (flow, ticket) = self.running.remove(0);
        self.queues.leave(self.now, ticket);
        self.collect();
        flow
    }

    /// All that run end.
    fn end_all(&mut self) -> Vec<u64> {
        self.now = self.now.checked_add(Duration::from_millis(10)).unwrap();
        let ended = std::mem::take(&mut self.running);
        for (_, ticket) in &ended {
            self.queues.leave(self.now, *ticket);
        }
        self.collect();
        ended.into_iter().map(|(flow, _)| flow).collect()
    }

    fn used(&self) -> u64 {
        self.queues.seats_in_use()
    }
}

#[test]
fn requests_without_seats_or_queues_are_rejected() {
    let mut level = Level::new(Shape { queues: 0, hand: 0, length_max: 0 }, 3);
    assert_eq!(level.ask(1, 2), "runs");
    assert_eq!(level.ask(1, 2), "concurrency-limit");
    assert_eq!(level.ask(1, 1), "runs");
    level.end_one();
    assert_eq!(level.used(), 1);
    assert_eq!(level.ask(1, 2), "runs");
}

#[test]
fn request_wider_than_the_limit_runs_alone() {
    let mut level = Level::new(QUEUED, 2);
    assert_eq!(level.ask(1, 10), "runs");
    assert_eq!(level.ask(2, 1), "waits");
    level.end_one();
    assert_eq!(level.running.len(), 1);
    assert_eq!(level.ask(1, 10), "waits");
    level.end_one();
    assert_eq!(level.used(), 10);
}

#[test]
fn a_flow_that_floods_leaves_others_their_turn() {
    let mut level = Level::new(QUEUED, 4);
    let flood = 7;
    let mut refused = 0;
    for _ in 0..100 {
        refused += u64::from(level.ask(flood, 1) == "queue-full");
    }
    // Four run, and three wait in each of six queues.
    assert_eq!(refused, 100 - 4 - 18);
    let polite = 123_456_789_123;
    assert_eq!(level.ask(polite, 1), "waits");
    // The one that came last but has had nothing is among the first to go.
    let mut turns = 0;
    while !level.running.iter().any(|(flow, _)| *flow == polite) {
        level.end_one();
        turns += 1;
    }
    assert!(turns <= 4, "{turns}");
}

#[test]
fn two_flows_that_flood_share_equally() {
    let mut level = Level::new(Shape { queues: 64, hand: 1, length_max: 200 }, 2);
    for _ in 0..100 {
        level.ask(1, 1);
    }
    for _ in 0..100 {
        level.ask(2, 1);
    }
    let mut ended = HashMap::new();
    for _ in 0..100 {
        *ended.entry(level.end_one()).or_insert(0_u32) += 1;
    }
    let (one, two) = (ended[&1], ended[&2]);
    assert!(one.abs_diff(two) <= 10, "{one} {two}");
}

#[test]
fn wide_requests_get_fewer_turns() {
    let mut level = Level::new(Shape { queues: 64, hand: 1, length_max: 500 }, 10);
    for _ in 0..100 {
        level.ask(1, 10);
        level.ask(2, 1);
    }
    let mut ended = HashMap::new();
    for _ in 0..15 {
        for flow in level.end_all() {
            *ended.entry(flow).or_insert(0_u32) += 1;
        }
    }
    assert!(ended[&2] > 4 * ended[&1], "{ended:?}");
}

#[test]
fn cancelled_request_releases_its_place() {
    let mut level = Level::new(QUEUED, 1);
    level.ask(1, 1);
    level.ask(2, 1);
    level.ask(3, 1);
    // One cancels explicitly, one is just dropped.
    let (_, place) = level.waiting.remove(0);
    level.queues.give_up(level.now, &place);
    level.waiting.clear();
    level.end_one();
    assert_eq!(level.used(), 0);
    assert_eq!((level.queues.active.len(), level.queues.occupied.len(), level.queues.seats_waiting), (0, 0, 0));
}

#[test]
fn added_seats_release_waiting_requests() {
    let mut level = Level::new(QUEUED, 1);
    for _ in 0..3 {
        level.ask(1, 1);
    }
    assert_eq!(level.used(), 1);
    level.queues.configure(QUEUED, 3, level.now);
    level.collect();
    assert_eq!((level.used(), level.running.len()), (3, 3));
}

#[test]
fn a_hand_has_distinct_cards_of_the_deck() {
    let hand = |flow, deck, size| {
        let (cards, count) = deal(flow, deck, size);
        cards[..count].to_vec()
    };
    for flow in [0, 1, 77, u64::MAX, 1 << 59] {
        let mut cards = hand(flow, 128, 6);
        assert!(cards.iter().all(|card| *card < 128));
        cards.sort_unstable();
        cards.dedup();
        assert_eq!(cards.len(), 6);
    }
    assert_eq!(hand(5, 2, 6).len(), 2);
    assert_ne!(hand(1, 128, 6), hand(1 << 20, 128, 6));
}
