//! Syntax, errors and matches of regular expressions, as Go has them.
#![allow(clippy::disallowed_methods, reason = "one test shares a program between threads")]

use super::*;

#[track_caller]
fn check_error(pattern: &str, error: &str) {
    let found = Regex::new(pattern).expect_err(pattern);
    assert_eq!(found.to_string(), format!("error parsing regexp: {error}"), "{pattern}");
}

#[track_caller]
fn check_find_all(pattern: &str, text: &str, matches: &[&str]) {
    let regex = Regex::new(pattern).unwrap();
    let found: Vec<_> = regex.find_iter(text).unwrap().map(|range| text.get(range).unwrap()).collect();
    assert_eq!(found, matches, "{pattern} in {text}");
    let captured: Vec<_> = regex.captures_iter(text).unwrap().map(|captures| captures.get(0).unwrap()).collect();
    assert_eq!(captured, matches, "groups of {pattern} in {text}");
    assert_eq!(regex.is_match(text).unwrap(), !matches.is_empty(), "{pattern} in {text}");
}

#[track_caller]
fn check_groups(pattern: &str, text: &str, groups: &[Option<&str>]) {
    let regex = Regex::new(pattern).unwrap();
    let captures = regex.captures(text).unwrap().unwrap();
    let found: Vec<_> = (0..=regex.group_count()).map(|index| captures.get(index)).collect();
    assert_eq!(found, groups, "{pattern} in {text}");
}

#[test]
fn nesting_is_limited_as_in_go() {
    let nested = |open: &str, close: &str, levels: usize| open.repeat(levels) + &close.repeat(levels);
    for (open, close) in [("(", ")"), ("(?:", ")*")] {
        assert!(Regex::new(&nested(open, close, 999)).is_ok());
        let pattern = nested(open, close, 1000);
        check_error(&pattern, &format!("expression nests too deeply: `{pattern}`"));
        // Far beyond the limit, nothing may overflow either.
        assert_eq!(Regex::new(&nested(open, close, 100_000)).unwrap_err().kind(), ErrorKind::NestingDepth);
    }
    assert!(Regex::new(&nested("(?:", ")", 100_000)).is_ok(), "groups without captures leave no node");
    assert!(Regex::new(&format!("({})", "|".repeat(12_345))).is_ok(), "alternatives do not nest");
    let left_leaning = format!("{}a{}", "(?:".repeat(20_000), "b.)".repeat(20_000));
    assert!(Regex::new(&left_leaning).is_ok(), "sequences of sequences do not nest");
    assert_eq!(Regex::new(&"(".repeat(100_000)).unwrap_err().kind(), ErrorKind::MissingParenthesis);
}

#[test]
fn deeply_nested_patterns_match() {
    // Each level is up to four of Go's.
    for (open, close) in [("(", ")"), ("(?:", ")*"), ("(?:a|b.", ")"), ("(?:a(?:", "){1,})?")] {
        for levels in [20, 49, 50, 51, 100, 249] {
            let regex = Regex::new(&format!("{}x{}", open.repeat(levels), close.repeat(levels))).unwrap();
            assert!(regex.is_match("ax").unwrap(), "{levels} times {open}");
            assert!(regex.find("ax").unwrap().is_some(), "{levels} times {open}");
            assert!(regex.captures("ax").unwrap().is_some(), "{levels} times {open}");
        }
    }
}

#[test]
fn size_is_limited_as_in_go() {
    let too_large = |pattern: &str| check_error(pattern, &format!("expression too large: `{pattern}`"));
    too_large(&format!("({}){{1000}}", "(xx?)".repeat(1000)));
    too_large(&"(xx?){1000}".repeat(1000));
    // Go notices the size of a repeated literal only among many other nodes.
    assert!(Regex::new(&format!("(?:{}){{1000}}", "x".repeat(4000))).is_ok());
    assert!(Regex::new(&"(xx?){1000}".repeat(600)).is_ok());
}

