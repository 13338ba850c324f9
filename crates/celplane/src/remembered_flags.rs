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

/// Kind of a stored flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Has a value.
    Value,
    /// Has no value.
    Switch,
    /// Names a file or directory.
    Path,
    /// Names a file without which nodes would differ.
    File,
}

/// The flags that are stored.
const FLAGS: &[(&str, Kind)] = &[
    ("nodes", Kind::Value),
    ("node_template", Kind::File),
    ("devices", Kind::Value),
    ("simulation", Kind::File),
    ("container_events", Kind::Value),
    ("adopt_nodes", Kind::Value),
    ("load_balancer_range", Kind::Value),
    ("system_pods", Kind::Switch),
    ("pod_manifest_path", Kind::Path),
    ("file_check_frequency", Kind::Value),
    ("scheduler_config", Kind::File),
    ("controllers", Kind::Value),
    ("node_monitor_period", Kind::Value),
    ("node_monitor_grace_period", Kind::Value),
    ("node_startup_grace_period", Kind::Value),
    ("node_eviction_rate", Kind::Value),
    ("secondary_node_eviction_rate", Kind::Value),
    ("large_cluster_size_threshold", Kind::Value),
    ("unhealthy_zone_threshold", Kind::Value),
    ("runtime", Kind::Value),
    ("cluster_cidr", Kind::Value),
    ("node_cidr_mask_size", Kind::Value),
    ("cni_conf_dir", Kind::Path),
    ("cni_bin_dir", Kind::Path),
    ("pod_mtu", Kind::Value),
    ("proxy_mode", Kind::Value),
    ("nodeport_addresses", Kind::Value),
    ("masquerade_all", Kind::Switch),
    ("proxy_table", Kind::Value),
    ("node_routes", Kind::Switch),
    ("node_log_ports", Kind::Value),
    ("runtime_config", Kind::Value),
    ("service_cluster_ip_range", Kind::Value),
    ("service_node_port_range", Kind::Value),
];

/// A flag with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flag {
    name: &'static str,
    kind: Kind,
    value: String,
}

impl Flag {
    fn text(&self) -> String {
        let name = self.name.replace('_', "-");
        match self.kind {
            Kind::Switch => format!("--{name}"),
            _ => format!("--{name}={}", self.value),
        }
    }

    /// Fails if the file of the flag does not exist: a start without it would change nodes.
    fn check(&self) -> Result<()> {
        if self.kind != Kind::File || Path::new(&self.value).try_exists()? {
            return Ok(());
        }
        let flag = self.text();
        let text = format!(
            "the last start used {flag}, and this file does not exist: restore it, set the flag, or use --forget-flags"
        );
        Err(std::io::Error::new(std::io::ErrorKind::NotFound, text).into())
    }
}

/// The flags of a command line that are worth remembering.
pub(crate) fn given(matches: &clap::ArgMatches) -> Vec<Flag> {
    let mut flags = Vec::new();
    for (name, kind) in FLAGS.iter().copied() {
        let is_given = matches.try_contains_id(name).unwrap_or(false)
            && matches.value_source(name) == Some(clap::parser::ValueSource::CommandLine);
        let Some(values) = matches.get_raw(name).filter(|_| is_given) else { continue };
        let texts: Vec<String> = values.map(|value| value.to_string_lossy().into_owned()).collect();
        let mut value = texts.join(",");
        if matches!(kind, Kind::Path | Kind::File)
            && let Ok(path) = std::path::absolute(&value)
        {
            value = path.display().to_string();
        }
        flags.push(Flag { name, kind, value });
    }
    flags
}

/// Returns the flags of the last start on a data directory.
///
/// # Errors
/// The file cannot be read: a start without the flags would change nodes.
pub(crate) fn read(directory: &Path) -> Result<Vec<Flag>> {
    let path = directory.join(FILE);
    let advice = || format!("cannot use `{}`; --forget-flags starts without stored flags", path.display());
    let text = match std::fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        // Not the path of a directory: the start itself names that.
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => return Ok(Vec::new()),
        text => text.with_context(advice)?,
    };
    let fields = json::parse(&text).with_context(advice)?;
    let known = FLAGS.iter().copied().filter_map(|(name, kind)| {
        let value = fields.get(name)?.as_str()?.to_owned();
        Some(Flag { name, kind, value })
    });
    Ok(known.collect())
}

/// Keeps flags with the data, instead of those of earlier starts.
pub(crate) fn save(directory: &Path, flags: &[Flag]) -> Result<()> {
    let path = directory.join(FILE);
    let context = || format!("cannot write `{}`", path.display());
    if flags.is_empty() && !path.try_exists().with_context(context)? {
        return Ok(());
    }
    let fields = flags.iter().map(|flag| (flag.name.into(), flag.value.as_str().into())).collect();
    let text = json::to_pretty_string(&Value::Object(json::Object::from_distinct(fields)), "  ");
    let draft = directory.join("flags.json.new");
    std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, &path)).with_context(context)
}

