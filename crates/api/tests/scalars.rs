//! Quantities and versions answer as the reference implementation does, on its recorded answers.

use std::cmp::Ordering;

use api::quantity::{Format, Quantity};
use api::semver::Version;
use serde_json::{Value, json};

fn cases(text: &str) -> impl Iterator<Item = Value> + '_ {
    text.lines().map(|line| serde_json::from_str(line).unwrap())
}

pub(crate) fn scalar_cases(function: &str) -> Vec<Value> {
    let all: Vec<_> =
        cases(include_str!("data/scalars.jsonl")).filter(|case| case["input"]["fn"] == function).collect();
    assert!(!all.is_empty(), "{function}");
    all
}

fn argument(case: &Value, index: usize) -> &str {
    case["input"]["args"][index].as_str().unwrap()
}

fn order_number(order: Ordering) -> i64 {
    order as i64
}

fn describe(quantity: &Quantity) -> Value {
    json!({
        "approx": api::go_text::format_float(quantity.as_approximate_f64()),
        "dec": quantity.to_plain_string(),
        "format": quantity.format().name(),
        "int64": quantity.as_i64(),
        "isZero": quantity.is_zero(),
        "milli": quantity.milli_value(),
        "sign": quantity.sign(),
        "string": quantity.to_string(),
        "value": quantity.value(),
    })
}

/// `approx` may be written in either of Go's two float forms; compare the numbers.
#[track_caller]
fn assert_same(case: &Value, mut actual: Value) {
    let mut expected = case["expected"].clone();
    for side in [&mut actual, &mut expected] {
        if let Some(text) = side["approx"].as_str() {
            side["approx"] = json!(text.parse::<f64>().unwrap());
        } else if let Value::Object(fields) = side {
            fields.remove("approx");
        }
    }
    assert_eq!(actual, expected, "{case}");
}

#[test]
fn quantities_parse() {
    for case in scalar_cases("quantity.parse") {
        let actual = match Quantity::parse(argument(&case, 0)) {
            Ok(quantity) => describe(&quantity),
            Err(error) => json!({ "error": error.to_string() }),
        };
        assert_same(&case, actual);
    }
}

#[test]
fn quantities_compute() {
    for case in scalar_cases("quantity.op") {
        let mut quantity = Quantity::parse(argument(&case, 1)).unwrap();
        let other = argument(&case, 2);
        let actual = match argument(&case, 0) {
            "cmp" => {
                let order = quantity.cmp(&Quantity::parse(other).unwrap());
                json!({ "cmp": order_number(order), "equal": order.is_eq() })
            }
            "scaled" => json!({ "scaled": quantity.scaled_value(other.parse().unwrap()) }),
            operation => {
                let mut exact = None;
                match operation {
                    "add" => quantity.add(&Quantity::parse(other).unwrap()),
                    "sub" => quantity.sub(&Quantity::parse(other).unwrap()),
                    "neg" => quantity.neg(),
                    "mul" => exact = Some(quantity.mul(other.parse().unwrap())),
                    "roundup" => exact = Some(quantity.round_up(other.parse().unwrap())),
                    _ => panic!("{case}"),
                }
                let mut actual = describe(&quantity);
                if let Some(exact) = exact {
                    actual["exact"] = json!(exact);
                }
                actual
            }
        };
        assert_same(&case, actual);
    }
}

#[test]
fn quantities_are_made_from_numbers() {
    for case in scalar_cases("quantity.new") {
        let format = match argument(&case, 2) {
            "BinarySI" => Format::BinarySi,
            "DecimalExponent" => Format::DecimalExponent,
            _ => Format::DecimalSi,
        };
        let value = argument(&case, 0).parse().unwrap();
        let quantity = if argument(&case, 1) == "milli" {
            Quantity::new_milli(value, format)
        } else {
            Quantity::new(value, format)
        };
        assert_eq!(json!({ "string": quantity.to_string() }), case["expected"], "{case}");
    }
}

#[test]
fn quantities_are_read_from_json() {
    for case in scalar_cases("quantity.json") {
        let actual = match serde_json::from_value::<Quantity>(case["input"]["json"].clone()) {
            Ok(quantity) => json!({ "json": quantity }),
            Err(error) => json!({ "error": error.to_string() }),
        };
        assert_eq!(actual, case["expected"], "{case}");
    }
}

