//! Selection of the cases about the language, without protobuf.

use super::case::Case;

/// Files about protobuf messages, about blocks of common subexpressions, and about addresses.
const FILES: &[&str] = &["proto2", "proto3", "proto2_ext", "enums", "wrappers", "block_ext", "network_ext"];

/// Messages that stand for values of the language.
const MESSAGES: &[&str] = &[
    "BoolValue",
    "BytesValue",
    "DoubleValue",
    "FloatValue",
    "Int32Value",
    "Int64Value",
    "StringValue",
    "UInt32Value",
    "UInt64Value",
    "Duration",
    "Timestamp",
];

const PACKAGE: &str = "google.protobuf";

/// Whether the case is in scope.
pub(crate) fn holds(case: &Case, line: &str) -> bool {
    !FILES.contains(&case.file.as_str())
        // Its messages are written without their package there.
        && case.container != PACKAGE
        && !line.contains("TestAllTypes")
        && messages(line).all(|message| MESSAGES.contains(&message))
}

/// The names that follow the package's, wherever they stand.
fn messages(line: &str) -> impl Iterator<Item = &str> {
    line.split("google.protobuf.").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
        &rest[..end]
    })
}
