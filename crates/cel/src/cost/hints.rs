//! Size hints of the host: the sizes of strings, lists and maps that are reachable from variables.

use super::Size;
use crate::types::Type;

/// Sizes of the input.
///
/// Called only for sizes that the expression itself does not determine; never for literals, for example.
pub trait SizeHints {
    /// The size of the value at a path, if it is known.
    ///
    /// The path starts at a variable; it is empty for values without a path, such as the result of a function,
    /// and it starts with a step into a container if only the container has no path: the element of a list
    /// literal.
    fn size(&self, path: &[PathStep<'_>], of: &Type) -> Option<Size>;
}

/// One step from a variable to a part of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathStep<'a> {
    /// A variable, by its full name; always the first step.
    Variable(&'a str),
    /// A variable that is written with a leading dot, because a comprehension has one of its name.
    ///
    /// The reference distinguishes the two, and its hosts have no sizes for the latter.
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