#[test]
fn the_cel_library_gets_the_same_quantities() {
    for case in cases(include_str!("data/quantity_cel.jsonl")) {
        let text = |index: usize| case["args"][index].as_str().unwrap();
        let quantity = |index: usize| Quantity::parse(text(index)).map_err(|error| error.to_string());
        let whole = |index: usize| Quantity::new(text(index).parse().unwrap(), Format::DecimalExponent);
        let opaque =
            |quantity: Quantity| json!({ "opaque": { "text": quantity.to_string(), "type": "kubernetes.Quantity" } });
        let answer = || -> Result<Value, String> {
            let function = case["fn"].as_str().unwrap();
            if function == "isQuantity" {
                return Ok(json!({ "bool": quantity(0).is_ok() }));
            }
            let mut left = quantity(0)?;
            Ok(match function {
                "quantity" => opaque(left),
                "sign" => json!({ "int": left.sign().to_string() }),
                "isInteger" => json!({ "bool": left.as_i64().is_some() }),
                "asInteger" => {
                    json!({ "int": left.as_i64().ok_or("cannot convert value to integer")?.to_string() })
                }
                "asApproximateFloat" => json!({ "double": left.as_approximate_f64() }),
                "compareTo" => json!({ "int": order_number(left.cmp(&quantity(1)?)).to_string() }),
                "isGreaterThan" => json!({ "bool": left > quantity(1)? }),
                "isLessThan" => json!({ "bool": left < quantity(1)? }),
                "equals" => json!({ "bool": left == quantity(1)? }),
                "add" => {
                    left.add(&quantity(1)?);
                    opaque(left)
                }
                "sub" => {
                    left.sub(&quantity(1)?);
                    opaque(left)
                }
                "addInt" => {
                    left.add(&whole(1));
                    opaque(left)
                }
                "subInt" => {
                    left.sub(&whole(1));
                    opaque(left)
                }
                _ => panic!("{case}"),
            })
        };
        let mut expected = case["value"].clone();
        if let Some(double) = expected["double"].as_str() {
            expected["double"] = json!(double.parse::<f64>().unwrap());
        }
        match answer() {
            Ok(value) => assert_eq!(value, expected, "{case}"),
            Err(error) => assert_eq!(json!(error), case["error"], "{case}"),
        }
    }
}

