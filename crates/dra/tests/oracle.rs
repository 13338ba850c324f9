//! The search against brute force on thousands of small random instances: same devices, same "none", same error.
//!
//! Every instance is also searched with a look-ahead that cuts as much as is ever allowed.

mod brute_force;
#[path = "../../cel-kubernetes/tests/partial/expression.rs"]
mod expression;
mod instance;

use std::collections::BTreeMap;

use api::json;
use dra::Features;
use dra::constraints::look_ahead::LookAhead;
use dra::constraints::pruning::{Outlook, Partial, Pruning};
use dra::expressions::Answer;

use self::brute_force::{Oracle, Outcome, search};
use self::expression::Choices;
use self::instance::instance;
use crate::setting::{self, Programs, Setting};

/// Looks at every completion: cuts all that may be cut.
#[derive(Default)]
struct Clairvoyant {
    asked: usize,
}

impl Pruning for Clairvoyant {
    fn look_ahead(&mut self, set: &Partial<'_>) -> (Outlook, u64) {
        self.asked += 1;
        let mut outlook = Outlook { may_hold: false, may_fail: false };
        // Where devices of several requests mix, their order in the set is not known here.
        if set.open.len() > 1 || !set.open.iter().all(|open| open.after_chosen) {
            return (Outlook::UNKNOWN, 0);
        }
        let mut sets: Vec<Vec<_>> = vec![set.chosen.to_vec()];
        for open in set.open {
            let mut choices: Vec<(usize, Vec<_>)> = sets.into_iter().map(|set| (0, set)).collect();
            for _ in 0..open.places {
                choices = choices
                    .into_iter()
                    .flat_map(|(next, set)| {
                        (next..open.candidates.len())
                            .map(move |it| (it + 1, [set.clone(), vec![open.candidates[it]]].concat()))
                    })
                    .collect();
            }
            sets = choices.into_iter().map(|(_, set)| set).collect();
        }
        for devices in sets {
            match set.expression.ask(&devices).0 {
                Answer::Yes => outlook.may_hold = true,
                Answer::No => {}
                Answer::Fails(_) => outlook.may_fail = true,
            }
        }
        (outlook, 0)
    }
}

#[test]
fn a_search_finds_what_brute_force_finds() {
    let programs = Programs::new();
    let is_usable = |text: &str| programs.expressions.set(text).is_ok();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut cuts, mut cuts_ahead) = (0, 0);
    for seed in 0..600 {
        let instance = instance(&mut Choices::new(seed), &is_usable);
        let Some(oracle) = Oracle::new(&instance, &programs) else { continue };
        let setting = Setting::new(&instance, &programs, Features::ALL);
        let expected = oracle.outcome();
        let (found, _) = search(&setting, None);
        assert_eq!(found, expected, "{}", json::to_string(&instance));
        let mut clairvoyant = Clairvoyant::default();
        let (pruned, cut) = search(&setting, Some(&mut clairvoyant));
        assert_eq!(pruned, expected, "pruned: {}", json::to_string(&instance));
        cuts += cut;
        let mut ahead = LookAhead::new(0);
        let (pruned, cut) = search(&setting, Some(&mut ahead));
        assert_eq!(pruned, expected, "looking ahead: {}", json::to_string(&instance));
        cuts_ahead += cut;
        let kind = match expected {
            Outcome::Devices(_) => "found",
            Outcome::None => "none",
            Outcome::Fails(_) => "fails",
            other => panic!("{other:?}"),
        };
        *seen.entry(kind).or_default() += 1;
    }
    assert!(seen.values().all(|count| *count > 20) && seen.len() == 3 && cuts > 50, "{seen:?}, {cuts} cuts");
    // Most of what can be cut is seen without looking at every completion.
    assert!(cuts_ahead * 2 > cuts, "{cuts_ahead} cuts, of {cuts}");
}
