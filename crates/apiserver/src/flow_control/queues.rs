//! The seats of one priority level, and its waiting requests: fair queues, as in Kubernetes' `fairqueuing`.
//!
//! A flow is dealt a few of the level's queues and waits in the one with the least work, so that a flow which fills its own
//! queues leaves others to most flows. Of the queues, the next to be served is the one whose request would end first if
//! each queue had an equal part of all seats: virtual time, counted in seats times seconds. Time is an argument.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::demand::Demand;

/// Estimated duration of a running request.
const DURATION_ESTIMATE: f64 = 0.003;

/// Queues for requests without a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Number of queues; 0 disables waiting.
    pub(super) queues: u64,
    /// Number of queues that one flow is dealt.
    pub(super) hand: u64,
    /// Maximum length of a queue.
    pub(super) length_max: usize,
}

/// Permission to run: seats, which are released with [`Queues::leave`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ticket {
    queue: Option<u64>,
    seats: u64,
    /// Since when the seats are taken.
    pub(super) started: Instant,
}

/// A place in a queue.
#[derive(Debug)]
pub(super) struct Place {
    queue: u64,
    id: u64,
    /// Gets the ticket.
    pub(super) ticket: oneshot::Receiver<Ticket>,
    /// Number of requests in the queue, including this one.
    pub(super) length: usize,
}

/// Reason of a rejection, as in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The level has no queues, and no free seats.
    ConcurrencyLimit,
    /// The queue is full.
    QueueFull,
    /// The request timed out in the queue.
    TimeOut,
}

impl Refusal {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Refusal::ConcurrencyLimit => "concurrency-limit",
            Refusal::QueueFull => "queue-full",
            Refusal::TimeOut => "time-out",
        }
    }
}

/// Result of an arrival.
#[derive(Debug)]
pub(super) enum Arrival {
    Runs(Ticket),
    Waits(Place),
    Refused(Refusal),
}

/// Seats and queues of a level.
#[derive(Debug)]
pub(super) struct Queues {
    shape: Shape,
    limit: u64,
    executing: u64,
    seats_in_use: u64,
    seats_waiting: u64,
    /// Queues with waiting or running requests; the others need no memory.
    active: HashMap<u64, Queue>,
    /// Queues with waiting requests; the one that was served last comes last.
    occupied: Vec<u64>,
    virtual_time: f64,
    last_time: Instant,
    next_id: u64,
    /// Requested seats over time.
    pub(super) demand: Demand,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<QueuedRequest>,
    seats_waiting: u64,
    executing: u64,
    /// The virtual time at which its next request would begin.
    next_start: f64,
}

#[derive(Debug)]
struct QueuedRequest {
    id: u64,
    seats: u64,
    arrived: f64,
    ticket: oneshot::Sender<Ticket>,
}

#[expect(clippy::cast_precision_loss, reason = "numbers of seats are small")]
fn number(seats: u64) -> f64 {
    seats as f64
}

impl Queues {
    pub(super) fn new(shape: Shape, limit: u64, now: Instant) -> Self {
        Self {
            shape,
            limit,
            executing: 0,
            seats_in_use: 0,
            seats_waiting: 0,
            active: HashMap::new(),
            occupied: Vec::new(),
            virtual_time: 0.0,
            last_time: now,
            next_id: 0,
            demand: Demand::new(now),
        }
    }

    /// Applies another shape and limit. Requests in a queue that is no longer dealt keep their place.
    pub(super) fn configure(&mut self, shape: Shape, limit: u64, now: Instant) {
        self.advance(now);
        self.shape = shape;
        self.limit = limit;
        self.dispatch(now);
    }

    /// Number of seats in use.
    #[cfg(test)]
    pub(super) fn seats_in_use(&self) -> u64 {
        self.seats_in_use
    }

