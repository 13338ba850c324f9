//! The modules of a crate and the imports between them, read from the sources.
//!
//! Only the outermost modules count. Tests are left out: they may use anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};

/// The files that use a module, by user and used module.
pub(crate) type Edges = BTreeMap<(String, String), BTreeSet<String>>;

/// The modules of a crate and their imports.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    pub(crate) names: BTreeSet<String>,
    pub(crate) edges: Edges,
}

impl Modules {
    /// Reads a crate; `files` are all files of the project, relative to its root.
    pub(crate) fn read(root: &Path, files: &[String], name: &str) -> Result<Self> {
        let source = format!("crates/{name}/src/");
        let mut texts = Vec::new();
        for file in files.iter().filter(|file| file.starts_with(&source) && file.ends_with(".rs")) {
            let text = std::fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))?;
            texts.push((file.trim_start_matches(&source).to_owned(), text));
        }
        Ok(Self::parse(&texts))
    }

    /// The modules of a crate with these files, named as below `src/`.
    pub(crate) fn parse(files: &[(String, String)]) -> Self {
        let library = files.iter().find(|(file, _)| file == "lib.rs" || file == "main.rs");
        let library = library.map_or("", |(_, text)| text.as_str());
        let names: BTreeSet<String> = library.lines().filter_map(declared).map(str::to_owned).collect();
        let exported = exported(library, &names);
        let mut edges = Edges::new();
        for (file, text) in files {
            let module = file.split('/').next().unwrap_or(file).trim_end_matches(".rs");
            let is_test = file.ends_with("tests.rs") || file.contains("/tests/");
            if is_test || !names.contains(module) {
                continue;
            }
            for used in used(&without_tests(text)) {
                let used = exported.get(&used).unwrap_or(&used);
                if used != module && names.contains(used) {
                    edges.entry((module.to_owned(), used.clone())).or_default().insert(file.clone());
                }
            }
        }
        Self { names, edges }
    }

    /// The modules that one module uses, each with the number of files that do.
    pub(crate) fn used_by(&self, module: &str) -> Vec<(&str, usize)> {
        let own = self.edges.iter().filter(|((from, _), _)| from == module);
        own.map(|((_, to), files)| (to.as_str(), files.len())).collect()
    }

    /// The groups of modules that use each other in a circle, each sorted.
    pub(crate) fn cycles(&self) -> Vec<Vec<&str>> {
        let reach: BTreeMap<&str, BTreeSet<&str>> =
            self.names.iter().map(|name| (name.as_str(), self.reachable(name))).collect();
        let reaches = |from: &str, to: &str| reach.get(from).is_some_and(|reached| reached.contains(to));
        let mut cycles: Vec<Vec<&str>> = Vec::new();
        for name in self.names.iter().map(String::as_str).filter(|name| reaches(name, name)) {
            match cycles.iter_mut().find(|cycle| cycle.iter().any(|it| reaches(it, name) && reaches(name, it))) {
                Some(cycle) => cycle.push(name),
                None => cycles.push(vec![name]),
            }
        }
        cycles
    }

    fn reachable<'a>(&'a self, from: &'a str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut next = vec![from];
        while let Some(module) = next.pop() {
            for (used, _) in self.used_by(module) {
                if reached.insert(used) {
                    next.push(used);
                }
            }
        }
        reached
    }
}

/// The module that a line declares: `pub(crate) mod name;`.
fn declared(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub(crate) ").or_else(|| line.strip_prefix("pub ")).unwrap_or(line);
    line.strip_prefix("mod ")?.strip_suffix(';')
}

/// The names that a library exports from its modules: `pub use server::{Options, Server};`.
fn exported(library: &str, names: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut exported = BTreeMap::new();
    for statement in library.split(';') {
        let Some((_, path)) = statement.rsplit_once("pub use ") else { continue };
        let path = path.trim_start_matches("crate::").trim_start_matches("self::");
        let Some((module, items)) = path.split_once("::").filter(|(module, _)| names.contains(*module)) else {
            continue;
        };
        for item in words(items) {
            exported.insert(item.to_owned(), module.to_owned());
        }
    }
    exported
}

/// The names that stand behind `crate::` in a text, those of groups included.
fn used(text: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for rest in text.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            Some(group) => used.extend(first_names(group)),
            None => used.extend(words(rest).next().map(str::to_owned)),
        }
    }
    used
}

/// The first name of each path in a group: `a` and `c` of `a::b, c::{d, e}}`.
fn first_names(group: &str) -> Vec<String> {
    let (mut depth, mut is_first, mut names) = (0_usize, true, Vec::new());
    let mut name = String::new();
    for character in group.chars() {
        match character {
            '{' => depth = depth.saturating_add(1),
            '}' if depth == 0 => break,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => is_first = true,
            _ if character.is_alphanumeric() || character == '_' => {
                if is_first && depth == 0 {
                    name.push(character);
                }
                continue;
            }
            _ => {}
        }
        if !name.is_empty() {
            names.push(std::mem::take(&mut name));
            is_first = character == ',' && depth == 0;
        }
    }
    names.extend((!name.is_empty()).then_some(name));
    names
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_alphanumeric() && character != '_').filter(|word| !word.is_empty())
}

/// A text without comments and without what stands below `#[cfg(test)]` modules, which come last in a file.
fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let is_test = line.trim() == "#[cfg(test)]";
        if is_test && lines.peek().is_some_and(|next| next.starts_with("mod ") && next.ends_with('{')) {
            break;
        }
        if is_test {
            lines.next();
            continue;
        }
        kept.push_str(line.split("//").next().unwrap_or_default());
        kept.push('\n');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(files: &[(&str, &str)]) -> Modules {
        let files: Vec<(String, String)> =
            files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect();
        Modules::parse(&files)
    }

    #[test]
    fn imports_are_found_in_every_form() {
        let found = modules(&[
            ("lib.rs", "mod a;\npub mod b;\npub(crate) mod c;\nmod d;\npub use d::{One, Two};\n"),
            ("a.rs", "use crate::b::X;\nuse crate::{c::{b2, Y}, Two};\n// crate::a is a comment\n"),
            ("a/inner.rs", "fn f() { crate::b::g() }\n"),
            ("b.rs", "#[cfg(test)]\nmod tests {\n    use crate::c;\n}\n"),
            ("c/tests.rs", "use crate::a;\n"),
        ]);
        let edges: Vec<(&str, &str)> = found.edges.keys().map(|(from, to)| (from.as_str(), to.as_str())).collect();
        assert_eq!(edges, [("a", "b"), ("a", "c"), ("a", "d")]);
        assert_eq!(found.used_by("a"), [("b", 2), ("c", 1), ("d", 1)]);
        assert!(found.cycles().is_empty());
    }

    #[test]
    fn circles_are_found_as_a_whole() {
        let found = modules(&[
            ("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\n"),
            ("a.rs", "use crate::b;\n"),
            ("b.rs", "use crate::c;\n"),
            ("c.rs", "use crate::a;\n"),
            ("d.rs", "use crate::a;\n"),
        ]);
        assert_eq!(found.cycles(), [["a", "b", "c"]]);
    }
}
