//! Color on a terminal, plain text elsewhere.

use std::fmt;
use std::io::IsTerminal as _;

/// The use of color in output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    is_colored: bool,
}

/// Use of color in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ColorChoice {
    /// If standard output is a terminal and `NO_COLOR` is not set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Style {
    /// The style of standard output.
    pub(crate) fn of_stdout(when: ColorChoice) -> Self {
        let no_color = || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_colored = match when {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => std::io::stdout().is_terminal() && !no_color(),
        };
        Style { is_colored }
    }

    fn paint(self, code: &str, text: impl fmt::Display) -> String {
        if self.is_colored { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_string() }
    }

    /// A good result.
    pub(crate) fn good(self, text: impl fmt::Display) -> String {
        self.paint("32", text)
    }

    /// A bad result.
    pub(crate) fn bad(self, text: impl fmt::Display) -> String {
        self.paint("31", text)
    }

    /// A warning.
    pub(crate) fn warning(self, text: impl fmt::Display) -> String {
        self.paint("33", text)
    }

    /// A title.
    pub(crate) fn bold(self, text: impl fmt::Display) -> String {
        self.paint("1", text)
    }

    /// A detail.
    pub(crate) fn dim(self, text: impl fmt::Display) -> String {
        self.paint("2", text)
    }
}
