//! Flags as Go programs take them: `--name=value`, `--name value`, `-name=value`, `--name`.

use std::collections::HashMap;

use anyhow::{Context as _, Result, bail};

/// One flag of a command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Flag {
    /// The name, without dashes.
    pub(crate) name: String,
    /// The value, if one was given.
    pub(crate) value: Option<String>,
}

/// Parses command lines of Go programs.
pub(crate) struct Flags;

impl Flags {
    /// Reads all flags. `takes_value` is whether a known flag takes a value; an unknown one takes the next argument if
    /// that is not a flag itself.
    pub(crate) fn parse(given: &[String], takes_value: impl Fn(&str) -> Option<bool>) -> Result<Vec<Flag>> {
        let mut flags = Vec::new();
        let mut rest = given.iter().peekable();
        while let Some(argument) = rest.next() {
            let Some(flag) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else {
                bail!("unexpected argument `{argument}`");
            };
            if let Some((name, value)) = flag.split_once('=') {
                flags.push(Flag { name: name.to_owned(), value: Some(value.to_owned()) });
                continue;
            }
            let value = match takes_value(flag) {
                Some(false) => None,
                Some(true) => Some(rest.next().with_context(|| format!("flag needs an argument: --{flag}"))?.clone()),
                None => rest.next_if(|next| !next.starts_with('-')).cloned(),
            };
            flags.push(Flag { name: flag.to_owned(), value });
        }
        Ok(flags)
    }
}

/// The long flags of a subcommand, and whether each takes a value.
pub(crate) fn of_subcommand<'c>(command: &'c clap::Command, name: &str) -> Result<HashMap<&'c str, bool>> {
    let subcommand = command.find_subcommand(name).with_context(|| format!("no subcommand `{name}`"))?;
    let long = |argument: &'c clap::Arg| Some((argument.get_long()?, argument.get_action().takes_values()));
    Ok(subcommand.get_arguments().filter_map(long).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &[&str], expected: &[(&str, Option<&str>)]) {
        let given: Vec<String> = given.iter().map(ToString::to_string).collect();
        let known = |name: &str| match name {
            "on" => Some(false),
            "port" => Some(true),
            _ => None,
        };
        let flags = Flags::parse(&given, known).unwrap();
        let flags: Vec<(&str, Option<&str>)> = flags.iter().map(|it| (it.name.as_str(), it.value.as_deref())).collect();
        assert_eq!(flags, expected);
    }

    #[test]
    fn every_form_of_a_flag_is_read() {
        check(&["--port=1", "-port", "2"], &[("port", Some("1")), ("port", Some("2"))]);
        check(&["--on", "--port", "-1"], &[("on", None), ("port", Some("-1"))]);
        check(&["--other", "value", "--other", "--on"], &[("other", Some("value")), ("other", None), ("on", None)]);
        check(&["--a=b=c"], &[("a", Some("b=c"))]);
    }

    #[test]
    fn stray_arguments_are_errors() {
        assert!(Flags::parse(&["x".to_owned()], |_| None).is_err());
        assert!(Flags::parse(&["--port".to_owned()], |_| Some(true)).is_err());
    }
}
