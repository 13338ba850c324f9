//! Rejections from the perspective of the rejected parties.

use api::json;
use client::{Cause, Status};

use super::*;

fn who(name: &str) -> Party {
    ("replicaset-controller", Key::new("ns", name))
}

fn refusal(name: &str, why: &str) -> client::Error {
    let message = format!("Pod \"{name}\" is invalid: {why}");
    let causes = vec![Cause { reason: "FieldValueForbidden".to_owned(), field: format!("spec.{why}") }];
    client::Error::Refused(Status { code: 422, reason: "Invalid".to_owned(), message, causes, ..Status::default() })
}

/// A pod that one of them wants to create.
fn wanted(pod: &Value, generation: i64) -> WantedObject<'_> {
    WantedObject { plural: "pods", object: pod, generation }
}

fn may_go(refusals: &Refusals, name: &str, now: Instant) -> bool {
    refusals.ask(&who(name), wanted(&json!({"spec": {"gate": 1}}), 1), now) == Turn::Go
}

#[tokio::test(start_paused = true)]
async fn two_hundred_refused_make_few_requests_and_are_all_released() {
    let refusals = Refusals::default();
    let start = Instant::now();
    let names: Vec<String> = (0..200).map(|number| format!("w{number}")).collect();
    let gate_returns = start + Duration::from_secs(420);
    let (mut first, mut again) = (Vec::new(), Vec::new());
    let mut created: HashMap<&str, Instant> = HashMap::new();
    let pod = json!({"spec": {"gate": 1}});
    for tick in 0..4800_u64 {
        let now = start + Duration::from_millis(100 * tick);
        for name in names.iter().filter(|name| !created.contains_key(name.as_str())).collect::<Vec<_>>() {
            if !may_go(&refusals, name, now) {
                continue;
            }
            if now < gate_returns {
                let refusal = refusal(&format!("{name}-y"), "gate");
                let is_news = refusals.refused(&who(name), wanted(&pod, 1), &refusal, now);
                if is_news {
                    first.push(now)
                } else {
                    again.push(now)
                };
            } else {
                refusals.accepted(&who(name), "pods", now);
                created.insert(name, now);
            }
        }
    }
    assert_eq!(first.len(), 200, "each is told once");
    for pair in first.windows(67) {
        assert!(pair[66] - pair[0] >= Duration::from_secs(60), "four requests for each stay below five a second");
    }
    let later = again.iter().filter(|at| **at >= start + Duration::from_secs(240)).count();
    assert!((9..=18).contains(&later), "{later} in three minutes");
    assert_eq!(created.len(), 200);
    let mut times: Vec<Instant> = created.into_values().collect();
    times.sort();
    assert!(times[0] - gate_returns <= Duration::from_secs(20));
    assert!(times[199] - gate_returns <= Duration::from_secs(35));
    for pair in times.windows(22) {
        assert!(pair[21] - pair[0] >= Duration::from_secs(1), "at most 20 a second, and the canary");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_spec_or_another_reason_does_not_wait_with_the_others() {
    let (refusals, now) = (Refusals::default(), Instant::now());
    let (gate, port) = (json!({"spec": {"gate": 1}}), json!({"spec": {"port": 1}}));
    assert!(refusals.refused(&who("a"), wanted(&gate, 1), &refusal("a-1", "gate"), now));
    assert!(refusals.refused(&who("b"), wanted(&port, 1), &refusal("b-1", "port"), now));
    assert!(matches!(refusals.ask(&who("a"), wanted(&gate, 1), now), Turn::Wait { .. }));
    assert_eq!(refusals.ask(&who("a"), wanted(&gate, 2), now), Turn::Go);
    assert_eq!(refusals.ask(&who("c"), wanted(&json!({"spec": {"other": 1}}), 1), now), Turn::Go);
    // One reason no longer exists; the other stays.
    assert!(refusals.refused(&who("a"), wanted(&gate, 2), &refusal("a-2", "gate"), now));
    refusals.accepted(&who("a"), "pods", now);
    assert!(matches!(refusals.ask(&who("b"), wanted(&port, 1), now), Turn::Wait { .. }));
    refusals.forget(&who("b"));
    assert_eq!(refusals.ask(&who("b"), wanted(&port, 1), now), Turn::Go);
}

#[tokio::test(start_paused = true)]
async fn object_matching_a_rejection_waits_for_first_attempt() {
    let (refusals, now) = (Refusals::default(), Instant::now());
    let gate = json!({"spec": {"gate": 1}});
    assert!(refusals.refused(&who("a"), wanted(&gate, 1), &refusal("a-1", "gate"), now));
    assert_eq!(refusals.ask(&who("b"), wanted(&gate, 1), now), Turn::Go, "the first of them goes at once");
    assert!(matches!(refusals.ask(&who("c"), wanted(&gate, 1), now), Turn::First { .. }));
    assert!(refusals.peek(&who("c"), wanted(&gate, 1), now).is_some_and(|it| it > Duration::ZERO));
    let revision = WantedObject { plural: "controllerrevisions", ..wanted(&gate, 1) };
    assert_eq!(refusals.ask(&who("c"), revision, now), Turn::Go, "what is not refused does not wait");
    refusals.accepted(&who("c"), "controllerrevisions", now);
    assert!(matches!(refusals.ask(&who("c"), wanted(&gate, 1), now), Turn::First { .. }));
    // The expectation was wrong: a rejected party tries at once.
    refusals.accepted(&who("b"), "pods", now);
    assert_eq!(refusals.ask(&who("a"), wanted(&gate, 1), now), Turn::Go);
    refusals.accepted(&who("a"), "pods", now);
    assert_eq!(refusals.ask(&who("c"), wanted(&gate, 1), now), Turn::Go);
}

/// The server's answer while a service account is missing.
fn missing_account(name: &str) -> client::Error {
    let message = format!(
        "pods \"{name}\" is forbidden: error looking up service account ns/sa: serviceaccount \"sa\" not found"
    );
    client::Error::Refused(Status { code: 403, reason: "Forbidden".to_owned(), message, ..Status::default() })
}

#[tokio::test(start_paused = true)]
async fn missing_object_is_retried_quickly_and_then_rarely() {
    let (refusals, now) = (Refusals::default(), Instant::now());
    let pod = json!({"spec": {}});
    let mut news = Vec::new();
    let mut tries = 0;
    while refusals.ask(&who("a"), wanted(&pod, 1), now) == Turn::Go && tries < 50 {
        news.push(refusals.refused(&who("a"), wanted(&pod, 1), &missing_account(&format!("a-{tries}")), now));
        tries += 1;
    }
    assert_eq!(tries, 13, "twelve quick tries, and one that begins the waiting");
    assert_eq!(news.iter().filter(|it| **it).count(), 1, "one event for all");
    assert!(matches!(refusals.ask(&who("a"), wanted(&pod, 1), now), Turn::Wait { .. }));
    assert_eq!(refusals.ask(&who("a"), wanted(&pod, 1), now + CANARY.1), Turn::Go);
}

#[tokio::test(start_paused = true)]
async fn appearance_of_the_missing_object_ends_the_waiting() {
    let (refusals, now) = (Refusals::default(), Instant::now());
    let pod = json!({"spec": {}});
    for name in ["a", "b"] {
        for _ in 0..20 {
            refusals.refused(&who(name), wanted(&pod, 1), &missing_account("x"), now);
        }
    }
    assert!(matches!(refusals.ask(&who("a"), wanted(&pod, 1), now), Turn::Wait { .. }));
    assert_eq!(refusals.appeared("replicaset-controller", "other", "sa"), []);
    assert_eq!(refusals.appeared("job-controller", "ns", "sa"), []);
    assert_eq!(refusals.appeared("replicaset-controller", "ns", "another"), []);
    let mut woken = refusals.appeared("replicaset-controller", "ns", "sa");
    woken.sort_by_key(ToString::to_string);
    assert_eq!(woken, [Key::new("ns", "a"), Key::new("ns", "b")]);
    assert_eq!(refusals.ask(&who("a"), wanted(&pod, 1), now), Turn::Go);
    assert_eq!(refusals.appeared("replicaset-controller", "ns", "sa"), []);
}
