//! Local names: `cel.bind(name, value, body)`.
//!
//! The library is a macro and nothing else: it expands to a comprehension over nothing, whose accumulator is the name.
//!
//! Follows cel-go's `ext.Bindings`, version 0.

use crate::env::{Library, LibraryVersion};
use crate::syntax::macros;

/// The library of `cel.bind`. It holds no functions.
pub fn bindings() -> Library {
    Library {
        name: "cel.lib.ext.cel.bindings",
        version: LibraryVersion(0),
        overloads: &[],
        singletons: &[],
        types: Vec::new(),
        macros: macros::BINDINGS,
        validators: &[],
        partial: &[],
    }
}
