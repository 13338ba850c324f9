//! Kubeconfigs for users with several clusters: named contexts, merged into the user's file.
//!
//! A merge edits text: entries of others stay byte for byte, comments included. What is written is read back first; a file
//! that is not written as kubectl writes it is left alone.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use api::json::Value;

/// The lists of a kubeconfig.
const LISTS: [&str; 3] = ["clusters", "contexts", "users"];

/// The name of the context of a cluster: `celplane`, or `celplane-NAME`.
pub(crate) fn context_name(cluster: Option<&str>) -> String {
    cluster.map_or_else(|| "celplane".to_owned(), |name| format!("celplane-{name}"))
}

/// The administrator's kubeconfig under another context name, which the names of cluster and user follow.
pub(crate) fn rename(kubeconfig: &str, context: &str) -> String {
    if context == "celplane" {
        return kubeconfig.to_owned();
    }
    let lines = kubeconfig.lines().map(|line| match line {
        "current-context: celplane" => format!("current-context: {context}"),
        "- name: celplane" => format!("- name: {context}"),
        "    cluster: celplane" => format!("    cluster: {context}"),
        "    user: admin" => format!("    user: {context}-admin"),
        "- name: admin" => format!("- name: {context}-admin"),
        other => other.to_owned(),
    });
    lines.map(|line| line + "\n").collect()
}

/// The file that kubectl would change: the first of `KUBECONFIG`, else the user's own.
pub(crate) fn users_file() -> Result<PathBuf> {
    let list = std::env::var_os("KUBECONFIG").unwrap_or_default();
    if let Some(path) = std::env::split_paths(&list).find(|path| !path.as_os_str().is_empty()) {
        return Ok(path);
    }
    let home = std::env::var_os("HOME").context("neither KUBECONFIG nor HOME is set")?;
    Ok(PathBuf::from(home).join(".kube/config"))
}

/// Adds the entries of a kubeconfig to a file, in place of older ones of the same names, and makes its context current.
///
/// # Errors
/// The file is left as it was where it cannot be read, or not be changed without changing what others wrote.
pub(crate) fn merge_into(path: &Path, own: &str) -> Result<()> {
    let context = || format!("cannot merge into `{}`", path.display());
    // A link stays a link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let existing = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(context),
    };
    let merged = merge(&existing, own).with_context(context)?;
    if merged == existing {
        return Ok(());
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).with_context(context)?;
    }
    apiserver::serving::certificates::write_private(&path, &merged).with_context(context)
}

/// The text of a kubeconfig with the entries of another one.
fn merge(existing: &str, own: &str) -> Result<String> {
    if existing.trim().is_empty() {
        return Ok(own.to_owned());
    }
    let before = parse(existing)?;
    let added = parse(own)?;
    let mut text = existing.to_owned();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    for list in LISTS {
        text = merge_list(&text, own, list, &names(&added, list))?;
    }
    let current = added.text("current-context");
    text = set_current(&text, current);
    // All previous entries, except older ones of the same names, must be present and unchanged.
    let after = parse(&text).context("the result could not be read")?;
    for list in LISTS {
        let own_names = names(&added, list);
        let foreign = |value: &Value| -> Vec<Value> {
            let is_foreign =
                |it: &&Value| !it.str_at(&["name"]).is_some_and(|it| own_names.iter().any(|own| own == it));
            value.list(list).iter().filter(is_foreign).cloned().collect()
        };
        let is_added = own_names.iter().all(|name| names(&after, list).contains(name));
        if foreign(&before) != foreign(&after) || !is_added {
            bail!("its list `{list}` is not written as kubectl writes it; use `kubectl config view --flatten` instead");
        }
    }
    Ok(text)
}

fn parse(text: &str) -> Result<Value> {
    let (mut documents, error) = api::yaml::parse_documents(text);
    if let Some(error) = error {
        bail!("{}", error.message);
    }
    match (documents.pop(), documents.is_empty()) {
        (Some(document), true) => Ok(document.value),
        _ => bail!("it does not hold one document"),
    }
}

fn names(config: &Value, list: &str) -> Vec<String> {
    config.list(list).iter().filter_map(|it| it.str_at(&["name"])).map(ToOwned::to_owned).collect()
}

/// The lines of a list: from the line of its name to the next line that belongs to something else.
fn list_lines(lines: &[&str], list: &str) -> Option<(usize, usize)> {
    let is_name = |line: &&str| line.strip_prefix(list).is_some_and(|rest| rest.starts_with(':'));
    let start = lines.iter().position(is_name)?;
    let is_inside = |line: &&str| line.starts_with([' ', '-', '#']) || line.trim().is_empty();
    let inside = lines.iter().skip(start).skip(1).take_while(|line| is_inside(line)).count();
    Some((start, start.saturating_add(1).saturating_add(inside)))
}

