//! Color on a terminal, plain text elsewhere.

use std::fmt;
use std::io::IsTerminal as _;

/// Whether to use color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    is_colored: bool,
}

/// When to use color.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum When {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Style {
    /// The style of standard output.
    pub(crate) fn of_stdout(when: When) -> Self {
        let no_color = || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_colored = match when {
            When::Always => true,
            When::Never => false,
            When::Auto => std::io::stdout().is_terminal() && !no_color(),
        };
        Style { is_colored }
    }

    fn paint(self, code: &str, text: impl fmt::Display) -> String {
        if self.is_colored { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_string() }
    }

    /// Something that is as it should be.
    pub(crate) fn good(self, text: impl fmt::Display) -> String {
        self.paint("32", text)
    }

    /// Something that is not.
    pub(crate) fn bad(self, text: impl fmt::Display) -> String {
        self.paint("31", text)
    }

    /// Something to look at.
    pub(crate) fn warning(self, text: impl fmt::Display) -> String {
        self.paint("33", text)
    }

    /// A title.
    pub(crate) fn bold(self, text: impl fmt::Display) -> String {
        self.paint("1", text)
    }

    /// Something less important.
    pub(crate) fn dim(self, text: impl fmt::Display) -> String {
        self.paint("2", text)
    }
}