/// Returns the command line with stored flags that it does not contain, and a message about them.
///
/// # Errors
/// The file of a stored flag does not exist.
pub(crate) fn complete(
    arguments: Vec<OsString>,
    given: &[Flag],
    remembered: &[Flag],
) -> Result<(Vec<OsString>, Option<String>)> {
    let missing: Vec<&Flag> = remembered.iter().filter(|it| !given.iter().any(|own| own.name == it.name)).collect();
    if missing.is_empty() {
        return Ok((arguments, None));
    }
    missing.iter().try_for_each(|flag| flag.check())?;
    let texts: Vec<String> = missing.iter().map(|flag| flag.text()).collect();
    let note = format!("Using flags of the last start: {} (--forget-flags drops them)", texts.join(" "));
    let mut complete = arguments;
    complete.extend(texts.into_iter().map(OsString::from));
    Ok((complete, Some(note)))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn flag(name: &'static str, value: &str) -> Flag {
        let kind = FLAGS.iter().find(|it| it.0 == name).unwrap().1;
        Flag { name, kind, value: value.to_owned() }
    }

    fn line() -> Vec<OsString> {
        vec![OsString::from("celplane"), OsString::from("up")]
    }

    #[test]
    fn missing_flags_are_completed_and_given_ones_win() {
        let remembered = [flag("nodes", "2"), flag("devices", "grid:4x4"), flag("system_pods", "true")];
        let (complete, note) = super::complete(line(), &[flag("nodes", "5")], &remembered).unwrap();
        assert_eq!(complete, ["celplane", "up", "--devices=grid:4x4", "--system-pods"]);
        let expected = "Using flags of the last start: --devices=grid:4x4 --system-pods (--forget-flags drops them)";
        assert_eq!(note.unwrap(), expected);
        assert_eq!(super::complete(line(), &[], &[]).unwrap(), (line(), None));
    }

    #[test]
    fn missing_files_are_refused_unless_overridden() {
        for name in ["node_template", "simulation", "scheduler_config"] {
            let remembered = [flag("nodes", "2"), flag(name, "/nowhere/file.yaml")];
            let error = super::complete(line(), &[], &remembered).unwrap_err().to_string();
            let flag_text = flag(name, "/nowhere/file.yaml").text();
            assert_eq!(
                error,
                format!(
                    "the last start used {flag_text}, and this file does not exist: restore it, set the flag, \
                     or use --forget-flags"
                )
            );
            let (complete, _) = super::complete(line(), &[flag(name, "other.yaml")], &remembered).unwrap();
            assert_eq!(complete, ["celplane", "up", "--nodes=2"]);
        }
    }

    #[test]
    fn flags_are_kept_with_the_data() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read(directory.path()).unwrap(), []);
        let flags = [flag("nodes", "2"), flag("simulation", "/nowhere/rules.yaml"), flag("system_pods", "true")];
        save(directory.path(), &flags).unwrap();
        assert_eq!(read(directory.path()).unwrap(), flags);
        // A start without flags leaves none for the next one.
        save(directory.path(), &[]).unwrap();
        assert_eq!(read(directory.path()).unwrap(), []);
        std::fs::write(directory.path().join(FILE), "[").unwrap();
        let error = read(directory.path()).unwrap_err().to_string();
        assert!(error.ends_with("--forget-flags starts without stored flags"), "{error}");
    }

    #[test]
    fn stored_flags_are_parsed_as_they_were_given() {
        let parse = |line: Vec<OsString>| crate::Arguments::command().try_get_matches_from(line).unwrap();
        let mut line = line();
        let given_flags = ["--nodes=2", "--controllers=*,-job-controller", "--system-pods", "--runtime=simulated"];
        let network = ["--cluster-cidr=10.9.0.0/16", "--node-cidr-mask-size=25", "--node-routes", "--pod-mtu=1400"];
        let times = ["--node-monitor-grace-period=12s", "--node-eviction-rate=100", "--pod-manifest-path=/x/pods"];
        line.extend(given_flags.into_iter().chain(network).chain(times).map(OsString::from));
        let matches = parse(line.clone());
        let flags = given(matches.subcommand_matches("up").unwrap());
        let (complete, _) = super::complete(super::tests::line(), &[], &flags).unwrap();
        assert_eq!(complete.len(), line.len(), "{complete:?}");
        assert_eq!(given(parse(complete).subcommand_matches("up").unwrap()), flags);
    }

    #[test]
    fn stored_flags_are_flags_of_the_command() {
        let command = crate::Arguments::command();
        let up = command.find_subcommand("up").unwrap();
        for (name, kind) in FLAGS {
            let argument = up.get_arguments().find(|it| it.get_id() == name).unwrap_or_else(|| panic!("{name}"));
            let takes_value = argument.get_action().takes_values();
            assert_eq!(takes_value, *kind != Kind::Switch, "{name}");
            assert_eq!(argument.get_long().unwrap(), name.replace('_', "-"));
        }
    }
}
