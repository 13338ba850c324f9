//! The Common Expression Language: text → tree → types → cost → program → value.
