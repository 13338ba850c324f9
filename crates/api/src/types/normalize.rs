//! Brings an object that was changed back into its type's normal form, in place.
//!
//! The result is that of [`decode`](super::decode()), without a copy: what is in order is only looked at, and what is
//! unusual is left to the decoder. Parts that do not fit the type stay as they are.

use super::decode::{Decoder, shown, zero};
use super::{Field, Kind, Type};
use crate::json::{Object, Text, Value};

/// Brings an object into the normal form of its type.
pub fn normalize(it: &Type, value: &mut Value) {
    if let Value::Object(fields) = value {
        object(it, fields);
    }
}

/// Which fields of a type were met, as bits. Types with more fields than bits are always put together anew.
type Present = u128;

fn object(it: &Type, fields: &mut Object) {
    let mut present: Present = 0;
    let mut next = 0;
    let mut is_normal = true;
    for (key, value) in fields.iter_mut() {
        let Some((at, field)) = find(it, next, key) else {
            is_normal = false;
            continue;
        };
        is_normal &= at >= next;
        next = at.saturating_add(1);
        if value.is_null() {
            is_normal = false;
            continue;
        }
        part(field.kind, value);
        let bit = u32::try_from(at).ok().and_then(|at| Present::checked_shl(1, at));
        match bit.filter(|_| !is_left_out(field, value)) {
            Some(bit) => present |= bit,
            None => is_normal = false,
        }
    }
    let is_complete = || {
        let bits = std::iter::successors(Some(1), |bit: &Present| bit.checked_shl(1));
        it.fields.iter().zip(bits).all(|(field, bit)| present & bit != 0 || is_left_out_if_missing(field))
    };
    if !is_normal || !is_complete() {
        put_together(it, fields);
    }
}

/// The field of this name, looked for behind the last one first: most often that is where it is.
fn find(it: &Type, next: usize, key: &str) -> Option<(usize, &'static Field)> {
    let from = |at: usize| it.fields.iter().enumerate().skip(at).find(|(_, field)| field.name == key);
    from(next).or_else(|| from(0))
}

/// Makes the object anew of its parts, which are in normal form.
fn put_together(it: &Type, fields: &mut Object) {
    let mut slots: Vec<Option<Value>> = vec![None; it.fields.len()];
    let mut next = 0;
    for (key, value) in std::mem::take(fields) {
        let Some((at, _)) = find(it, next, &key) else { continue };
        next = at.saturating_add(1);
        if let Some(slot) = slots.get_mut(at).filter(|_| !value.is_null()) {
            *slot = Some(value);
        }
    }
    let all = it.fields.iter().zip(slots);
    let all = all.filter_map(|(field, slot)| Some((Text::const_new(field.name), shown(field, slot)?)));
    // A type has no field twice.
    *fields = Object::from_distinct(all.collect());
}

fn part(kind: Kind, value: &mut Value) {
    match (kind, &mut *value) {
        (Kind::Any, _) | (Kind::Bool, Value::Bool(_)) | (Kind::String, Value::String(_)) => {}
        (Kind::Int64, Value::Int(_)) | (Kind::Float64, Value::Int(_) | Value::Float(_)) => {}
        (Kind::Int32, Value::Int(number)) if i32::try_from(*number).is_ok() => {}
        (Kind::Time, Value::String(text)) if is_usual_time(text) => {}
        (Kind::Struct(it), Value::Object(fields)) => object(it, fields),
        (Kind::List(inner), Value::Array(items)) => items.iter_mut().for_each(|item| element(*inner, item)),
        (Kind::Map(inner), Value::Object(fields)) => {
            fields.values_mut().for_each(|value| element(*inner, value));
            fields.sort();
        }
        _ => {
            if let Some(normal) = Decoder::alone(kind, value) {
                *value = normal;
            }
        }
    }
}

fn element(kind: Kind, value: &mut Value) {
    if value.is_null() && !matches!(kind, Kind::Any) {
        *value = zero(kind);
    } else {
        part(kind, value);
    }
}

/// Whether Go leaves a field with this value out.
fn is_left_out(field: &Field, value: &Value) -> bool {
    !field.pointer && (field.omit_empty && field.is_plain() && super::decode::is_empty(value))
}

/// Whether Go leaves a field out that is not set.
fn is_left_out_if_missing(field: &Field) -> bool {
    if field.pointer {
        return field.omit_empty;
    }
    // The zero value of what is not plain is no null, with the exception of times.
    let is_null = matches!(field.kind, Kind::Time | Kind::MicroTime | Kind::Any | Kind::SchemaOrList);
    (field.omit_empty && field.is_plain()) || (field.omit_zero && is_null)
}

