//! Do the manifests agree with the table "may use" in `docs/conventions.md`?
//!
//! The table is the rule, development dependencies included: a new arrow between crates is a design
//! change, and begins there.

use super::{Findings, Kind, PURE_CRATES, Tree};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};

const TABLE: &str = "docs/conventions.md";

/// Packages that bring clocks, sockets, threads or an async runtime: not for crates that hold rules.
const NOT_FOR_PURE: &[&str] = &["async-std", "hyper", "mio", "reqwest", "smol", "tokio"];

/// Packages that a crate "must not know", where the table's words name one.
const NOT_FOR: &[(&str, &[&str])] = &[("cel", &["k8s-openapi", "kube", "serde", "serde_yaml"])];

#[derive(Debug, PartialEq, Eq)]
enum AllowedCrates {
    All,
    Only(BTreeSet<String>),
}

pub(super) fn check(tree: &Tree, findings: &mut Findings) -> Result<()> {
    let table = parse_table(&tree.text(TABLE)?).with_context(|| format!("no table `crate | may use` in {TABLE}"))?;
    for member in &tree.crates {
        let Some(may_use) = table.get(&member.name) else {
            findings.errors.push(format!("{TABLE}: crate `{}` is not in the table", member.name));
            continue;
        };
        for dependency in &member.dependencies {
            // A crate's tests may use the crate itself, with more features than its users see.
            let (name, package) = (&member.name, &dependency.package);
            if let (AllowedCrates::Only(allowed), Some(ours)) = (may_use, &dependency.ours)
                && !allowed.contains(ours)
                && ours != name
            {
                findings.errors.push(format!("{name}: may not use `{ours}` ({TABLE}, section 1)"));
            }
            if dependency.kind != Kind::Normal {
                continue;
            }
            if PURE_CRATES.contains(&name.as_str()) && NOT_FOR_PURE.contains(&package.as_str()) {
                findings.errors.push(format!("{name}: is pure and may not use `{package}`"));
            }
            if NOT_FOR.iter().any(|(of, packages)| of == name && packages.contains(&package.as_str())) {
                findings.errors.push(format!("{name}: must not know `{package}`"));
            }
        }
    }
    Ok(())
}

/// The table's rows by crate; a row may name several crates, `–` means none and `all` means any.
fn parse_table(markdown: &str) -> Option<BTreeMap<String, AllowedCrates>> {
    let mut lines = markdown.lines().skip_while(|line| !line.starts_with("| crate | may use |"));
    lines.next()?;
    let mut table = BTreeMap::new();
    for row in lines.skip(1).take_while(|line| line.starts_with('|')) {
        let mut cells = row.trim_matches('|').split('|');
        let (names, used) = (cells.next()?, cells.next()?);
        for name in quoted(names) {
            let may_use = if used.trim() == "all" {
                AllowedCrates::All
            } else {
                AllowedCrates::Only(quoted(used).map(str::to_owned).collect())
            };
            table.insert(name.to_owned(), may_use);
        }
    }
    Some(table)
}

/// The words in backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{Crate, Dependency};

    const TEXT: &str = "\
# Rooms

| crate | may use | must not know |
|---|---|---|
| `cel` | – | `JSON` |
| `store`, `telemetry` | – | what the bytes mean |
| `matching` | `cel` `cel-kubernetes` | scheduler |
| `celplane` | all | rules |

| `other` | table | here |
";

    fn only(names: &[&str]) -> AllowedCrates {
        AllowedCrates::Only(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn the_table_is_read_row_by_row_and_ends_at_the_empty_line() {
        let table = parse_table(TEXT).unwrap();
        assert_eq!(table.keys().collect::<Vec<_>>(), ["cel", "celplane", "matching", "store", "telemetry"]);
        assert_eq!(table["cel"], only(&[]));
        assert_eq!(table["telemetry"], only(&[]));
        assert_eq!(table["matching"], only(&["cel", "cel-kubernetes"]));
        assert_eq!(table["celplane"], AllowedCrates::All);
    }

    #[test]
    fn a_page_without_the_table_is_an_error() {
        assert_eq!(parse_table("| other | table |\n|---|---|\n"), None);
    }

    #[track_caller]
    fn check_dependency(of: &str, package: &str, ours: Option<&str>, kind: Kind, expected: &[&str]) {
        let folder = std::env::temp_dir().join(format!("xtask-dependencies-{}-{of}-{package}", std::process::id()));
        std::fs::create_dir_all(folder.join("docs")).unwrap();
        std::fs::write(folder.join(TABLE), TEXT).unwrap();
        let dependency = Dependency { package: package.to_owned(), ours: ours.map(str::to_owned), kind };
        let member = Crate { name: of.to_owned(), folder: folder.clone(), dependencies: vec![dependency] };
        let tree = Tree { root: folder.clone(), files: Vec::new(), crates: vec![member] };
        let mut findings = Findings::default();
        check(&tree, &mut findings).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        assert_eq!(findings.errors, expected);
    }

    #[test]
    fn an_arrow_outside_the_table_is_an_error_in_tests_too() {
        check_dependency("matching", "celplane-cel", Some("cel"), Kind::Normal, &[]);
        let refused = ["matching: may not use `store` (docs/conventions.md, section 1)"];
        check_dependency("matching", "celplane-store", Some("store"), Kind::Development, &refused);
        check_dependency("celplane", "celplane-store", Some("store"), Kind::Normal, &[]);
        check_dependency("store", "celplane-store", Some("store"), Kind::Development, &[]);
    }

    #[test]
    fn a_crate_outside_the_table_is_an_error() {
        let missing = ["docs/conventions.md: crate `scheduler` is not in the table"];
        check_dependency("scheduler", "anyhow", None, Kind::Normal, &missing);
    }

    #[test]
    fn pure_crates_have_no_runtime_but_their_tests_may() {
        let refused = ["matching: is pure and may not use `tokio`"];
        check_dependency("matching", "tokio", None, Kind::Normal, &refused);
        check_dependency("matching", "tokio", None, Kind::Development, &[]);
        check_dependency("store", "tokio", None, Kind::Normal, &[]);
        check_dependency("cel", "serde", None, Kind::Normal, &["cel: must not know `serde`"]);
        check_dependency("cel", "serde", None, Kind::Development, &[]);
    }
}
