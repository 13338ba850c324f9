//! Differences between what was recorded and what was seen.

use std::collections::{BTreeMap, HashMap};

use regex::Regex;
use serde_json::Value;

/// Field managers that are not controllers of this crate.
const OTHERS: &[&str] = &["default-scheduler", "kube-scheduler", "admin", "admin-of-nodes", "apiserver"];

/// The final objects.
pub(crate) fn objects(expect: &Value, seen: &[Value]) -> Vec<String> {
    let list = |key: &str| expect[key].as_array().cloned().unwrap_or_default();
    let mut seen = seen.to_vec();
    let mut differences = Vec::new();
    for wanted in list("objects") {
        match take(&mut seen, |it| name(it) == name(&wanted)) {
            Some(found) => differ(&name(&wanted), &wanted, &found, &mut differences),
            None => differences.push(format!("{} is missing", name(&wanted))),
        }
    }
    for wanted in list("objectsPartial") {
        match take(&mut seen, |it| name(it) == name(&wanted)) {
            Some(found) => differ(&name(&wanted), &wanted, &found, &mut differences),
            None => differences.push(format!("{} is missing", name(&wanted))),
        }
    }
    let mut seen: Vec<Value> = seen.iter().map(unnumbered).collect();
    for wanted in list("objectsUnordered") {
        let wanted = unnumbered(&wanted);
        if take(&mut seen, |it| *it == wanted).is_none() {
            match take(&mut seen, |it| name(it) == name(&wanted)) {
                Some(found) => differ(&name(&wanted), &wanted, &found, &mut differences),
                None => differences.push(format!("{} is missing", name(&wanted))),
            }
        }
    }
    differences.extend(seen.iter().map(|object| format!("{} is too many", name(object))));
    differences
}

fn take(objects: &mut Vec<Value>, is: impl Fn(&Value) -> bool) -> Option<Value> {
    let index = objects.iter().position(is)?;
    Some(objects.remove(index))
}

fn name(object: &Value) -> String {
    format!("{}/{}", object["kind"].as_str().unwrap_or("?"), object["metadata"]["name"].as_str().unwrap_or("?"))
}

/// Without the numbers of equal siblings.
fn unnumbered(value: &Value) -> Value {
    let text = Regex::new(r"\{r\d+\}").unwrap().replace_all(&value.to_string(), "{r}").into_owned();
    let text = Regex::new(r"10\.0\.0\.(\d+|\{n\})").unwrap().replace_all(&text, "10.0.0.{n}").into_owned();
    serde_json::from_str(&text).unwrap()
}

