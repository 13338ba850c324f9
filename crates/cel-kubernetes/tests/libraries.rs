//! Recorded results of the reference implementation for library expressions: text, type, estimate, value or
//! error, and cost, all in the base environment.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use api::json::{self, Value as Json};
use cel::cost::{NoHints, estimate};
use cel::env::Env;
use cel::program::{Bindings, Limits, Program};
use cel::types::Type;
use cel::value::{Bytes, Duration, Map, Timestamp, Value};
use cel_kubernetes::libraries::{Minor, base};

/// The environment of the recorded cases: one variable of each kind.
fn base_environment() -> Env {
    let variables = [
        ("x", "int"),
        ("y", "int"),
        ("u", "uint"),
        ("d", "double"),
        ("s", "string"),
        ("t", "string"),
        ("b", "bool"),
        ("by", "bytes"),
        ("l", "list(int)"),
        ("ls", "list(string)"),
        ("m", "map(string, int)"),
        ("ms", "map(string, string)"),
        ("dur", "duration"),
        ("ts", "timestamp"),
        ("a", "dyn"),
    ];
    let declare =
        |builder: cel::env::Builder, (name, of): (&str, &str)| builder.variable(name, Type::parse(of).expect("a type"));
    variables.into_iter().fold(base(Minor::CURRENT), declare).build().expect("an environment")
}

#[test]
fn libraries_answer_as_the_reference_does() {
    let env = base_environment();
    let mut differences = String::new();
    let (mut cases, mut failed) = (0, 0);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/libraries");
    let gaps = std::fs::read_to_string(folder.join("known_gaps.txt")).unwrap();
    let mut gaps: BTreeSet<&str> =
        gaps.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_whitespace().next()).collect();
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    for file in files {
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            let case = json::parse(line.as_bytes()).unwrap();
            cases += 1;
            let expected = Answer::recorded(case.get("expect").unwrap());
            let answer = evaluate(&env, &case);
            let id = case.str_at(&["id"]).unwrap();
            if !answer.agrees(&expected) && !gaps.remove(id) {
                failed += 1;
                let text = case.str_at(&["expr"]).unwrap();
                writeln!(differences, "{id}: {text}\n  ours     {answer:?}\n  recorded {expected:?}").unwrap();
            }
        }
    }
    assert!(cases > 2000, "{cases} cases");
    assert!(gaps.is_empty(), "not gaps any more: {gaps:?}");
    assert!(failed == 0, "{failed} of {cases} differ:\n{differences}");
}

#[test]
fn parsers_take_any_text() {
    let builder = base(Minor::CURRENT).variable("s", Type::String);
    let env = builder.build().unwrap();
    let compile = |text: &str| Program::new(&env.compile(text).unwrap()).unwrap();
    let parsers = ["url(s).getQuery()", "string(ip(s))", "string(cidr(s).masked())", "quantity(s)", "semver(s, true)"];
    let formats = ["qualifiedName", "uri", "uuid", "byte", "date", "datetime", "dns1123SubdomainPrefix"];
    let formats = formats.map(|name| format!("format.{name}().validate(s)"));
    let programs: Vec<_> = parsers.into_iter().chain(formats.iter().map(String::as_str)).map(compile).collect();
    // Pieces that the parsers care about, in an order that is always the same.
    let pieces = [
        "1", "255", ".", ":", "::", "/", "%", "%2", "%25", "[", "]", "@", "#", "?", "é", "\u{0}", "-", "+", "e", "Ki",
        "T", "Z", "=",
    ];
    let (mut state, mut accepted) = (1_u64, 0);
    for _ in 0..20_000 {
        let mut text = String::new();
        while text.len() < 24 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let piece = usize::try_from(state >> 33).unwrap() % (pieces.len() + 5);
            match pieces.get(piece) {
                Some(piece) => text.push_str(piece),
                None => break,
            }
        }
        let input = Bindings::new().bind("s", text.as_str());
        accepted += programs.iter().filter(|program| program.eval(&input).result.is_ok()).count();
    }
    assert!(accepted > 20_000, "most texts are nothing, but all have an answer from the formats: {accepted}");
}

#[derive(Debug, Default, PartialEq)]
struct Answer {
    compile_error: Option<String>,
    result_type: Option<String>,
    estimate: Option<(String, String)>,
    value: Option<String>,
    error: Option<String>,
    cost: Option<String>,
}

