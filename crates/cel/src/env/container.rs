//! Namespaces: where a name is looked for, most specific first.

use crate::syntax::ast::Name;

/// The namespace that an expression is written in.
#[derive(Clone, Debug, Default)]
pub struct Container {
    name: Option<Name>,
}

impl Container {
    /// The namespace with this name; an empty name is the global one.
    pub fn new(name: &str) -> Self {
        Container { name: (!name.is_empty()).then(|| name.into()) }
    }

    /// The namespace's name.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("")
    }

    /// Looks for a name in `a.b.c`, `a.b`, `a` and the global namespace, in this order; a leading dot names the global one only.
    pub fn resolve<T>(&self, name: &str, mut find: impl FnMut(&str) -> Option<T>) -> Option<T> {
        if let Some(global) = name.strip_prefix('.') {
            return find(global);
        }
        let mut scope = self.name.as_deref();
        while let Some(prefix) = scope {
            if let Some(found) = find(&format!("{prefix}.{name}")) {
                return Some(found);
            }
            scope = prefix.rsplit_once('.').map(|(outer, _)| outer);
        }
        find(name)
    }
}