/// Whether this is a time as we write it: `2006-01-02T15:04:05Z`. Rare ones are left to the decoder.
fn is_usual_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let form = b"dddd-dd-ddTdd:dd:ddZ";
    let fits = |(byte, form): (&u8, &u8)| if *form == b'd' { byte.is_ascii_digit() } else { byte == form };
    let number = |at: usize| text.get(at..at.saturating_add(2)).and_then(|digits| digits.parse::<u8>().ok());
    let within = |at: usize, least: u8, most: u8| number(at).is_some_and(|number| (least..=most).contains(&number));
    bytes.len() == form.len()
        && bytes.iter().zip(form).all(fits)
        && !text.starts_with('0')
        && within(5, 1, 12)
        && within(8, 1, 28)
        && within(11, 0, 23)
        && within(14, 0, 59)
        && within(17, 0, 59)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::types::{by_api_version, decode};

    /// Another document with the same meaning, or nearly: fields turned around, nulls and empty parts added.
    fn disturbed(value: &Value, seed: &mut u32) -> Value {
        *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let choice = *seed >> 28;
        match value {
            Value::Array(items) => Value::Array(items.iter().map(|item| disturbed(item, seed)).collect()),
            Value::Object(fields) => {
                let mut all: Vec<(Text, Value)> =
                    fields.iter().map(|(key, value)| (Text::new(key), disturbed(value, seed))).collect();
                match choice {
                    0..=3 => all.reverse(),
                    4 => all.push((Text::new("unknown"), Value::Null)),
                    5 => all.push((Text::new("nobodyKnows"), Value::object())),
                    6 if !all.is_empty() => all[0].1 = Value::Null,
                    7 if !all.is_empty() => all.rotate_left(1),
                    _ => {}
                }
                Value::Object(Object::from_distinct(all))
            }
            _ => value.clone(),
        }
    }

    #[track_caller]
    fn check(api_version: &str, kind: &str, document: &Value) {
        let of = by_api_version(api_version, kind).unwrap();
        let Ok(expected) = decode(of, document) else { return };
        let mut normal = document.clone();
        normalize(of, &mut normal);
        assert_eq!(json::to_string(&normal), json::to_string(&expected.value), "{}", json::to_string(document));
        normalize(of, &mut normal);
        assert_eq!(json::to_string(&normal), json::to_string(&expected.value), "again");
    }

    #[test]
    fn the_result_is_the_decoders() {
        let pod = json::parse(
            br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","creationTimestamp":"2020-02-30T00:00:00Z",
            "labels":{"b":"c","a":"d"},"deletionTimestamp":"2021-03-04T05:06:07+01:00","finalizers":[],"generation":0},
            "spec":{"nodeName":"","hostNetwork":false,"containers":[{"name":"x","image":"i","resources":{"limits":{"cpu":"1000m",
            "memory":"1024Mi"}},"ports":[{"containerPort":80,"hostPort":0}],"livenessProbe":{"httpGet":{"port":"http","path":""}},
            "env":[{"name":"E","value":""},null]},null],"tolerations":[{"key":"a"}],"terminationGracePeriodSeconds":0,
            "securityContext":{},"nodeSelector":{}},"status":{}}"#,
        )
        .unwrap();
        check("v1", "Pod", &pod);
        let mut seed = 7;
        for _ in 0..2000 {
            check("v1", "Pod", &disturbed(&pod, &mut seed));
        }
        for (group, version, kind, _) in crate::types::kinds() {
            let api_version = if group.is_empty() { (*version).to_owned() } else { format!("{group}/{version}") };
            check(&api_version, kind, &Value::object());
            check(&api_version, kind, &crate::json!({"metadata": {"name": "a"}, "spec": {}, "status": {}}));
        }
    }

    #[test]
    fn usual_times_are_those_that_decoding_keeps() {
        for text in ["2020-01-02T03:04:05Z", "1999-12-28T23:59:59Z"] {
            assert!(is_usual_time(text), "{text}");
        }
        for text in ["0001-01-01T00:00:00Z", "2020-01-29T00:00:00Z", "2020-13-01T00:00:00Z", "2020-01-02T03:04:05+", ""]
        {
            assert!(!is_usual_time(text), "{text}");
        }
    }
}