impl Answer {
    fn recorded(expect: &Json) -> Answer {
        let text = |key: &str| expect.get(key).and_then(Json::as_str).map(str::to_owned);
        let number = |key: &str| match expect.get(key)? {
            Json::Null => None,
            // The original text: floats do not hold all of 64 bits.
            Json::Float(number) => Some(number.text()),
            other => Some(other.to_string()),
        };
        Answer {
            compile_error: text("compile_error"),
            result_type: text("type"),
            estimate: number("cost_min").zip(number("cost_max")),
            value: expect.get("value").filter(|value| !value.is_null()).map(|value| show(&typed_value(value))),
            error: text("eval_error"),
            cost: number("actual_cost"),
        }
    }

    fn agrees(&self, recorded: &Answer) -> bool {
        // A panic of the reference matches any error.
        if recorded.error.as_deref().is_some_and(|error| error.starts_with("internal error:")) {
            return self.error.is_some();
        }
        self == recorded
    }
}

fn evaluate(env: &Env, case: &Json) -> Answer {
    let failed = |error: String| Answer { compile_error: Some(error), ..Answer::default() };
    let checked = match env.compile(case.str_at(&["expr"]).unwrap()) {
        Ok(checked) => checked,
        Err(issues) => return failed(format!("compilation failed: {issues}")),
    };
    let program = match Program::new(&checked) {
        Ok(program) => program,
        Err(error) => return failed(format!("program instantiation failed: {error}")),
    };
    let estimated = estimate(&checked, &NoHints);
    let mut input = Bindings::new();
    for (name, value) in case.get("input").and_then(Json::as_object).into_iter().flat_map(|input| input.iter()) {
        input = input.bind(name, typed_value(value));
    }
    let evaluation = program.eval_within(&input, Limits::cost(1_000_000));
    Answer {
        compile_error: None,
        result_type: Some(checked.result_type().to_string()),
        estimate: Some((estimated.min.to_string(), estimated.max.to_string())),
        value: evaluation.result.as_ref().ok().map(show),
        error: evaluation.result.as_ref().err().map(ToString::to_string),
        cost: Some(evaluation.cost.to_string()),
    }
}

/// A value in the notation of the recorded data.
fn typed_value(value: &Json) -> Value<'static> {
    let (kind, value) = value.as_object().and_then(|object| object.iter().next()).expect("a kind");
    let text = || value.as_str().unwrap_or_else(|| panic!("{kind}: {value}"));
    let elements = || value.as_array().unwrap_or_default();
    match kind {
        "null" => Value::Null,
        "bool" => Value::Bool(value.as_bool().unwrap()),
        "int" => Value::Int(text().parse().unwrap()),
        "uint" => Value::Uint(text().parse().unwrap()),
        "double" => Value::Double(text().replace("Infinity", "inf").parse().unwrap()),
        "string" => Value::string(text()),
        "bytes" => Value::Bytes(Bytes::Shared(decode_base64(text()).into())),
        "duration" => Value::Duration(Duration::parse(text()).unwrap()),
        "timestamp" => Value::Timestamp(Timestamp::parse(text()).unwrap().unwrap()),
        "type" => Value::Type(Type::object(text())),
        "list" => Value::list(elements().iter().map(typed_value).collect()),
        "map" => {
            let entry = |entry: &Json| match entry.as_array() {
                Some([key, value]) => (typed_value(key), typed_value(value)),
                _ => panic!("{entry}"),
            };
            // The reference also makes maps whose keys no map of ours can have.
            Map::from_entries(elements().iter().map(entry)).map_or_else(Value::Error, Value::Map)
        }
        "optional" if value.is_null() => Value::NONE,
        "optional" => Value::some(typed_value(value)),
        "opaque" => {
            Value::string(format!("{}<{}>", value.str_at(&["type"]).unwrap(), value.str_at(&["text"]).unwrap()))
        }
        other => panic!("unknown kind {other}"),
    }
}

/// One text for each value; values of library types as recorded ones are shown.
fn show(value: &Value<'_>) -> String {
    match value {
        Value::Opaque(opaque) => format!("{:?}", format!("{}<{}>", opaque.type_of().name(), opaque.text())),
        Value::String(text) => format!("{:?}", text.as_str()),
        Value::List(list) => format!("[{}]", list.iter().map(|element| show(&element)).collect::<Vec<_>>().join(", ")),
        Value::Map(map) => {
            let entries: Vec<_> =
                map.entries().iter().map(|(key, value)| format!("{}: {}", show(key), show(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Optional(Some(value)) => format!("optional({})", show(value)),
        Value::Timestamp(timestamp) => {
            format!("timestamp({} {})", timestamp.seconds(), timestamp.subsecond_nanoseconds())
        }
        other => format!("{} {other}", other.type_name()),
    }
}

fn decode_base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        bits = (bits << 6) | u32::try_from(ALPHABET.iter().position(|letter| *letter == byte).unwrap()).unwrap();
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
