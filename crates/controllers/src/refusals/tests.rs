//! Refusals, seen by those who were refused.

use client::Status;

use super::*;

fn who(name: &str) -> Who {
    ("replicaset-controller", Key::new("ns", name))
}

fn refusal(name: &str, why: &str) -> client::Error {
    let message = format!("Pod \"{name}\" is invalid: {why}");
    client::Error::Refused(Status { code: 422, reason: "Invalid".to_owned(), message, retry_after_seconds: None })
}

fn may_go(refusals: &Refusals, name: &str, now: Instant) -> bool {
    refusals.ask(&who(name), 1, now) == Turn::Go
}

#[tokio::test(start_paused = true)]
async fn two_hundred_refused_make_few_requests_and_are_all_released() {
    let refusals = Refusals::default();
    let start = Instant::now();
    let names: Vec<String> = (0..200).map(|number| format!("w{number}")).collect();
    for name in &names {
        assert!(may_go(&refusals, name, start));
        assert!(refusals.refused(&who(name), 1, &refusal(&format!("{name}-x"), "gate"), start));
    }
    let mut tries = 0;
    let gate_returns = start + Duration::from_secs(120);
    let mut created: HashMap<&str, Instant> = HashMap::new();
    for tick in 1..1800_u64 {
        let now = start + Duration::from_millis(100 * tick);
        for name in names.iter().filter(|name| !created.contains_key(name.as_str())).collect::<Vec<_>>() {
            if !may_go(&refusals, name, now) {
                continue;
            }
            if now < gate_returns {
                tries += 1;
                assert!(!refusals.refused(&who(name), 1, &refusal(&format!("{name}-y"), "gate"), now), "no news");
            } else {
                refusals.accepted(&who(name));
                created.insert(name, now);
            }
        }
    }
    assert!((6..=10).contains(&tries), "{tries} in two minutes");
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
    assert!(refusals.refused(&who("a"), 1, &refusal("a-1", "gate"), now));
    assert!(refusals.refused(&who("b"), 1, &refusal("b-1", "port"), now));
    assert!(matches!(refusals.ask(&who("a"), 1, now), Turn::Wait { .. }));
    assert_eq!(refusals.ask(&who("a"), 2, now), Turn::Go);
    assert_eq!(refusals.ask(&who("c"), 1, now), Turn::Go);
    // One reason is gone; the other stays.
    assert!(refusals.refused(&who("a"), 2, &refusal("a-2", "gate"), now));
    refusals.accepted(&who("a"));
    assert!(matches!(refusals.ask(&who("b"), 1, now), Turn::Wait { .. }));
    refusals.forget(&who("b"));
    assert_eq!(refusals.ask(&who("b"), 1, now), Turn::Go);
}