/// The text with the items of one list of `own`, without older items of these names.
fn merge_list(text: &str, own: &str, list: &str, replaced: &[String]) -> Result<String> {
    let own_lines: Vec<&str> = own.lines().collect();
    let Some((start, end)) = list_lines(&own_lines, list) else { bail!("there is no list `{list}`") };
    let added = own_lines.get(start.saturating_add(1)..end).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let mut out: Vec<String> = Vec::new();
    let Some((start, end)) = list_lines(&lines, list) else {
        out.extend(lines.iter().map(|line| (*line).to_owned()));
        out.push(format!("{list}:"));
        out.extend(added.iter().map(|line| (*line).to_owned()));
        return Ok(joined(&out));
    };
    let head = lines.get(start).copied().unwrap_or_default();
    let value = head.split_once(':').map_or("", |(_, value)| value.trim());
    if !matches!(value, "" | "[]" | "null" | "~") {
        bail!("its list `{list}` is not written as kubectl writes it; use `kubectl config view --flatten` instead");
    }
    let body = lines.get(start.saturating_add(1)..end).unwrap_or_default();
    let indent = body.iter().find(|line| line.trim_start().starts_with("- ")).map_or(0, |line| indent_of(line));
    out.extend(lines.iter().take(start).map(|line| (*line).to_owned()));
    out.push(format!("{list}:"));
    for item in split_items(body, indent) {
        let is_name = |line: &&str| {
            let line = line.trim_start().trim_start_matches("- ");
            line.strip_prefix("name:")
                .is_some_and(|name| replaced.iter().any(|it| it == name.trim().trim_matches(['"', '\''])))
        };
        let is_replaced = item.iter().any(|line| is_own_level(line, indent) && is_name(line));
        if !is_replaced {
            out.extend(item.iter().map(|line| (*line).to_owned()));
        }
    }
    out.extend(added.iter().map(|line| format!("{}{line}", " ".repeat(indent))));
    out.extend(lines.iter().skip(end).map(|line| (*line).to_owned()));
    Ok(joined(&out))
}

fn indent_of(line: &str) -> usize {
    line.len().saturating_sub(line.trim_start().len())
}

/// Whether a line is a field of an item, not of something inside of it.
fn is_own_level(line: &str, indent: usize) -> bool {
    let at = indent_of(line);
    at == indent && line.trim_start().starts_with("- ") || at == indent.saturating_add(2)
}

/// The items of a list, each with its lines; lines before the first are a separate item.
fn split_items<'l>(body: &[&'l str], indent: usize) -> Vec<Vec<&'l str>> {
    let mut items: Vec<Vec<&str>> = Vec::new();
    for line in body {
        let begins = indent_of(line) == indent && line.trim_start().starts_with("- ");
        match items.last_mut() {
            Some(item) if !begins => item.push(line),
            _ => items.push(vec![line]),
        }
    }
    items
}

fn set_current(text: &str, context: &str) -> String {
    let line = format!("current-context: {context}");
    let mut is_set = false;
    let mut out: Vec<String> = Vec::new();
    for old in text.lines() {
        let is_it = old.starts_with("current-context:");
        out.push(if is_it { line.clone() } else { old.to_owned() });
        is_set |= is_it;
    }
    if !is_set {
        out.push(line);
    }
    joined(&out)
}

fn joined(lines: &[String]) -> String {
    lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "apiVersion: v1\nkind: Config\ncurrent-context: celplane\nclusters:\n- name: celplane\n  cluster:\n    \
        server: https://127.0.0.1:6443\ncontexts:\n- name: celplane\n  context:\n    cluster: celplane\n    user: admin\n\
        users:\n- name: admin\n  user:\n    client-key-data: eA==\n";

    const FOREIGN: &str = "apiVersion: v1\n# mine\nclusters:\n- cluster:\n    server: https://prod   # do not touch\n  name: prod\n\
        contexts:\n- context: {cluster: prod, user: me}\n  name: prod\ncurrent-context: prod\nkind: Config\npreferences: {}\n\
        users:\n- name: me\n  user:\n    token: 'a b'\n";

    #[test]
    fn entries_are_added_and_foreign_lines_stay() {
        let own = rename(OWN, "celplane-a");
        let merged = merge(FOREIGN, &own).unwrap();
        for line in FOREIGN.lines().filter(|line| !line.starts_with("current-context")) {
            assert!(merged.lines().any(|it| it == line), "{line}\n{merged}");
        }
        let value = parse(&merged).unwrap();
        assert_eq!(value.str_at(&["current-context"]), Some("celplane-a"));
        assert_eq!(names(&value, "clusters"), ["prod", "celplane-a"]);
        assert_eq!(names(&value, "users"), ["me", "celplane-a-admin"]);
        assert_eq!(merge(&merged, &own).unwrap(), merged, "a second time changes nothing");
        let moved = own.replace("6443", "7443");
        let again = merge(&merged, &moved).unwrap();
        assert_eq!(names(&parse(&again).unwrap(), "clusters"), ["prod", "celplane-a"]);
        assert!(again.contains("7443") && !again.contains("6443"), "{again}");
    }

    #[test]
    fn empty_lists_and_files_are_filled() {
        assert_eq!(merge("", OWN).unwrap(), OWN);
        let empty = "apiVersion: v1\nkind: Config\nclusters: []\ncontexts: null\n";
        let merged = parse(&merge(empty, OWN).unwrap()).unwrap();
        assert_eq!((names(&merged, "contexts").len(), names(&merged, "users").len()), (1, 1));
        let indented = "clusters:\n  - name: prod\n    cluster: {server: x}\n";
        let merged = merge(indented, OWN).unwrap();
        assert_eq!(names(&parse(&merged).unwrap(), "clusters"), ["prod", "celplane"], "{merged}");
    }

    #[test]
    fn other_styles_are_refused() {
        let flow = "clusters: [{name: prod, cluster: {server: x}}]\n";
        assert!(merge(flow, OWN).unwrap_err().to_string().contains("kubectl config view --flatten"));
        assert!(merge("a: [1\n", OWN).is_err());
    }
}
