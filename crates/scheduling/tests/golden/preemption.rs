//! Nodes on which room can be made, victims, and the one that is chosen.

use api::json::{Value, from_value};
use scheduling::Outcome;
use scheduling::cycle::Search;
use scheduling::preemption::{best, candidates};

use super::{NOW, list, pod_info, run_all, same, scheduler, strings, without_stray_words, without_taints};

#[test]
fn preemption() {
    run_all("preemption.jsonl", |case| {
        let mut scheduler = scheduler(case);
        let expected = case.get("expect").unwrap();
        let pod = pod_info(case.get("pod").unwrap(), &scheduler);
        let cluster = scheduler.cluster();
        let profile = scheduler.profile(&pod).unwrap();
        let found = Search { profile, cluster, start: 0 }.run(&pod).map_err(|status| status.message())?;
        let potential = found.diagnosis.resolvable(cluster.cache.order().iter().copied());
        let (found, _) = candidates(profile, &pod, cluster, &potential, 0, usize::MAX).map_err(|it| it.message())?;
        let full_name = |pod: &scheduling::cluster::PodInfo| pod.key().to_string();
        let mut all: Vec<(String, i64, Vec<String>)> = found
            .iter()
            .map(|it| {
                let victims = it.victims.iter().map(|it| full_name(it)).collect();
                (it.node.to_string(), it.violations as i64, victims)
            })
            .collect();
        all.sort();
        let recorded = list(expected.get("candidates")).iter().map(|it| {
            let violations = it.get("pdbViolations").and_then(Value::as_i64).unwrap();
            (it.str_at(&["node"]).unwrap().to_owned(), violations, strings(it.get("victims")))
        });
        let asks = case.str_at(&["pod", "spec", "preemptionPolicy"]) != Some("Never");
        let nominated = strings(expected.get("nominated"));
        if asks && !expected.str_at(&["message"]).unwrap().contains("not eligible") {
            let mut recorded: Vec<_> = recorded.collect();
            recorded.sort();
            same("candidates", recorded, all)?;
            let mut chosen: Vec<String> = best(&found).iter().map(|it| it.node.to_string()).collect();
            chosen.sort();
            let mut recorded = nominated.clone();
            recorded.sort();
            same("nominated", recorded, chosen)?;
        }
        scheduler.set_pod(&from_value(case.get("pod").unwrap()).unwrap(), NOW);
        let attempt = scheduler.schedule_one(NOW).ok_or("no attempt")?;
        let Outcome::Unschedulable(unplaced) = attempt.outcome else { return Err(format!("{:?}", attempt.outcome)) };
        let is_success = expected.str_at(&["status"]) == Some("Success");
        same("success", is_success, unplaced.nomination.is_some())?;
        let message = without_stray_words(expected.str_at(&["message"]).unwrap());
        match unplaced.nomination {
            Some(nomination) if nominated.first().map(String::as_str) == Some(nomination.node.as_str()) => {
                let victims = nomination.victims.iter().map(|it| full_name(it)).collect();
                same("victims", strings(expected.get("victims")), victims)?;
                same("message", message.to_owned(), without_taints(&unplaced.message))
            }
            Some(nomination) => {
                if nominated.contains(&nomination.node.to_string()) {
                    Ok(())
                } else {
                    Err(nomination.node.to_string())
                }
            }
            None => same("message", message.to_owned(), without_taints(&unplaced.message)),
        }
    });
}
