//! Objects in protobuf.

use api::types::protobuf::{self, Envelope};
use api::types::{self, Type};

/// Any bytes are a message of any type or an error; what is read and has a normal form is written and read as the same.
pub fn kubernetes_protobuf(data: &[u8]) {
    if let Ok(envelope) = Envelope::read(data)
        && let Some(it) = types::by_api_version(&envelope.api_version, &envelope.kind)
    {
        survives(it, envelope.raw);
    }
    let Some((choice, message)) = data.split_first() else { return };
    let kinds = types::kinds();
    // Neighbors in the list are alike: a step that shares no divisor with its length reaches all of them.
    for turn in 0..4_usize {
        let at = (usize::from(*choice) + 256 * turn) % kinds.len();
        if let Some((_, _, _, it)) = kinds.get(at) {
            survives(it, message);
        }
    }
}

fn survives(it: &'static Type, message: &[u8]) {
    let Ok(value) = protobuf::read(it, message) else { return };
    let Ok(normal) = types::decode(it, &value) else { return };
    assert!(normal.unknown_fields.is_empty(), "{:?}", normal.unknown_fields);
    let written = protobuf::write(it, &normal.value);
    let again = protobuf::read(it, &written).unwrap_or_else(|error| panic!("{}: {error}", it.name));
    let again = types::decode(it, &again).unwrap_or_else(|error| panic!("{}: {error}", it.name));
    assert_eq!(protobuf::write(it, &again.value), written, "{}", it.name);
}
