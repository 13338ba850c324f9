//! Values for the variables of the base environment.

use std::sync::Arc;

use cel::program::Bindings;
use cel::value::{Bytes, Duration, Key, Map, Timestamp, Value};

/// Values of many kinds; some variables have none, some are not known.
pub(crate) fn bindings(seed: u8) -> Bindings<'static> {
    let mut state = u32::from(seed).wrapping_mul(0x9E37_79B9);
    let mut which = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        usize::from(state.to_le_bytes()[3] % 4)
    };
    let all = Bindings::new()
        .bind("x", int(which()))
        .bind("y", int(which()))
        .bind("u", Value::Uint([0, 1, 64, u64::MAX][which()]))
        .bind("d", Value::Double([0.0, -1.5, f64::NAN, f64::INFINITY][which()]))
        .bind("s", text(which()))
        .bind("t", text(which()))
        .bind("by", Value::Bytes(Bytes::Borrowed([&b""[..], b"a", b"\xff\x00", b"hello"][which()])))
        .bind("l", list(which(), int))
        .bind("ls", list(which(), text))
        .bind("m", map(which(), int))
        .bind("ms", map(which(), text))
        .bind("dur", duration(which()))
        .bind("ts", timestamp(which()))
        .bind("a", [Value::unknown(0), Value::Null, list(2, text), map(3, int)][which()].clone());
    match which() {
        0 => all,
        1 => all.bind("b", true),
        2 => all.bind("b", Value::unknown(1)),
        _ => all.bind("b", false).bind("l", Value::list(vec![int(1), Value::unknown(2)])).bind("ms", Value::unknown(3)),
    }
}

fn int(which: usize) -> Value<'static> {
    Value::Int([0, 7, i64::MAX, i64::MIN][which % 4])
}

fn text(which: usize) -> Value<'static> {
    Value::str(["", "hello world", "é\u{1F600}1.2.3", "10Gi"][which % 4])
}

fn list(which: usize, element: fn(usize) -> Value<'static>) -> Value<'static> {
    Value::list((0..[0, 1, 3, 40][which]).map(element).collect())
}

fn map(size: usize, value: fn(usize) -> Value<'static>) -> Value<'static> {
    let entries = (0..size).filter_map(|entry| Some((Key::new(text(entry)).ok()?, value(entry))));
    Value::Map(Map::Shared(Arc::new(entries.collect())))
}

fn duration(which: usize) -> Value<'static> {
    Value::Duration(Duration { nanoseconds: [0, 1, i64::MAX, i64::MIN][which] })
}

fn timestamp(which: usize) -> Value<'static> {
    let seconds = [0, 1_700_000_000, 253_402_300_799, -62_135_596_800][which];
    Timestamp::new(seconds, 999_999_999).map_or(Value::Null, Value::Timestamp)
}
