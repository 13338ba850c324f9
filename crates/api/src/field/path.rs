//! Paths of fields: `spec.tolerations[0].key`, `metadata.labels[a/b]`.

use std::fmt;

/// A field, as a step from its parent. Cheap to create, and rendered only on demand.
#[derive(Debug, Clone, Copy)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    /// The whole object; children are named without a point before them.
    Root,
    /// No path at all, which prints as `<nil>`.
    Nil,
    Name(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// The object itself; its children are `spec`, `metadata` and so on.
    pub const ROOT: Path<'static> = Path { parent: None, step: Step::Root };

    /// No path, which prints as `<nil>`.
    pub const NIL: Path<'static> = Path { parent: None, step: Step::Nil };

    /// A path that starts with `name`, which may hold points.
    #[must_use]
    pub const fn new(name: &'a str) -> Self {
        Path { parent: None, step: Step::Name(name) }
    }

    /// A field of this one.
    #[must_use]
    pub const fn child(&'a self, name: &'a str) -> Self {
        Path { parent: Some(self), step: Step::Name(name) }
    }

    /// An item of this list.
    #[must_use]
    pub const fn index(&'a self, index: usize) -> Self {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    /// An entry of this map.
    #[must_use]
    pub const fn key(&'a self, key: &'a str) -> Self {
        Path { parent: Some(self), step: Step::Key(key) }
    }

    fn is_start(&self) -> bool {
        matches!(self.step, Step::Root | Step::Nil)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parent = self.parent.filter(|parent| !parent.is_start());
        if let Some(parent) = parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Nil => f.write_str("<nil>"),
            Step::Name(name) if parent.is_some() => write!(f, ".{name}"),
            Step::Name(name) => f.write_str(name),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_print_as_kubernetes_prints_them() {
        let spec = Path::ROOT.child("spec");
        let list = spec.child("tolerations");
        let item = list.index(2);
        assert_eq!(item.child("key").to_string(), "spec.tolerations[2].key");
        assert_eq!(Path::new("metadata").child("labels").key("a/b").to_string(), "metadata.labels[a/b]");
        assert_eq!(Path::NIL.to_string(), "<nil>");
        assert_eq!(Path::ROOT.to_string(), "");
    }
}
