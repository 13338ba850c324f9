//! Do pure crates forbid themselves clock, file, socket, environment, process and thread?
//!
//! Each has a `clippy.toml` that bans the calls in [`BANNED`], with a reason; clippy enforces it.
//! Clippy reads only the nearest such file, so it must repeat the workspace's own settings.

use super::{Findings, PURE_CRATES, Tree};
use anyhow::{Context, Result};

/// Paths that every pure crate's `clippy.toml` must ban, as methods or as types.
const BANNED: &[&str] = &[
    "std::env::var",
    "std::env::var_os",
    "std::env::vars",
    "std::fs::File",
    "std::fs::OpenOptions",
    "std::fs::read",
    "std::fs::read_to_string",
    "std::fs::write",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::UdpSocket",
    "std::process::Command",
    "std::thread::sleep",
    "std::thread::spawn",
    "std::time::Instant::now",
    "std::time::SystemTime::now",
];

pub(super) fn check(tree: &Tree, findings: &mut Findings) -> Result<()> {
    let workspace = tree.text("clippy.toml")?;
    let pure = tree.crates.iter().filter(|member| PURE_CRATES.contains(&member.name.as_str()));
    for member in pure {
        let path = member.folder.join("clippy.toml");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                findings.errors.push(format!("{}: is pure and needs a clippy.toml", member.name));
                continue;
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        let problems = problems(&text, &workspace);
        findings.errors.extend(problems.into_iter().map(|problem| format!("{}/clippy.toml: {problem}", member.name)));
    }
    Ok(())
}

/// Returns the missing settings of a pure crate's `clippy.toml`, in addition to the workspace's.
fn problems(text: &str, workspace: &str) -> Vec<String> {
    let settings = workspace.lines().map(str::trim).filter(|line| line.starts_with("allow-"));
    let repeated = |setting: &&str| text.lines().any(|line| line.trim() == *setting);
    let mut problems: Vec<String> =
        settings.filter(|setting| !repeated(setting)).map(|setting| format!("lacks `{setting}`")).collect();
    let bans: Vec<Ban<'_>> = text.lines().filter_map(parse_ban).collect();
    for path in BANNED {
        if !bans.iter().any(|ban| ban.path == *path) {
            problems.push(format!("does not ban `{path}`"));
        }
    }
    let silent = bans.iter().filter(|ban| ban.reason.is_none_or(str::is_empty));
    problems.extend(silent.map(|ban| format!("bans `{}` without a reason", ban.path)));
    problems
}

struct Ban<'a> {
    path: &'a str,
    reason: Option<&'a str>,
}

/// Reads `{ path = "…", reason = "…" },`, the form of one ban on one line.
fn parse_ban(line: &str) -> Option<Ban<'_>> {
    let line = line.trim();
    line.starts_with('{').then_some(())?;
    Some(Ban { path: value_of("path", line)?, reason: value_of("reason", line) })
}

fn value_of<'a>(key: &str, line: &'a str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!("{key} = \""))?;
    rest.split_once('"').map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKSPACE: &str = "allow-unwrap-in-tests = true\n";

    fn complete() -> String {
        let bans = BANNED.iter().map(|path| format!("    {{ path = \"{path}\", reason = \"an argument\" }},\n"));
        format!("{WORKSPACE}disallowed-methods = [\n{}]\n", bans.collect::<String>())
    }

    #[test]
    fn a_complete_file_has_no_problems() {
        assert_eq!(problems(&complete(), WORKSPACE), [""; 0]);
    }

    #[test]
    fn a_missing_setting_is_named() {
        let text = complete().replace(WORKSPACE, "");
        assert_eq!(problems(&text, WORKSPACE), ["lacks `allow-unwrap-in-tests = true`"]);
    }

    #[test]
    fn a_missing_ban_is_named_and_a_longer_path_does_not_stand_in() {
        let text = complete().replace("\"std::env::var\"", "\"std::env::var_extra\"");
        assert_eq!(problems(&text, WORKSPACE), ["does not ban `std::env::var`"]);
    }

    #[test]
    fn a_ban_says_why() {
        let text = complete().replacen("reason = \"an argument\"", "reason = \"\"", 1);
        assert_eq!(problems(&text, WORKSPACE), ["bans `std::env::var` without a reason"]);
    }
}
