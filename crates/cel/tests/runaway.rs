//! Short and cheap expressions whose values would fill the memory, or take forever to compare: they end with an error.
//!
//! Their cost stays small, because the reference's prices do not grow with what such calls make.

use cel::env::Env;
use cel::library;
use cel::program::{EmptyActivation, Limits, Program};
use cel::value::ErrorKind;

#[track_caller]
fn eval(expression: &str) -> Result<String, ErrorKind> {
    let env = Env::builder()
        .library(&library::standard())
        .library(&library::strings(2))
        .library(&library::lists(3))
        .library(&library::sets())
        .library(&library::regex(0))
        .library(&library::two_variable_comprehensions())
        .library(&library::bindings())
        .build()
        .unwrap();
    let typed = env.compile(expression).unwrap_or_else(|issues| panic!("{issues}"));
    let program = Program::new(&typed).unwrap();
    let evaluation = program.eval_within(&EmptyActivation, Limits::cost(1_000_000));
    evaluation.result.map(|value| value.to_string()).map_err(|error| error.kind())
}

/// The start with the same step after it, many times.
fn repeated(start: &str, step: &str, times: usize) -> String {
    format!("{start}{}", step.repeat(times))
}

#[test]
fn a_list_that_doubles_ends() {
    assert_eq!(eval(&(repeated("[[1]]", ".map(a, a + a)", 10) + "[0].size()")), Ok("1024".into()));
    assert_eq!(eval(&(repeated("[[1]]", ".map(a, a + a)", 60) + "[0].size()")), Err(ErrorKind::TooLarge));
    assert_eq!(eval(&(repeated("[[1]]", ".map(a, [a, a].flatten())", 60) + "[0].size()")), Err(ErrorKind::TooLarge));
}

#[test]
fn a_text_that_doubles_ends() {
    let format = repeated("['a']", ".map(a, '%s%s'.format([a, a]))", 60);
    assert_eq!(eval(&format!("size({format}[0])")), Err(ErrorKind::TooLarge));
    let replace = repeated("['aaaaaaaaaaaaaaaa']", ".map(a, a.replace('', a))", 8);
    assert_eq!(eval(&format!("size({replace}[0])")), Err(ErrorKind::TooLarge));
    let replace = repeated("['aaaaaaaaaaaaaaaa']", ".map(a, regex.replace(a, 'a', a))", 8);
    assert!(eval(&format!("size({replace}[0])")).is_err());
    let join = "lists.range(9000).map(i, 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa')";
    let join = format!("cel.bind(l, {join}, l.join(l.join(l.join())))");
    assert_eq!(eval(&join), Err(ErrorKind::TooLarge));
}

#[test]
fn many_large_values_end() {
    let large = repeated("['aaaaaaaaaa']", ".map(a, '%s%s'.format([a, a]))", 20);
    let many = format!("cel.bind(large, {large}[0], lists.range(9000).map(i, '%s%d'.format([large, i])).size())");
    assert_eq!(eval(&many), Err(ErrorKind::TooLarge));
}

#[test]
fn values_that_share_their_parts_are_not_compared_or_shown_forever() {
    let shared = repeated("[dyn(1)]", ".map(a, dyn([a, a]))", 60);
    for expression in ["a == b", "a != b", "a in [b, b]", "[a, b].distinct()", "sets.contains([a, b], [b, a])"] {
        let expression = format!("cel.bind(a, {shared}, cel.bind(b, {shared}, {expression}))");
        assert_eq!(eval(&expression), Err(ErrorKind::TooLarge), "{expression}");
    }
    assert_eq!(eval(&format!("'%s'.format([{shared}])")), Err(ErrorKind::TooLarge));
    assert!(eval(&format!("dyn([{shared}]).join('')")).is_err());
    assert!(eval(&format!("{{dyn({shared}): 1, dyn([{shared}]): 2}}")).is_ok());
}

/// A predicate in two loops of ten rounds each.
fn looped(predicate: &str) -> String {
    format!("lists.range(10).all(b, lists.range(10).all(c, {predicate}))")
}

#[test]
fn comparisons_of_one_evaluation_count_together() {
    let shared = repeated("[[1, 1]]", ".map(a, [a, a])", 16);
    assert_eq!(eval(&format!("{shared}.all(a, a == a)")), Ok("true".into()));
    for predicate in ["a == a", "!(a != a)", "a in [a]", "[a, a].distinct().size() == 1", "sets.contains([a], [a])"] {
        let expression = format!("{shared}.all(a, {})", looped(predicate));
        assert_eq!(eval(&expression), Err(ErrorKind::TooLarge), "{predicate}");
    }
    // The next evaluation on this thread has a budget of its own.
    assert_eq!(eval(&format!("{shared}.all(a, a == a)")), Ok("true".into()));
}

#[test]
fn texts_read_at_a_fixed_price_count_together() {
    let text = repeated("['x']", ".map(a, a.replace('x', 'xxxxxxxxxx'))", 6);
    assert_eq!(eval(&format!("{text}.all(a, a.size() == 1000000)")), Ok("true".into()));
    for predicate in ["a.size() > 0", "a.charAt(9) == 'x'"] {
        let expression = format!("{text}.all(a, {})", looped(predicate));
        assert_eq!(eval(&expression), Err(ErrorKind::TooLarge), "{predicate}");
    }
}