fn describe_version(version: &Version) -> Value {
    let identifiers = |text: &str| text.split('.').filter(|it| !it.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    json!({
        "build": identifiers(version.build()),
        "major": version.major,
        "minor": version.minor,
        "patch": version.patch,
        "pre": identifiers(version.pre_release()),
        "string": version.to_string(),
    })
}

#[test]
fn versions_parse() {
    for (function, parse) in
        [("semver.parse", Version::parse as fn(&str) -> _), ("semver.parseTolerant", Version::parse_tolerant)]
    {
        for case in scalar_cases(function) {
            let actual = match parse(argument(&case, 0)) {
                Ok(version) => describe_version(&version),
                Err(error) => json!({ "error": error.to_string() }),
            };
            assert_eq!(actual, case["expected"], "{case}");
        }
    }
}

#[test]
fn versions_compare() {
    for case in scalar_cases("semver.compare") {
        let version = |index| Version::parse_tolerant(argument(&case, index)).unwrap();
        let order = version(0).cmp(&version(1));
        assert_eq!(json!({ "cmp": order_number(order), "equals": order.is_eq() }), case["expected"], "{case}");
    }
}

#[test]
fn the_cel_library_gets_the_same_versions() {
    for case in cases(include_str!("data/semver_cel.jsonl")) {
        let arguments = case["args"].as_array().unwrap();
        let two_versions =
            matches!(case["fn"].as_str().unwrap(), "compareTo" | "isGreaterThan" | "isLessThan" | "equals");
        let normalize = !two_versions && arguments.get(1).is_some_and(|it| it == "true");
        let version = |index: usize| {
            let text = arguments[index].as_str().unwrap();
            let parsed = if normalize { Version::parse_normalized(text) } else { Version::parse(text) };
            parsed.map_err(|error| error.to_string())
        };
        let answer = || -> Result<Value, String> {
            let function = case["fn"].as_str().unwrap();
            if function == "isSemver" {
                return Ok(json!({ "bool": version(0).is_ok() }));
            }
            let left = version(0)?;
            Ok(match function {
                "semver" => {
                    json!({ "opaque": { "text": left.to_string(), "type": "kubernetes.Semver" } })
                }
                "major" => json!({ "int": left.major.cast_signed().to_string() }),
                "minor" => json!({ "int": left.minor.cast_signed().to_string() }),
                "patch" => json!({ "int": left.patch.cast_signed().to_string() }),
                "compareTo" => json!({ "int": order_number(left.cmp(&version(1)?)).to_string() }),
                "isGreaterThan" => json!({ "bool": left > version(1)? }),
                "isLessThan" => json!({ "bool": left < version(1)? }),
                "equals" => json!({ "bool": left == version(1)? }),
                _ => panic!("{case}"),
            })
        };
        match answer() {
            Ok(value) => assert_eq!(value, case["value"], "{case}"),
            Err(error) => assert_eq!(json!(error), case["error"], "{case}"),
        }
    }
}

#[test]
fn huge_exponents_stay_cheap() {
    let huge = Quantity::parse("1e999999").unwrap();
    let large = Quantity::parse("-12345678901234567890123e10000").unwrap();
    assert!(huge > large && huge > Quantity::parse("1Ei").unwrap());
    let mut sum = huge.clone();
    sum.add(&large);
    assert_eq!(sum, huge);
    assert_eq!(huge.to_string(), "1e999999");
    assert!(Quantity::parse("1e10000001").is_err());
    assert!(Quantity::parse("12345678901234567890e999999").is_err());
    assert_eq!(Quantity::parse("12345678901234567890e-999999").unwrap().to_string(), "1e-9");
}

/// The recorded JSON in our own type, which preserves the notation of numbers.
fn own_json(function: &str) -> Vec<(api::json::Value, api::json::Value, String)> {
    let lines = include_str!("data/scalars.jsonl").lines();
    let cases = lines.map(|line| (api::json::parse(line.as_bytes()).unwrap(), line));
    let cases = cases.filter(|(case, _)| case.str_at(&["input", "fn"]) == Some(function));
    let cases: Vec<_> = cases
        .map(|(case, line)| {
            (case.get("input").unwrap().clone(), case.get("expected").unwrap().clone(), line.to_owned())
        })
        .collect();
    assert!(!cases.is_empty());
    cases
}

fn string_field(value: &api::json::Value) -> Result<Option<&str>, String> {
    match value {
        api::json::Value::Null => Ok(None),
        api::json::Value::String(text) => Ok(Some(text)),
        other => Err(format!("json: cannot unmarshal {} into Go value of type string", other.kind())),
    }
}

#[test]
fn times_parse_and_print() {
    use api::time::{Layout, Timestamp};
    for (function, layout) in [("time", Layout::Seconds), ("microtime", Layout::Micros)] {
        for (input, expected, line) in own_json(function) {
            let parsed = string_field(input.get("json").unwrap()).and_then(|text| {
                let parse = |text| Timestamp::parse_layout(text, layout).map_err(|error| error.to_string());
                text.map_or(Ok(Timestamp::ZERO), parse)
            });
            match parsed {
                Err(error) => assert_eq!(expected.str_at(&["error"]), Some(error.as_str()), "{line}"),
                Ok(time) => {
                    let text = if layout == Layout::Micros { time.to_micro_string() } else { time.to_string() };
                    let shown = (!time.is_zero()).then_some(text);
                    assert_eq!(expected.str_at(&["json"]), shown.as_deref(), "{line}");
                    let nanos = (!time.is_zero()).then(|| time.unix_nanos().to_string());
                    assert_eq!(expected.str_at(&["unixNano"]), nanos.as_deref(), "{line}");
                }
            }
        }
    }
}

#[test]
fn durations_parse_and_print() {
    for (input, expected, line) in own_json("duration") {
        let parsed = string_field(input.get("json").unwrap()).and_then(|text| {
            api::duration::Duration::parse(text.unwrap_or_default()).map_err(|error| error.to_string())
        });
        match parsed {
            Err(error) => assert_eq!(expected.str_at(&["error"]), Some(error.as_str()), "{line}"),
            Ok(duration) => {
                assert_eq!(expected.str_at(&["json"]), Some(duration.to_string().as_str()), "{line}");
                assert_eq!(expected.get("nanos").and_then(api::json::Value::as_i64), Some(duration.nanos), "{line}");
            }
        }
    }
}

#[test]
fn ints_or_strings_scale() {
    use api::int_or_string::IntOrString;
    for (input, expected, line) in own_json("intstr") {
        let value = match IntOrString::from_value(input.get("json").unwrap()) {
            Err(error) => {
                assert_eq!(expected.str_at(&["error"]), Some(error.as_str()), "{line}");
                continue;
            }
            Ok(value) => value,
        };
        let number = |name: &str| expected.get(name).and_then(api::json::Value::as_i64).unwrap();
        assert_eq!(number("intValue"), i64::from(value.int_value()), "{line}");
        assert_eq!(expected.get("json"), Some(&api::json::Value::from(&value)), "{line}");
        assert_eq!(expected.str_at(&["string"]), Some(value.to_string().as_str()), "{line}");
        let total = input.get("total").and_then(api::json::Value::as_i64).unwrap();
        let up = input.get("up").and_then(api::json::Value::as_bool).unwrap_or(false);
        match value.scaled(total, up) {
            Ok(scaled) => assert_eq!(number("scaled"), scaled, "{line}"),
            Err(error) => assert_eq!(expected.str_at(&["scaledError"]), Some(error.to_string().as_str()), "{line}"),
        }
    }
    for (input, expected, line) in own_json("intstr.parse") {
        let text = input.get("args").unwrap().as_array().unwrap()[0].as_str().unwrap();
        assert_eq!(expected.get("json"), Some(&api::json::Value::from(&IntOrString::parse(text))), "{line}");
    }
}

#[test]
fn usual_quantities_are_those_that_parsing_keeps() {
    let numbers =
        ["0", "1", "01", "7", "100", "128", "999", "1000", "1023", "1024", "1536", "2000", "524288", "1000000"];
    let mut usual = 0;
    for number in numbers {
        for suffix in ["", "n", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "Ei", "e3", " ", "K"] {
            let text = format!("{number}{suffix}");
            if Quantity::is_usual(&text) {
                usual += 1;
                assert_eq!(Quantity::parse(&text).unwrap().to_string(), text);
            }
        }
    }
    assert!(usual > 60, "{usual}");
}