/// Reports the differences of two values; `{varies}` and similar agree with everything.
fn differ(at: &str, wanted: &Value, seen: &Value, differences: &mut Vec<String>) {
    if matches!(wanted.as_str(), Some("{varies}" | "{absent}" | "{scheduler message}")) || wanted == seen {
        return;
    }
    match (wanted, seen) {
        (Value::Object(wanted), Value::Object(seen)) => {
            let mut keys: Vec<&String> =
                wanted.keys().chain(seen.keys().filter(|key| !wanted.contains_key(*key))).collect();
            keys.sort();
            for key in keys {
                let at = format!("{at}.{key}");
                match (wanted.get(key), seen.get(key)) {
                    (Some(wanted), Some(seen)) => differ(&at, wanted, seen, differences),
                    (Some(Value::String(text)), None) if text == "{varies}" || text == "{absent}" => {}
                    (wanted, seen) => differences.push(format!("{at}: {} instead of {}", shown(seen), shown(wanted))),
                }
            }
        }
        (Value::Array(wanted), Value::Array(seen)) if wanted.first().and_then(Value::as_str) == Some("{unordered}") => {
            let sort = |list: &[Value]| {
                let mut list: Vec<Value> = list.iter().map(unnumbered).collect();
                list.sort_by_key(Value::to_string);
                list
            };
            let (wanted, seen) = (sort(&wanted[1..]), sort(seen));
            if wanted != seen {
                differences.push(format!("{at}: {seen:?} instead of {wanted:?}"));
            }
        }
        (Value::Array(wanted), Value::Array(seen)) if wanted.len() == seen.len() => {
            for (index, (wanted, seen)) in wanted.iter().zip(seen).enumerate() {
                differ(&format!("{at}[{index}]"), wanted, seen, differences);
            }
        }
        _ => differences.push(format!("{at}: {seen} instead of {wanted}")),
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or("nothing".to_owned(), Value::to_string)
}

/// Compares reasons, subjects and messages of events, regardless of their number.
pub(crate) fn events(expect: &Value, seen: &[Value]) -> Vec<String> {
    let key = |event: &Value| {
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let message = text("message");
        let message = message.strip_prefix("(combined from similar events): ").unwrap_or(&message).to_owned();
        let who = text("controller");
        let key = unnumbered(&Value::from(format!(
            "{} {} {} {who}: {message}",
            text("type"),
            text("reason"),
            text("regarding")
        )));
        (!OTHERS.contains(&who.as_str())).then(|| key.as_str().unwrap().to_owned())
    };
    let set = |events: &[Value]| events.iter().filter_map(key).collect::<std::collections::BTreeSet<String>>();
    let (wanted, seen) = (set(expect["events"].as_array().unwrap()), set(seen));
    let missing = wanted.difference(&seen).map(|event| format!("no event: {event}"));
    let partial = expect["compared"]["events"] == "set-partial";
    let surplus = seen.difference(&wanted).filter(|_| !partial).map(|event| format!("event: {event}"));
    missing.chain(surplus).collect()
}

/// No more writes than recorded, by controller, verb, resource and subresource. Writes that changed nothing and lost
/// races do not count.
pub(crate) fn writes(expect: &Value, seen: &[Value]) -> Vec<String> {
    let key = |write: &Value| {
        let text = |field: &str| write[field].as_str().unwrap_or_default().to_owned();
        let failed = write["code"].as_u64().unwrap_or(0) >= 400;
        let subresource = text("subresource");
        let outcome = if failed { "refused" } else { "" };
        format!("{} {} {} {subresource} {outcome}", text("controller"), text("verb"), text("resource"))
    };
    // Where the recorded runs differed in what one controller wrote to a kind of objects, more is not a difference.
    let whose = |write: &Value| format!("{} {}", write["controller"], write["resource"]);
    let is_ours = |write: &&Value| !OTHERS.contains(&write["controller"].as_str().unwrap_or_default());
    let mut wanted: BTreeMap<String, usize> = BTreeMap::new();
    let mut is_elided: HashMap<String, bool> = HashMap::new();
    for write in expect["writes"].as_array().unwrap() {
        *wanted.entry(key(write)).or_default() += 1;
        *is_elided.entry(whose(write)).or_default() |= write["elided"] == true;
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut races: std::collections::BTreeSet<String> = std::collections::BTreeSet::new();
    let mut versions: HashMap<String, Value> = HashMap::new();
    for write in seen {
        let object = format!("{} {}", write["resource"], write["name"]);
        let code = write["code"].as_u64().unwrap_or(0);
        let version = &write["version"];
        let unchanged = !version.is_null() && versions.get(&object) == Some(version);
        if code < 300 && !version.is_null() {
            versions.insert(object, version.clone());
        }
        if is_ours(&write) && code != 409 && code != 404 && !unchanged {
            *counts.entry(key(write)).or_default() += 1;
            if is_elided.get(&whose(write)).copied().unwrap_or(false) {
                races.insert(key(write));
            }
        }
    }
    let too_many =
        counts.iter().filter(|(key, count)| **count > wanted.get(*key).copied().unwrap_or(0) && !races.contains(*key));
    too_many
        .map(|(key, count)| format!("{count} writes instead of {}: {key}", wanted.get(key).copied().unwrap_or(0)))
        .collect()
}
