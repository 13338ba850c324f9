//! Values, errors and costs of the golden data.

use super::*;
use crate::library::testing::{double, int, list, s, shown};

#[track_caller]
fn check(function: &str, operands: &[Value<'static>], expected: Result<&str, &str>, cost: u64) {
    crate::library::testing::check(&strings(2), function, operands, expected, cost);
}

#[test]
fn char_at() {
    check("charAt", &[s(""), int(0)], Ok("''"), 1);
    check("charAt", &[s("hello"), int(0)], Ok("'h'"), 1);
    check("charAt", &[s("hello"), int(4)], Ok("'o'"), 1);
}

#[test]
fn index_of() {
    check("indexOf", &[s(""), s("")], Ok("0"), 0);
    check("indexOf", &[s("hello"), s(""), int(3)], Ok("3"), 0);
    check("indexOf", &[s("hello"), s(""), int(5)], Ok("5"), 0);
    check("indexOf", &[s("hello"), s("")], Ok("0"), 0);
    check("indexOf", &[s("hello"), s("l"), int(-1)], Err("index out of range: -1"), 0);
    check("indexOf", &[s("hello"), s("l"), int(3)], Ok("3"), 0);
    check("indexOf", &[s("hello"), s("l"), int(5)], Ok("-1"), 0);
    check("indexOf", &[s("hello"), s("l"), int(6)], Ok("-1"), 0);
    check("indexOf", &[s("hello"), s("z")], Ok("-1"), 0);
    check("indexOf", &[s("日本語本"), s("本"), int(2)], Ok("3"), 1);
    check("indexOf", &[s("日本語本"), s("本")], Ok("1"), 1);
}

#[test]
fn last_index_of() {
    check("lastIndexOf", &[s(""), s("")], Ok("0"), 0);
    check("lastIndexOf", &[s("hello"), s(""), int(2)], Ok("2"), 0);
    check("lastIndexOf", &[s("hello"), s("")], Ok("5"), 0);
    check("lastIndexOf", &[s("hello"), s("l"), int(-1)], Err("index out of range: -1"), 0);
    check("lastIndexOf", &[s("hello"), s("l"), int(0)], Ok("-1"), 0);
    check("lastIndexOf", &[s("hello"), s("l"), int(2)], Ok("2"), 0);
    check("lastIndexOf", &[s("hello"), s("l"), int(5)], Ok("-1"), 0);
    check("lastIndexOf", &[s("hello"), s("l"), int(6)], Ok("-1"), 0);
    check("lastIndexOf", &[s("hello"), s("l")], Ok("3"), 0);
}

#[test]
fn lower_ascii() {
    check("lowerAscii", &[s("HeLLo")], Ok("'hello'"), 1);
}

#[test]
fn upper_ascii() {
    check("upperAscii", &[s("HeLLo")], Ok("'HELLO'"), 1);
}

#[test]
fn replace() {
    check("replace", &[s(""), s(""), s("x")], Ok("'x'"), 0);
    check("replace", &[s("hello"), s(""), s("-"), int(2)], Ok("'-h-ello'"), 1);
    check("replace", &[s("hello"), s("l"), s("L"), int(0)], Ok("'hello'"), 1);
    check("replace", &[s("hello"), s("l"), s("L"), int(1)], Ok("'heLlo'"), 1);
    check("replace", &[s("hello"), s("l"), s("L"), int(5)], Ok("'heLLo'"), 1);
}

#[test]
fn split() {
    check("split", &[s(""), s("")], Ok("[]"), 0);
    check("split", &[s(""), s(",")], Ok("['']"), 0);
    check("split", &[s("a,b,c"), s(","), int(-1)], Ok("['a', 'b', 'c']"), 1);
    check("split", &[s("a,b,c"), s(","), int(0)], Ok("[]"), 1);
    check("split", &[s("a,b,c"), s(","), int(10)], Ok("['a', 'b', 'c']"), 1);
    check("split", &[s("a,b,c"), s(","), int(2)], Ok("['a', 'b,c']"), 1);
    check("split", &[s("a,b,c"), s(",")], Ok("['a', 'b', 'c']"), 1);
    check("split", &[s("abc"), s("abc")], Ok("['', '']"), 1);
    check("split", &[s("日本語"), s("")], Ok("['日', '本', '語']"), 1);
}

#[test]
fn join() {
    check("join", &[list(vec![]), s(",")], Ok("''"), 0);
    check("join", &[list(vec![s(""), s("")]), s("-")], Ok("'-'"), 1);
    check("join", &[list(vec![s("a"), s("b")]), s(",")], Ok("'a,b'"), 1);
    check("join", &[list(vec![s("a"), s("b")])], Ok("'ab'"), 1);
    check("join", &[list(vec![s("a")]), s(",")], Ok("'a'"), 1);
}

#[test]
fn substring() {
    check("substring", &[s(""), int(0), int(0)], Ok("''"), 0);
    check("substring", &[s(""), int(0)], Ok("''"), 0);
    check("substring", &[s("hello"), int(-1), int(3)], Err("index out of range: -1"), 1);
    check("substring", &[s("hello"), int(0), int(5)], Ok("'hello'"), 1);
    check("substring", &[s("hello"), int(0)], Ok("'hello'"), 1);
    check("substring", &[s("hello"), int(1)], Ok("'ello'"), 1);
    check("substring", &[s("hello"), int(3), int(1)], Err("invalid substring range. start: 3, end: 1"), 1);
    check("substring", &[s("hello"), int(5)], Ok("''"), 1);
    check("substring", &[s("日本語"), int(1), int(2)], Ok("'本'"), 1);
}

#[test]
fn trim() {
    check("trim", &[s("")], Ok("''"), 0);
    check("trim", &[s("\t\n hi \r\n")], Ok("'hi'"), 1);
    check("trim", &[s(" hi ")], Ok("'hi'"), 1);
    check("trim", &[s("\u{180e}x\u{200b}")], Ok("'\u{180e}x\u{200b}'"), 1);
}

#[test]
fn quote() {
    check("strings.quote", &[s("\u{1}")], Ok("'\u{22}\u{1}\u{22}'"), 1);
    check("strings.quote", &[s("\u{7}\u{8}\u{c}\u{b}\u{d}")], Ok("'\"\\a\\b\\f\\v\\r\"'"), 1);
    check("strings.quote", &[s("a\"b")], Ok("'\"a\\\"b\"'"), 1);
    check("strings.quote", &[s("a\nb\tc\\")], Ok("'\"a\\nb\\tc\\\\\"'"), 1);
    check("strings.quote", &[s("hello")], Ok("'\"hello\"'"), 1);
    check("strings.quote", &[s("😀")], Ok("'\"😀\"'"), 1);
}

#[test]
fn format() {
    check("format", &[s(""), list(vec![])], Ok("''"), 0);
    check("format", &[s("%%"), list(vec![])], Ok("'%'"), 1);
    check("format", &[s("%.2d"), list(vec![int(1)])], Ok("'1'"), 1);
    check("format", &[s("%.2f"), list(vec![double(1.555)])], Ok("'1.55'"), 1);
    check("format", &[s("%.2s"), list(vec![s("abc")])], Ok("'abc'"), 1);
    check("format", &[s("%.3e"), list(vec![double(1052.032911275)])], Ok("'1.052033×10⁰³'"), 1);
    check("format", &[s("%X"), list(vec![s("hello")])], Ok("'68656C6C6F'"), 1);
    check("format", &[s("%b"), list(vec![Value::Bool(false)])], Ok("'0'"), 1);
    check("format", &[s("%b"), list(vec![int(-5)])], Ok("'-101'"), 1);
    check("format", &[s("%b"), list(vec![int(5)])], Ok("'101'"), 1);
    check("format", &[s("%d"), list(vec![int(-1)])], Ok("'-1'"), 1);
    check("format", &[s("%d"), list(vec![int(1)])], Ok("'1'"), 1);
    check("format", &[s("%e"), list(vec![double(0.0)])], Ok("'0.000000×10⁰⁰'"), 1);
    check("format", &[s("%e"), list(vec![double(1052.032911275)])], Ok("'1.052033×10⁰³'"), 1);
    check("format", &[s("%f"), list(vec![s("Infinity")])], Ok("'∞'"), 1);
    check("format", &[s("%o"), list(vec![int(-8)])], Ok("'-10'"), 1);
    check("format", &[s("%o"), list(vec![int(8)])], Ok("'10'"), 1);
    check(
        "format",
        &[
            s("%s %d %f %e %x %X %o %b"),
            list(vec![s("a"), int(1), double(1.5), double(2.5), int(255), int(255), int(8), int(5)]),
        ],
        Ok("'a 1 1.500000 2.500000×10⁰⁰ ff FF 10 101'"),
        3,
    );
    check("format", &[s("%s"), list(vec![Value::Null])], Ok("'null'"), 1);
    check("format", &[s("%s"), list(vec![double(1.0)])], Ok("'1'"), 1);
    check("format", &[s("%s"), list(vec![double(1.5)])], Ok("'1.5'"), 1);
    check("format", &[s("%s"), list(vec![double(1e-07)])], Ok("'1e-07'"), 1);
    check("format", &[s("%s"), list(vec![int(1)])], Ok("'1'"), 1);
    check("format", &[s("%s"), list(vec![list(vec![int(1), int(2)])])], Ok("'[1, 2]'"), 1);
    check("format", &[s("%s"), list(vec![s("a")])], Ok("'a'"), 1);
    check("format", &[s("%s%s"), list(vec![s("日"), s("本")])], Ok("'日本'"), 1);
    check("format", &[s("%x"), list(vec![int(-255)])], Ok("'-ff'"), 1);
    check("format", &[s("%x"), list(vec![int(255)])], Ok("'ff'"), 1);
    check("format", &[s("%x"), list(vec![s("hello")])], Ok("'68656c6c6f'"), 1);
    check("format", &[s("abc"), list(vec![])], Ok("'abc'"), 1);
}

#[track_caller]
fn formats(version: u32, format: &'static str, arguments: Vec<Value<'static>>, expected: Result<&str, &str>) {
    let library = strings(version);
    let env = crate::env::Env::builder().library(&library).build().unwrap();
    let overload = &env.function("format").unwrap().overloads[0];
    let crate::env::Implementation::Native(call) = overload.implementation else { panic!() };
    let text = call(&[s(format), list(arguments)]).map(|value| shown(&value));
    let text = text.map_err(|error| error.message().to_owned());
    assert_eq!(text.as_deref().map_err(String::as_str), expected, "{format}");
}

fn timestamp(text: &'static str) -> Value<'static> {
    s(text).to_timestamp().unwrap()
}

fn map(entries: Vec<(Value<'static>, Value<'static>)>) -> Value<'static> {
    Value::Map(crate::value::Map::from_entries(entries).unwrap())
}

#[test]
fn localized_numbers() {
    let thirds = || vec![double(1.0 / 3.0)];
    formats(2, "%.10f", thirds(), Ok("'0.3333333333'"));
    formats(2, "%f", vec![double(-1_234_567.891)], Ok("'-1,234,567.891000'"));
    formats(2, "%.0f", vec![double(1234.5)], Ok("'1,234'"));
    formats(2, "%f", vec![double(-0.0)], Ok("'0.000000'"));
    formats(2, "%f", vec![s("-Infinity")], Ok("'-∞'"));
    formats(2, "%e", vec![double(5e-324)], Ok("'4.940656×10⁻³²⁴'"));
    formats(2, "%.20e", vec![double(-2.5)], Ok("'      -2.500000×10⁰⁰'"));
    // The default precision is a width, too.
    formats(2, "%e", vec![double(f64::NAN)], Ok("'   NaN'"));
    // Only eight bits of the least number of digits survive in the reference.
    let digits = format!("'1.{}'", "0".repeat(233));
    formats(2, "%.1001f", vec![double(1.0)], Ok(&digits));
    formats(2, "%.10000000f", vec![double(1.0)], Ok("'%!(NOVERB)'"));
}

#[test]
fn containers_are_quoted_until_version_4() {
    let mixed = || list(vec![int(1), s("two"), double(3.0), Value::Null, Value::Bool(true)]);
    formats(2, "%s", vec![mixed()], Ok(r#"'[1, "two", 3.000000, null, true]'"#));
    formats(4, "%s", vec![mixed()], Ok("'[1, two, 3, null, true]'"));
    let times = || list(vec![timestamp("2024-01-01T02:00:00+02:00"), s("1s").to_duration().unwrap()]);
    formats(2, "%s", vec![times()], Ok(r#"'[timestamp("2024-01-01T02:00:00+02:00"), duration("1s")]'"#));
    formats(4, "%s", vec![times()], Ok("'[2024-01-01T00:00:00Z, 1s]'"));
    let entries = || map(vec![(s("b"), int(1)), (s("a"), double(f64::INFINITY))]);
    formats(2, "%s", vec![entries()], Ok(r#"'{"a":"+Inf", "b":1}'"#));
    formats(4, "%s", vec![entries()], Ok("'{a: Infinity, b: 1}'"));
    let octets = || Value::Bytes(crate::value::Bytes::Borrowed(b"x\xff"));
    let invalid = "error during formatting: could not convert argument \
                   \"invalid UTF-8 in bytes, cannot convert to string\" to string";
    formats(2, "%s", vec![octets()], Err(invalid));
    let keys = map(vec![(double(1.5), int(1))]);
    formats(2, "%s", vec![keys], Err("error during formatting: no formatting function for map key of type double"));
    let nested = list(vec![Value::NONE]);
    formats(2, "%s", vec![nested], Err("error during formatting: no formatting function for optional_type"));
}

#[test]
fn plain_numbers_from_version_4() {
    formats(4, "%d", vec![double(1.5)], Ok("'1.5'"));
    formats(4, "%.2f", vec![int(1_234_567)], Ok("'1234567.00'"));
    formats(4, "%e", vec![double(1052.032911275)], Ok("'1.052033e+03'"));
    formats(4, "%.0e", vec![Value::Uint(7)], Ok("'7e+00'"));
    formats(4, "%f", vec![double(f64::NEG_INFINITY)], Ok("'-Infinity'"));
    formats(4, "%s", vec![double(1e21)], Ok("'1000000000000000000000'"));
    formats(
        4,
        "%o",
        vec![s("a")],
        Err("error during formatting: octal clause can only be used on ints and uints, was given string"),
    );
}

#[test]
fn bad_formats() {
    formats(
        2,
        "%d",
        vec![s("a")],
        Err("error during formatting: decimal clause can only be used on integers, was given string"),
    );
    formats(2, "%s %s", vec![s("a")], Err("index 1 out of range"));
    formats(2, "%", vec![], Err("index 0 out of range"));
    formats(2, "%", vec![s("a")], Err("unexpected end of string"));
    formats(2, "%z", vec![s("a")], Err("could not parse formatting clause: unrecognized formatting clause \"z\""));
    formats(2, "%é", vec![s("a")], Err("could not parse formatting clause: unrecognized formatting clause \"Ã\""));
    let precision = "could not parse formatting clause: error while parsing precision: ";
    let end = format!("{precision}could not find end of precision specifier");
    formats(2, "%.2", vec![int(1)], Err(&end));
    let empty =
        format!("{precision}error while converting precision to integer: strconv.Atoi: parsing \"\": invalid syntax");
    formats(2, "%.f", vec![double(1.5)], Err(&empty));
    let digits = "9".repeat(30);
    let long = format!(
        "{precision}error while converting precision to integer: strconv.Atoi: parsing \"{digits}\": value out of range"
    );
    formats(2, "%.999999999999999999999999999999f", vec![double(1.5)], Err(&long));
}

#[test]
fn versions_bring_functions() {
    for (version, format, reverse) in [(0, false, false), (1, true, false), (2, true, false), (3, true, true)] {
        let env = crate::env::Env::builder().library(&strings(version)).build().unwrap();
        assert_eq!(env.function("format").is_some(), format);
        assert_eq!(env.function("strings.quote").is_some(), format);
        assert_eq!(env.function("reverse").is_some(), reverse);
    }
    let library = strings(3);
    crate::library::testing::check(&library, "reverse", &[s("héllo")], Ok("'olléh'"), 1);
}

#[test]
fn parts_of_borrowed_text_borrow() {
    let text = s("hello");
    let Ok(Value::String(part)) = super::substring(std::slice::from_ref(&text), 1, Some(3)) else { panic!() };
    assert!(matches!(part, Str::Borrowed("el")));
}

#[test]
fn search_by_code_points() {
    check("lastIndexOf", &[s("本日本"), s("本"), int(1)], Ok("0"), 0);
    check("lastIndexOf", &[s("本日本"), s("日本"), int(1)], Ok("1"), 0);
    check("lastIndexOf", &[s("é€é€"), s("€"), int(2)], Ok("1"), 1);
    check("charAt", &[s("日本"), int(2)], Ok("''"), 1);
    check("charAt", &[s("日本"), int(3)], Err("index out of range: 3"), 1);
    check("substring", &[s("hello"), int(2), int(6)], Err("index out of range: 6"), 1);
    check("join", &[list(vec![s("a"), int(1)])], Err("join: invalid input: 1"), 1);
}
