//! Modules use only modules of lower layers: the table "layers" in `docs/conventions.md` is the rule.
//!
//! What does not hold yet stands in [`EXCEPTIONS`]: each line must still be needed, so the list only shrinks.

use super::{Findings, Tree};
use crate::modules::Modules;
use anyhow::{Result, bail};

const TABLE: &str = "docs/conventions.md";
const EXCEPTIONS: &str = "xtask/layer_exceptions.txt";

pub(super) fn check(tree: &Tree, findings: &mut Findings) -> Result<()> {
    let exceptions: Vec<String> = match tree.files.iter().any(|file| file == EXCEPTIONS) {
        true => tree.text(EXCEPTIONS)?.lines().filter(|line| is_exception(line)).map(str::to_owned).collect(),
        false => Vec::new(),
    };
    let mut needed = Vec::new();
    for (name, layers) in table(&tree.text(TABLE)?) {
        let modules = Modules::read(&tree.root, &tree.files, &name)?;
        for problem in problems(&name, &modules, &layers) {
            match problem {
                Problem::Edge { edge, files } if exceptions.contains(&edge) => {
                    needed.push(edge);
                    drop(files);
                }
                Problem::Edge { edge, files } => {
                    findings.errors.push(format!("{edge}: not a lower layer ({TABLE}, section 2): {files}"));
                }
                Problem::Unlisted(module) => {
                    findings.errors.push(format!("{TABLE}: module `{module}` of `{name}` is in no layer"));
                }
            }
        }
    }
    for exception in exceptions.iter().filter(|exception| !needed.contains(exception)) {
        findings.errors.push(format!("{EXCEPTIONS}: `{exception}` is no longer needed: remove the line"));
    }
    Ok(())
}

fn is_exception(line: &str) -> bool {
    !line.trim().is_empty() && !line.starts_with('#')
}

enum Problem {
    /// A module uses one that is not below it.
    Edge { edge: String, files: String },
    /// A module is not in the table.
    Unlisted(String),
}

fn problems(name: &str, modules: &Modules, layers: &[Vec<String>]) -> Vec<Problem> {
    let layer_of = |module: &str| layers.iter().position(|layer| layer.iter().any(|it| it == module));
    let unlisted = modules.names.iter().filter(|module| layer_of(module).is_none());
    let mut problems: Vec<Problem> = unlisted.map(|module| Problem::Unlisted(module.clone())).collect();
    for ((from, to), files) in &modules.edges {
        let (Some(own), Some(used)) = (layer_of(from), layer_of(to)) else { continue };
        if used >= own {
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            problems.push(Problem::Edge { edge: format!("{name}: {from} -> {to}"), files: files.join(", ") });
        }
    }
    problems
}

/// The layers of a crate, the lowest first; none if the table does not name it.
pub(crate) fn of_crate(tree: &Tree, name: &str) -> Result<Vec<Vec<String>>> {
    let table = table(&tree.text(TABLE)?);
    if table.is_empty() {
        bail!("no table `layers of` in {TABLE}");
    }
    Ok(table.into_iter().find(|(of, _)| of == name).map(|(_, layers)| layers).unwrap_or_default())
}

/// The rows of the table: a crate, and its layers, divided by `<`.
fn table(markdown: &str) -> Vec<(String, Vec<Vec<String>>)> {
    let rows = markdown.lines().skip_while(|line| !line.starts_with("| layers of |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| {
        let mut cells = row.trim_matches('|').split('|');
        let name = quoted(cells.next()?).next()?.to_owned();
        let layers = cells.next()?.split('<').map(|layer| quoted(layer).map(str::to_owned).collect());
        Some((name, layers.collect()))
    })
    .collect()
}

/// The words in backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
| layers of | lowest first |
|---|---|
| `server` | `wire` `clock` < `access` < `verbs` |

| `other` | `table` |
";

    fn check_text(verbs: &str, clock: &str) -> Vec<String> {
        let files =
            [("lib.rs", "mod wire;\nmod clock;\nmod access;\nmod verbs;\n"), ("verbs.rs", verbs), ("clock.rs", clock)];
        let files: Vec<(String, String)> = files.map(|(file, text)| (file.to_owned(), text.to_owned())).to_vec();
        let (name, layers) = table(TEXT).remove(0);
        let problems = problems(&name, &Modules::parse(&files), &layers);
        let edges = problems.into_iter().filter_map(|problem| match problem {
            Problem::Edge { edge, .. } => Some(edge),
            Problem::Unlisted(_) => None,
        });
        edges.collect()
    }

    #[test]
    fn table_is_read_layer_by_layer() {
        assert_eq!(table(TEXT).len(), 1);
        let (name, layers) = table(TEXT).remove(0);
        assert_eq!((name.as_str(), layers.len()), ("server", 3));
        assert_eq!(layers[0], ["wire", "clock"]);
    }

    #[test]
    fn use_of_a_higher_or_equal_layer_is_a_problem() {
        assert_eq!(check_text("use crate::wire::A;\nuse crate::access::B;\n", ""), [""; 0]);
        assert_eq!(check_text("", "use crate::verbs::run;\n"), ["server: clock -> verbs"]);
        assert_eq!(check_text("", "use crate::wire::A;\n"), ["server: clock -> wire"]);
    }
}
