//! Patterns, matches and error texts, compared with recorded answers of Go and with the `regex` crate.

use cel::regex::Regex;
use proptest::prelude::*;
use serde_json::Value;

fn cases(file: &str) -> Vec<Value> {
    file.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// `golden.jsonl` holds calls of `matches`, `find` and `findAll` as Kubernetes answered them. An `error` is Go's text, or
/// null where only the refusal was recorded; a case without text is known to be accepted.
#[test]
fn calls_agree_with_kubernetes() {
    let cases = cases(include_str!("data/regex/golden.jsonl"));
    assert!(cases.len() > 300);
    for case in cases {
        let regex = Regex::new(case["pattern"].as_str().unwrap());
        if let Some(error) = case.get("error") {
            let found = regex.expect_err(&case.to_string()).to_string();
            assert_eq!(found, error.as_str().unwrap_or(&found), "{case}");
            continue;
        }
        let regex = regex.unwrap();
        let Some(text) = case.get("text") else { continue };
        let text = text.as_str().unwrap();
        let limit = case.get("limit").and_then(|limit| usize::try_from(limit.as_i64()?).ok());
        let value: Value = match case["function"].as_str().unwrap() {
            "matches" => regex.is_match(text).unwrap().into(),
            "find" => regex.find(text).unwrap().map_or("", |range| &text[range]).into(),
            "findAll" => {
                let all = regex.find_iter(text).unwrap().map(|range| &text[range]);
                all.take(limit.unwrap_or(usize::MAX)).collect()
            }
            function => panic!("{function}"),
        };
        assert_eq!(value, case["value"], "{case}");
    }
}

/// `patterns.jsonl` goes through the branches of Go's parser.
#[test]
fn patterns_agree_with_go() {
    for case in cases(include_str!("data/regex/patterns.jsonl")) {
        let pattern = case["pattern"].as_str().unwrap();
        if let Some(error) = case.get("error") {
            let found = Regex::new(pattern).expect_err(pattern);
            assert_eq!(found.to_string(), error.as_str().unwrap(), "{pattern}");
            assert!(pattern.contains(found.fragment()), "{pattern}");
            continue;
        }
        let regex = Regex::new(pattern).unwrap();
        for (texts, expected) in [(&case["matches"], true), (&case["rejects"], false)] {
            for text in texts.as_array().unwrap() {
                let text = text.as_str().unwrap();
                assert_eq!(regex.is_match(text).unwrap(), expected, "{pattern:?} in {text:?}");
                assert_eq!(regex.find(text).unwrap().is_some(), expected, "{pattern:?} in {text:?}");
                assert_eq!(regex.captures(text).unwrap().is_some(), expected, "{pattern:?} in {text:?}");
            }
        }
    }
}

/// Patterns that mean the same to Go and to the `regex` crate in ASCII mode.
fn common_pattern() -> impl Strategy<Value = String> {
    let atom = prop_oneof![
        8 => "[abc]",
        2 => Just(r"\d".to_owned()),
        2 => Just(r"\w".to_owned()),
        1 => Just(r"\W".to_owned()),
        2 => Just("[^a]".to_owned()),
        2 => Just("[ab-]".to_owned()),
        1 => Just("[[:digit:]c]".to_owned()),
        1 => Just(".".to_owned()),
        1 => Just("^".to_owned()),
        1 => Just("$".to_owned()),
        1 => Just(r"\b".to_owned()),
        1 => Just(r"\.".to_owned()),
        1 => Just(String::new()),
    ];
    let repeat = |inner: String, repeat: &str| format!("(?:{inner}){repeat}");
    let repeats = prop_oneof![
        Just("*"),
        Just("+"),
        Just("?"),
        Just("*?"),
        Just("+?"),
        Just("??"),
        Just("{2}"),
        Just("{0,2}"),
        Just("{1,}?"),
    ];
    atom.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| parts.concat()),
            2 => prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| format!("(?:{})", parts.join("|"))),
            2 => inner.clone().prop_map(|inner| format!("({inner})")),
            1 => inner.clone().prop_map(|inner| format!("(?i:{inner})")),
            2 => (inner, repeats.clone()).prop_map(move |(inner, operator)| repeat(inner, operator)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn any_text_is_a_pattern_or_an_error(pattern in ".{0,40}") {
        let _ = Regex::new(&pattern).map(|regex| regex.pattern() == pattern);
    }

    #[test]
    fn any_operators_are_a_pattern_or_an_error(
        pattern in r"([a(\[)\]{}*+?|^$.\\,0-9<>:!=PpQExd-]|\(\?|\[\[:|\\[pPxQ]\{?|\{[0-9]{1,4},?\}){0,30}",
        text in "[ab(1]{0,8}",
    ) {
        if let Ok(regex) = Regex::new(&pattern) {
            let found = regex.find(&text).unwrap();
            prop_assert_eq!(regex.is_match(&text).unwrap(), found.is_some());
            prop_assert_eq!(regex.captures(&text).unwrap().map(|captures| captures.range()), found);
        }
    }

    #[test]
    fn large_patterns_match_as_small_ones_do(pattern in common_pattern(), text in "[abcAB1é. \n-]{0,12}") {
        let small = Regex::new(&pattern).unwrap();
        // The alternative never matches, but is too large for automata.
        let large = Regex::new(&format!(r"(?:{pattern})|[^\x00-\x{{10FFFF}}][^a]{{500}}")).unwrap();
        prop_assert_eq!(small.is_match(&text).unwrap(), large.is_match(&text).unwrap());
        let found: Vec<_> = small.find_iter(&text).unwrap().collect();
        prop_assert_eq!(found, large.find_iter(&text).unwrap().collect::<Vec<_>>());
        for (small, large) in small.captures_iter(&text).unwrap().zip(large.captures_iter(&text).unwrap()) {
            for index in 0..=50 {
                prop_assert_eq!(small.group_range(index), large.group_range(index));
            }
        }
    }

    #[test]
    fn the_regex_crate_agrees(pattern in common_pattern(), text in "[abcAB1. \n-]{0,12}") {
        let ours = Regex::new(&pattern).unwrap();
        let theirs = regex::bytes::RegexBuilder::new(&pattern).unicode(false).build().unwrap();
        prop_assert_eq!(ours.is_match(&text).unwrap(), theirs.is_match(text.as_bytes()));
        let found: Vec<_> = ours.find_iter(&text).unwrap().collect();
        let expected: Vec<_> = theirs.find_iter(text.as_bytes()).map(|found| found.range()).collect();
        prop_assert_eq!(found, expected);
        if let (Some(ours), Some(theirs)) = (ours.captures(&text).unwrap(), theirs.captures(text.as_bytes())) {
            for index in 0..theirs.len() {
                prop_assert_eq!(ours.group_range(index), theirs.get(index).map(|group| group.range()));
            }
        }
    }
}