#[test]
fn pattern_too_large_for_automata_still_matches() {
    for (pattern, text) in [
        (r"^\pL{1000}$", "aé日語".repeat(250)),
        (r"(?i)^\p{Lu}{999}\PL$", "aé".repeat(499) + "A1"),
        (r"^(?:\pL\pN\pS?){333}$", "é٣".repeat(333)),
        (r"(?s)^.{1000}\z", "\n日".repeat(500)),
        (r"^(?:[^a]{10}|b){100}", "é".repeat(999) + "bx"),
    ] {
        let regex = Regex::new(pattern).unwrap();
        assert!(regex.is_match(&text).unwrap(), "{pattern}");
        assert!(regex.find(&text).unwrap().is_some(), "{pattern}");
        assert!(regex.captures(&text).unwrap().is_some(), "{pattern}");
        let shorter: String = text.chars().skip(2).collect();
        assert!(!regex.is_match(&shorter).unwrap(), "{pattern}");
    }
    let all: Vec<_> = Regex::new(r"\pL{2,1000}?").unwrap().find_iter("abcde").unwrap().collect();
    assert_eq!(all, [0..2, 2..4]);
}

#[test]
fn pattern_too_large_for_all_engines_fails() {
    let pattern = format!("(?:{}){{1000}}", "x".repeat(5000));
    let regex = Regex::new(&pattern).unwrap();
    let error = format!("error parsing regexp: expression too large: `{pattern}`");
    assert_eq!(regex.is_match("a").unwrap_err().to_string(), error);
    assert_eq!(regex.find("a").unwrap_err().to_string(), error);
    assert_eq!(regex.find_iter("a").unwrap_err().to_string(), error);

    let regex = Regex::new(&"(a)".repeat(5000)).unwrap();
    assert!(!regex.is_match("b").unwrap());
    assert_eq!(regex.captures("a").unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(regex.captures_iter("a").unwrap_err().kind(), ErrorKind::TooLarge);
}

#[test]
fn many_groups_are_captured() {
    let regex = Regex::new(&"(a)()".repeat(100)).unwrap();
    let text = "a".repeat(101);
    let captures = regex.captures(&text).unwrap().unwrap();
    assert_eq!(captures.group_range(199), Some(99..100));
    assert_eq!(captures.group_range(200), Some(100..100));
    assert_eq!(captures.group_range(201), None);
}

#[test]
fn catastrophic_patterns_take_linear_time() {
    let text = "x".repeat(20_000);
    for pattern in ["(x+x+)+y", "(?:x?){400}x{400}y", "(x|xx|xxx)*y", "^(?:.*,){30}z"] {
        let regex = Regex::new(pattern).unwrap();
        assert!(!regex.is_match(&text).unwrap());
        assert_eq!(regex.find(&text).unwrap(), None);
        assert!(regex.captures(&text).unwrap().is_none());
    }
}

#[test]
fn matches_at_both_ends_of_short_texts_are_found() {
    check_find_all(r"^v[0-9]+\.[0-9]+$", "v1.29", &["v1.29"]);
    check_find_all(r"^v[0-9]+\.[0-9]+$", "v1.29 ", &[]);
    check_find_all(r"^v[0-9]+\.[0-9]+$", "", &[]);
    check_find_all("a$", "ba", &["a"]);
    check_find_all("a$", "ab", &[]);
    check_find_all(r"é\z", "日é", &["é"]);
    check_find_all(r"x\b", "xx y", &["x"]);
    check_find_all("^a", "ba", &[]);
}

#[test]
fn an_empty_match_behind_a_match_does_not_count() {
    check_find_all("a*", "baaab", &["", "aaa", ""]);
    check_find_all("a|", "aab", &["a", "a", ""]);
    check_find_all("a*?", "aa", &["", "", ""]);
    check_find_all("", "日é", &["", "", ""]);
    check_find_all("", "", &[""]);
    check_find_all("x*", "日é", &["", "", ""]);
    check_find_all("^", "aa", &[""]);
    check_find_all("$", "aa", &[""]);
    check_find_all("(?m)^", "a\nb\n", &["", "", ""]);
    check_find_all(r"\b", "ab cd", &["", "", "", ""]);
    check_find_all(r"\B", "日é", &["", "", ""]);
    // Only inside of a character would there be one.
    check_find_all(r"\B", "aéa", &[]);
    check_find_all("a", "", &[]);
}

#[test]
fn first_alternative_wins() {
    check_find_all("foo|foobar", "foobar", &["foo"]);
    check_find_all("(?:a|ab)(?:c|bcd)", "abcd", &["abcd"]);
    check_find_all("(?U)a+", "aaa", &["a", "a", "a"]);
    check_find_all("(?U)a+?", "aaa", &["aaa"]);
    check_find_all("a{1,2}?", "aaa", &["a", "a", "a"]);
}

#[test]
fn groups_are_numbered_and_named() {
    let regex = Regex::new("(?P<n>a)(b)?(?:x)(?<n>c)|(?P<1>d){0}").unwrap();
    assert_eq!(regex.group_count(), 4);
    assert_eq!(regex.group_names().collect::<Vec<_>>(), [Some("n"), None, Some("n"), Some("1")]);
    check_groups(regex.pattern(), "axc", &[Some("axc"), Some("a"), None, Some("c"), None]);
    check_groups("(a|b)*", "abx", &[Some("ab"), Some("b")]);
    check_groups("(a*)*", "b", &[Some(""), Some("")]);
    check_groups("(a*)+", "b", &[Some(""), Some("")]);
    check_groups("(a){0}(b)", "ab", &[Some("b"), None, Some("b")]);
    check_groups("(|a)*", "aa", &[Some(""), Some("")]);
    check_groups("((a)|(b))*", "ab", &[Some("ab"), Some("b"), Some("a"), Some("b")]);
}

#[test]
fn replacement_refers_to_groups() {
    let replace = |text: &str, pattern: &str, replacement: &str, limit| {
        Regex::new(pattern).unwrap().replace(text, replacement, limit).map_err(|error| error.to_string())
    };
    let ok = |text: &str| Ok(text.to_owned());
    assert_eq!(replace("hello world hello", "hello", "hi", None), ok("hi world hi"));
    assert_eq!(replace("banana", "a", "x", Some(0)), ok("banana"));
    assert_eq!(replace("banana", "a", "x", Some(2)), ok("bxnxna"));
    assert_eq!(replace("banana", "a", "x", Some(9)), ok("bxnxnx"));
    assert_eq!(replace("foo bar", "(fo)o (ba)r", r"\2 \1 \0 \\1", None), ok(r"ba fo foo bar \1"));
    assert_eq!(replace("ab", "(x)?", r"<\1>", None), ok("<>a<>b<>"));
    assert_eq!(replace("日b", "", "-", None), ok("-日-b-"));
    assert_eq!(
        replace("test", "(.)", r"\2", None),
        Err("replacement string references group 2 but regex has only 1 group(s)".into())
    );
    assert_eq!(
        replace("id=123", r"id=(?P<value>\d+)", r"value: \values", None),
        Err(r"invalid replacement string: 'value: \values' \ must be followed by a digit or \".into())
    );
    assert_eq!(replace("a", "a", r"b\", None), Err(r"invalid replacement string: 'b\' \ not allowed at end".into()));
    assert_eq!(replace("a", "b", r"\9\", None), ok("a"), "nothing to replace");
}

#[test]
fn clones_share_and_cross_threads() {
    let regex = Regex::new("^a+$").unwrap();
    let clone = regex.clone();
    assert!(std::thread::spawn(move || clone.is_match("aaa").unwrap()).join().unwrap());
    assert!(regex.is_match("a").unwrap());
    assert_eq!(format!("{regex} {regex:?}"), r#"^a+$ Regex("^a+$")"#);
}

/// The recorded patterns, by the engine that finds positions. The counts are quoted in `docs/decisions/0010`.
#[test]
fn few_recorded_patterns_need_the_program() {
    let files =
        [include_str!("../../tests/data/regex/golden.jsonl"), include_str!("../../tests/data/regex/patterns.jsonl")];
    let cases = files.iter().flat_map(|file| file.lines()).map(serde_json::from_str::<serde_json::Value>);
    let mut patterns: Vec<String> = cases.map(|case| case.unwrap()["pattern"].as_str().unwrap().to_owned()).collect();
    patterns.sort();
    patterns.dedup();
    let (mut by_dfa, mut by_automata, mut by_program) = (0, 0, Vec::new());
    for pattern in patterns {
        let Ok(regex) = Regex::new(&pattern) else { continue };
        by_dfa += usize::from(regex.inner.engines.has_matcher());
        match regex.inner.engines.finder().unwrap() {
            Engine::Automata(_) => by_automata += 1,
            Engine::Program(_) => by_program.push(pattern),
        }
    }
    assert_eq!((by_dfa, by_automata), (203, 300));
    assert_eq!(by_program, ["((a{1000}){0}){1000}"]);
}
