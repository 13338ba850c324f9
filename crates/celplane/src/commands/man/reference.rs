//! The reference of all commands and flags as Markdown: `docs/flags.md`.

use std::fmt::Write as _;

use clap::{Arg, Command};

/// Start of the page.
const TITLE: &str = "# Flags

This page lists all commands of `celplane` with their arguments and flags. `celplane man --markdown` generates it; do not edit it. `celplane COMMAND --help` prints the same
texts for one command, and `celplane man --dir DIRECTORY` writes manual pages.
";

/// Returns the page.
pub(super) fn markdown(program: &Command) -> String {
    let mut page = TITLE.to_owned();
    for command in program.get_subcommands() {
        add(command, program.get_name(), &mut page);
    }
    page
}

fn add(command: &Command, parent: &str, page: &mut String) {
    if command.is_hide_set() {
        return;
    }
    let name = format!("{parent} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    // A string can always be written to.
    let _ = write!(page, "\n## {name}\n\n{}.\n", cell(about.trim_end_matches('.')));
    let arguments: Vec<&Arg> = command.get_arguments().filter(|it| !it.is_hide_set() && is_own(it)).collect();
    let mut headings: Vec<Option<&str>> = vec![None];
    for argument in &arguments {
        if !headings.contains(&argument.get_help_heading()) {
            headings.push(argument.get_help_heading());
        }
    }
    for heading in headings {
        let rows: Vec<String> =
            arguments.iter().filter(|it| it.get_help_heading() == heading).map(|it| row(it)).collect();
        if rows.is_empty() {
            continue;
        }
        if let Some(heading) = heading {
            let _ = write!(page, "\n{heading}:\n");
        }
        let _ = write!(page, "\n| flag | default | description |\n|---|---|---|\n{}\n", rows.join("\n"));
    }
    for command in command.get_subcommands() {
        add(command, &name, page);
    }
}

/// Whether the argument is not one that every command has.
fn is_own(argument: &Arg) -> bool {
    !matches!(argument.get_id().as_str(), "help" | "version")
}

fn row(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let mut flag = match (argument.get_short(), argument.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}"),
        (Some(short), None) => format!("-{short}"),
        (None, Some(long)) => format!("--{long}"),
        (None, None) => String::new(),
    };
    if argument.is_positional() || argument.get_action().takes_values() {
        let separator = if flag.is_empty() { "" } else { " " };
        let value = if names.is_empty() { argument.get_id().as_str().to_uppercase() } else { names.join(" ") };
        let _ = write!(flag, "{separator}{value}");
    }
    let defaults: Vec<String> = match argument.is_hide_default_value_set() || !argument.get_action().takes_values() {
        true => Vec::new(),
        false => argument.get_default_values().iter().map(|it| it.to_string_lossy().into_owned()).collect(),
    };
    let default = match defaults.join(",") {
        text if text.is_empty() => String::new(),
        text => format!("`{}`", cell(&text)),
    };
    let mut help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let values = argument.get_possible_values();
    let values: Vec<&str> = values.iter().filter(|it| !it.is_hide_set()).map(|it| it.get_name()).collect();
    if !values.is_empty() && argument.get_action().takes_values() && values != ["true", "false"] {
        let _ = write!(help, " ({})", values.join(", "));
    }
    format!("| `{}` | {default} | {} |", cell(&flag), cell(&help))
}

/// A text inside a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn page_of_flags_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/flags.md");
        let page = std::fs::read_to_string(path).unwrap();
        let expected = super::markdown(&crate::Arguments::command());
        let differing = page.lines().zip(expected.lines()).find(|(known, expected)| known != expected);
        assert!(page == expected, "run `celplane man --markdown > docs/flags.md`: {differing:?}");
    }

    #[test]
    fn flags_are_rows_with_default_and_values() {
        let page = super::markdown(&crate::Arguments::command());
        for row in [
            "| `--nodes COUNT` |  | Number of simulated nodes; defaults to 3, or to 0 if this machine runs containers |",
            "| `--simulated-backends skip\\|fail` | `skip` | Calls to webhooks and aggregated APIs whose pods are simulated: \
             skip them, or fail as in Kubernetes (skip, fail) |",
            "| `-v, --v LEVEL` | `0` | Log verbosity |",
        ] {
            assert!(page.lines().any(|line| line == row), "{row}");
        }
        assert!(page.contains("\n## celplane store backup\n") && page.contains("\nPod network of real nodes:\n"));
        assert!(!page.contains("--detached"), "internal flags are omitted");
    }
}
