//! What the host knows about its input: the sizes of strings, lists and maps that can be reached from variables.

use super::Size;
use crate::types::Type;

/// How large the input can be.
///
/// Asked only for what the expression itself does not tell; literals, for instance, are never asked for.
pub trait SizeHints {
    /// The size of what a path leads to, if anything is known about it.
    ///
    /// The path starts at a variable; it is empty for what no path leads to, such as the result of a function, and it
    /// starts with a step into a container where only the container has no path: the element of a list literal.
    fn size(&self, path: &[PathStep<'_>], of: &Type) -> Option<Size>;
}

/// One step on the way from a variable to a part of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathStep<'a> {
    /// A variable, by its full name; always the first step.
    Variable(&'a str),
    /// A variable that is written with a leading dot, because a comprehension has one of its name.
    ///
    /// The reference tells the two apart, so that its hosts know nothing about the latter.
    Shadowed(&'a str),
    /// A field of an object, or a key of a map that is selected like a field.
    Field(&'a str),
    /// An element of a list: `@items`.
    Items,
    /// The index of an element of a list: `@indices`.
    Indices,
    /// A key of a map: `@keys`.
    Keys,
    /// A value of a map: `@values`.
    Values,
}

/// Nothing is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHints;

impl SizeHints for NoHints {
    fn size(&self, _path: &[PathStep<'_>], _of: &Type) -> Option<Size> {
        None
    }
}
