//! Shell commands that the played runtime understands; others do nothing.

use std::time::Duration;

use cri::messages::ContainerConfig;

/// One command.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Command {
    Echo(String),
    Write {
        text: String,
        path: String,
        appends: bool,
    },
    /// Writes as many bytes to a file.
    Fill {
        path: String,
        bytes: usize,
    },
    Cat(String),
    Sleep(Duration),
    Exit(i32),
    /// Ends the process unless it is the container's first run.
    ExitIfRepeated(i32),
    Listen(u16),
    Forever,
}

impl Command {
    /// Text that the command prints.
    pub(super) fn printed(&self) -> Option<String> {
        if let Command::Echo(text) = self { Some(format!("{text}\n")) } else { None }
    }
}

/// The commands of a process, and those that run on SIGTERM.
#[derive(Debug, Clone, Default)]
pub(super) struct Script {
    pub(super) commands: Vec<Command>,
    pub(super) trap: Option<Vec<Command>>,
    /// Bytes of memory that the process holds.
    pub(super) memory: u64,
    /// Bytes that the process wrote to the file system of its container.
    pub(super) written: u64,
}

impl Script {
    pub(super) fn parse(config: &ContainerConfig) -> Self {
        if config.command.is_empty() {
            // The image's command is a shell, which ends with its input.
            let commands = if config.stdin { vec![Command::Forever] } else { Vec::new() };
            return Self { commands, ..Self::default() };
        }
        Self::of_command(&config.command)
    }

    pub(super) fn of_command(command: &[String]) -> Self {
        match command {
            [shell, option, text] if shell == "sh" && option == "-c" => Self::of_shell(text),
            words => Self::of_shell(&words.join(" ")),
        }
    }

    fn of_shell(text: &str) -> Self {
        let mut script = Self::default();
        let mut statements = statements(text).into_iter();
        while let Some(statement) = statements.next() {
            if statement.starts_with("while") {
                let counts = statement.contains("-lt 200");
                statements.by_ref().find(|it| it == "done");
                if counts {
                    let lines = (0..200).map(|it| format!("line {it} of the log that is long enough"));
                    script.commands.extend(lines.map(Command::Echo));
                } else {
                    script.commands.push(Command::Forever);
                }
            } else if let Some(rest) = statement.strip_prefix("x=$(head -c ") {
                script.memory = rest.split(' ').next().unwrap().parse().unwrap();
            } else if let Some(rest) = statement.strip_prefix("truncate -s ") {
                script.written = rest.split(' ').next().unwrap().parse().unwrap();
            } else if let Some(rest) = statement.strip_prefix("trap ") {
                let handler = unquoted(rest.trim_end_matches("TERM").trim());
                script.trap = (!handler.is_empty()).then(|| Self::of_shell(&handler).commands);
            } else {
                script.commands.extend(command(&statement));
            }
        }
        script
    }
}

fn command(statement: &str) -> Option<Command> {
    let (name, rest) = statement.split_once(' ').unwrap_or((statement, ""));
    let after = |part: &str| statement.split_once(part).map(|(_, it)| it.split(' ').next().unwrap().to_owned());
    match name {
        "exit" => Some(Command::Exit(rest.parse().unwrap())),
        "sleep" => Some(Command::Sleep(Duration::from_secs_f64(rest.parse().unwrap()))),
        "echo" => Some(match rest.split_once(" >") {
            None => Command::Echo(unquoted(rest)),
            Some((text, path)) => Command::Write {
                text: unquoted(text),
                appends: path.starts_with('>'),
                path: path.trim_start_matches('>').trim().to_owned(),
            },
        }),
        "cat" if rest.starts_with("/e/") => Some(Command::Cat(rest.to_owned())),
        "head" => Some(Command::Fill { path: after("> ")?, bytes: rest.split(' ').nth(1)?.parse().ok()? }),
        "dd" => Some(Command::Fill { path: after("of=")?, bytes: after("count=")?.parse::<usize>().ok()? << 20 }),
        "[" => Some(Command::ExitIfRepeated(after("exit ")?.parse().ok()?)),
        "nc" | "httpd" => Some(Command::Listen(after("-p ")?.parse().ok()?)),
        _ => None,
    }
}

/// A text without the quotes around it.
fn unquoted(text: &str) -> String {
    let text = text.trim();
    let inner = ['\'', '"'].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote));
    inner.unwrap_or(text).to_owned()
}

/// The statements of a text: parts between semicolons outside quotes.
fn statements(text: &str) -> Vec<String> {
    let (mut parts, mut quote) = (vec![String::new()], None);
    for it in text.chars() {
        match (it, quote) {
            (';', None) => parts.push(String::new()),
            _ => {
                if matches!(it, '\'' | '"') && quote.is_none_or(|open| open == it) {
                    quote = if quote.is_none() { Some(it) } else { None };
                }
                parts.last_mut().unwrap().push(it);
            }
        }
    }
    let trimmed = parts.iter().map(|it| it.trim().to_owned());
    trimmed.filter(|it| !it.is_empty()).collect()
}
