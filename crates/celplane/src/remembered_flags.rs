//! Flags of `celplane up` that belong to its data: nodes, devices, ranges. A start without them uses those of the last one.
//!
//! Feature gates are not among them: they belong to a process, and a start without the flag resets a gate to
//! its default. Nodes and devices that vanish because a flag was omitted would take allocated claims with them.
//! Flags on the command line override stored ones, and `--forget-flags` drops those.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context as _, Result};
use api::json::{self, Value};

const FILE: &str = "flags.json";

/// The flags that are stored, and whether they name a file.
const FLAGS: &[(&str, bool)] = &[
    ("nodes", false),
    ("node_template", true),
    ("devices", false),
    ("simulation", true),
    ("container_events", false),
    ("adopt_nodes", false),
    ("load_balancer_range", false),
    ("scheduler_config", true),
    ("controllers", false),
    ("runtime_config", false),
    ("service_cluster_ip_range", false),
    ("service_node_port_range", false),
];

/// A flag with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flag {
    name: &'static str,
    value: String,
}

impl Flag {
    fn text(&self) -> String {
        format!("--{}={}", self.name.replace('_', "-"), self.value)
    }
}

/// The flags of a command line that are worth remembering.
pub(crate) fn given(matches: &clap::ArgMatches) -> Vec<Flag> {
    let mut flags = Vec::new();
    for (name, is_file) in FLAGS {
        let is_given = matches.try_contains_id(name).unwrap_or(false)
            && matches.value_source(name) == Some(clap::parser::ValueSource::CommandLine);
        let Some(values) = matches.get_raw(name).filter(|_| is_given) else { continue };
        let texts: Vec<String> = values.map(|value| value.to_string_lossy().into_owned()).collect();
        let mut value = texts.join(",");
        if *is_file && let Ok(path) = std::path::absolute(&value) {
            value = path.display().to_string();
        }
        flags.push(Flag { name, value });
    }
    flags
}

/// Returns the flags of the last start on a data directory; those of missing files are omitted.
pub(crate) fn read(directory: &Path) -> Vec<Flag> {
    let text = std::fs::read(directory.join(FILE)).ok();
    let Some(Value::Object(fields)) = text.and_then(|text| json::parse(&text).ok()) else { return Vec::new() };
    let known = FLAGS.iter().filter_map(|(name, is_file)| {
        let value = fields.get(name)?.as_str()?.to_owned();
        (!is_file || Path::new(&value).exists()).then_some(Flag { name, value })
    });
    known.collect()
}

/// Keeps flags with the data.
pub(crate) fn save(directory: &Path, flags: &[Flag]) -> Result<()> {
    let path = directory.join(FILE);
    let fields = flags.iter().map(|flag| (flag.name.into(), flag.value.as_str().into())).collect();
    let text = json::to_pretty_string(&Value::Object(json::Object::from_distinct(fields)), "  ");
    let draft = directory.join("flags.json.new");
    std::fs::write(&draft, text)
        .and_then(|()| std::fs::rename(&draft, &path))
        .with_context(|| format!("cannot write `{}`", path.display()))
}

/// Returns the command line with stored flags that it does not contain, and a message about them.
pub(crate) fn complete(
    arguments: Vec<OsString>,
    given: &[Flag],
    remembered: &[Flag],
) -> (Vec<OsString>, Option<String>) {
    let missing: Vec<&Flag> = remembered.iter().filter(|it| !given.iter().any(|own| own.name == it.name)).collect();
    if missing.is_empty() {
        return (arguments, None);
    }
    let texts: Vec<String> = missing.iter().map(|flag| flag.text()).collect();
    let note = format!("Using flags of the last start: {} (--forget-flags drops them)", texts.join(" "));
    let mut complete = arguments;
    complete.extend(texts.into_iter().map(OsString::from));
    (complete, Some(note))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flag(name: &'static str, value: &str) -> Flag {
        Flag { name, value: value.to_owned() }
    }

    #[test]
    fn missing_flags_are_completed_and_given_ones_win() {
        let remembered = [flag("nodes", "2"), flag("devices", "grid:4x4")];
        let line = || vec![OsString::from("celplane"), OsString::from("up")];
        let (complete, note) = super::complete(line(), &[flag("nodes", "5")], &remembered);
        assert_eq!(complete, ["celplane", "up", "--devices=grid:4x4"]);
        assert_eq!(note.unwrap(), "Using flags of the last start: --devices=grid:4x4 (--forget-flags drops them)");
        assert_eq!(super::complete(line(), &[], &[]), (line(), None));
    }

    #[test]
    fn flags_are_kept_with_the_data() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read(directory.path()), []);
        let gone = flag("simulation", "/nowhere/rules.yaml");
        save(directory.path(), &[flag("nodes", "2"), gone]).unwrap();
        assert_eq!(read(directory.path()), [flag("nodes", "2")], "a file that is gone is left out");
        std::fs::write(directory.path().join(FILE), "[").unwrap();
        assert_eq!(read(directory.path()), []);
    }
}