    /// Moves virtual time on: by the seats that a queue has if all that are active share equally.
    fn advance(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.last_time);
        self.last_time = now;
        if self.active.is_empty() || passed == Duration::ZERO {
            return;
        }
        let used = self.seats_in_use.saturating_add(self.seats_waiting).min(self.limit);
        let queues = u64::try_from(self.active.len()).unwrap_or(u64::MAX);
        self.virtual_time += passed.as_secs_f64() * number(used) / number(queues);
    }

    /// Adds a request of a flow that needs this many seats.
    pub(super) fn arrive(&mut self, now: Instant, flow: u64, seats: u64) -> Arrival {
        self.advance(now);
        if self.shape.queues == 0 {
            if !self.has_room_for(seats) {
                return Arrival::Refused(Refusal::ConcurrencyLimit);
            }
            return Arrival::Runs(self.start(now, None, seats));
        }
        let chosen = self.choose(flow);
        let id = self.next_id;
        self.next_id = self.next_id.saturating_add(1);
        if self.occupied.is_empty() && self.has_room_for(seats) {
            return Arrival::Runs(self.start(now, Some(chosen), seats));
        }
        let virtual_time = self.virtual_time;
        let new = || Queue { next_start: virtual_time, ..Queue::default() };
        let queue = self.active.entry(chosen).or_insert_with(new);
        if self.seats_in_use >= self.limit && queue.waiting.len() >= self.shape.length_max {
            self.forget_if_idle(chosen);
            return Arrival::Refused(Refusal::QueueFull);
        }
        let (sender, ticket) = oneshot::channel();
        if queue.waiting.is_empty() {
            self.occupied.push(chosen);
        }
        queue.waiting.push_back(QueuedRequest { id, seats, arrived: virtual_time, ticket: sender });
        queue.seats_waiting = queue.seats_waiting.saturating_add(seats);
        let length = queue.waiting.len();
        self.seats_waiting = self.seats_waiting.saturating_add(seats);
        self.bound_next_start(chosen);
        self.note_demand(now);
        self.dispatch(now);
        Arrival::Waits(Place { queue: chosen, id, ticket, length })
    }

    /// Returns the queue with the least work among those that a flow is dealt; among equals another one each
    /// time.
    fn choose(&self, flow: u64) -> u64 {
        let (cards, count) = deal(flow, self.shape.queues, self.shape.hand);
        let hand = cards.get(..count).unwrap_or_default();
        let offset = usize::try_from(self.next_id).unwrap_or_default().checked_rem(count).unwrap_or_default();
        if self.occupied.is_empty() {
            return hand.get(offset).copied().unwrap_or_default();
        }
        let work = |queue: &u64| self.active.get(queue).map_or(0, |it| it.seats_waiting);
        let (before, after) = hand.split_at_checked(offset).unwrap_or((&[], hand));
        after.iter().chain(before).min_by_key(|queue| work(queue)).copied().unwrap_or_default()
    }

    /// Whether there are free seats. A request wider than the limit runs when no other request does.
    fn has_room_for(&self, seats: u64) -> bool {
        if seats > self.limit {
            return self.executing == 0;
        }
        self.seats_in_use.saturating_add(seats) <= self.limit
    }

    fn start(&mut self, now: Instant, queue: Option<u64>, seats: u64) -> Ticket {
        self.executing = self.executing.saturating_add(1);
        self.seats_in_use = self.seats_in_use.saturating_add(seats);
        if let Some(queue) = queue {
            let virtual_time = self.virtual_time;
            let new = || Queue { next_start: virtual_time, ..Queue::default() };
            let queue = self.active.entry(queue).or_insert_with(new);
            queue.executing = queue.executing.saturating_add(1);
            queue.next_start += number(seats) * DURATION_ESTIMATE;
        }
        self.note_demand(now);
        Ticket { queue, seats, started: now }
    }

    /// Releases seats, and starts waiting requests that fit.
    pub(super) fn leave(&mut self, now: Instant, ticket: Ticket) {
        self.advance(now);
        self.release(now, ticket);
        self.dispatch(now);
    }

    fn release(&mut self, now: Instant, ticket: Ticket) {
        self.executing = self.executing.saturating_sub(1);
        self.seats_in_use = self.seats_in_use.saturating_sub(ticket.seats);
        if let Some(place) = ticket.queue
            && let Some(queue) = self.active.get_mut(&place)
        {
            queue.executing = queue.executing.saturating_sub(1);
            // The estimate is replaced by what it was.
            let actual = now.saturating_duration_since(ticket.started).as_secs_f64();
            queue.next_start -= number(ticket.seats) * (DURATION_ESTIMATE - actual);
            self.bound_next_start(place);
            self.forget_if_idle(place);
        }
        self.note_demand(now);
    }

    /// Leaves a queue. If the turn had come in the meantime, the ticket is in the place's receiver and still counts.
    pub(super) fn give_up(&mut self, now: Instant, place: &Place) {
        self.advance(now);
        let Some(queue) = self.active.get_mut(&place.queue) else { return };
        let Some(at) = queue.waiting.iter().position(|it| it.id == place.id) else { return };
        if let Some(waiting) = queue.waiting.remove(at) {
            queue.seats_waiting = queue.seats_waiting.saturating_sub(waiting.seats);
            self.seats_waiting = self.seats_waiting.saturating_sub(waiting.seats);
        }
        self.bound_next_start(place.queue);
        self.forget_if_idle(place.queue);
        self.note_demand(now);
        self.dispatch(now);
    }

    /// Gives free seats to those whose turn it is.
    fn dispatch(&mut self, now: Instant) {
        while self.seats_in_use < self.limit
            && let Some(place) = self.next_queue()
        {
            let Some(queue) = self.active.get_mut(&place) else { return };
            let Some(seats) = queue.waiting.front().map(|it| it.seats) else { return };
            if !self.has_room_for(seats) {
                return;
            }
            let Some(queue) = self.active.get_mut(&place) else { return };
            let Some(waiting) = queue.waiting.pop_front() else { return };
            queue.seats_waiting = queue.seats_waiting.saturating_sub(seats);
            self.seats_waiting = self.seats_waiting.saturating_sub(seats);
            let ticket = self.start(now, Some(place), seats);
            self.bound_next_start(place);
            self.forget_if_idle(place);
            if let Some(at) = self.occupied.iter().position(|it| *it == place) {
                self.occupied.remove(at);
                self.occupied.push(place);
            }
            if waiting.ticket.send(ticket).is_err() {
                // The request was cancelled.
                self.release(now, ticket);
            }
        }
    }

    /// The queue whose oldest request would end first; of several, the one that was not served for longest.
    fn next_queue(&self) -> Option<u64> {
        let end = |place: &u64| {
            let queue = self.active.get(place)?;
            let oldest = queue.waiting.front()?;
            Some(queue.next_start + number(oldest.seats) * DURATION_ESTIMATE)
        };
        let ends = self.occupied.iter().filter_map(|place| Some((end(place)?, *place)));
        ends.min_by(|(left, _), (right, _)| left.total_cmp(right)).map(|(_, place)| place)
    }

    /// A queue gets no credit for the time in which it was empty.
    fn bound_next_start(&mut self, place: u64) {
        if let Some(queue) = self.active.get_mut(&place)
            && let Some(oldest) = queue.waiting.front()
        {
            queue.next_start = queue.next_start.max(oldest.arrived);
        }
    }

    fn forget_if_idle(&mut self, place: u64) {
        let Some(queue) = self.active.get(&place) else { return };
        if queue.waiting.is_empty() {
            self.occupied.retain(|it| *it != place);
            if queue.executing == 0 {
                self.active.remove(&place);
            }
        }
    }

    fn note_demand(&mut self, now: Instant) {
        self.demand.note(now, number(self.seats_in_use.saturating_add(self.seats_waiting)));
    }
}

/// No hand is bigger: a hash has not enough bits for that.
const HAND_MAX: usize = 16;

/// Deals distinct cards of a deck by a number, as from a shuffled one; and how many there are.
fn deal(flow: u64, deck: u64, hand: u64) -> ([u64; HAND_MAX], usize) {
    let count = usize::try_from(hand.min(deck)).unwrap_or(HAND_MAX).min(HAND_MAX);
    let mut rest = flow;
    // Each is a place among the cards that are left.
    let mut places = [0; HAND_MAX];
    let mut left = deck;
    for place in places.iter_mut().take(count) {
        *place = rest.checked_rem(left).unwrap_or_default();
        rest = rest.checked_div(left).unwrap_or_default();
        left = left.saturating_sub(1);
    }
    let mut cards = places;
    for (at, card) in cards.iter_mut().enumerate().take(count) {
        for earlier in places.iter().take(at).rev() {
            if *card >= *earlier {
                *card = card.saturating_add(1);
            }
        }
    }
    (cards, count)
}

#[cfg(test)]
mod tests;
