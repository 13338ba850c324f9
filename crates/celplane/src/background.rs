//! A control plane that stays when the command that started it has ended: `celplane up --wait`.
//!
//! The command starts itself again in a new session, forwards its output until it reports that it is ready, and
//! exits. Logs are written to a file in the data directory.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::output::print_line;

/// Marks the end of the forwarded output.
const READY: &str = "# ready";
/// Log file of the background process.
const LOG: &str = "celplane.log";

/// Starts this program again with the same arguments except for the flag that requested it.
pub(crate) fn start(flag: &str, instead: &str, data_dir: &Path) -> Result<ExitCode> {
    let is_new = !data_dir.exists();
    std::fs::create_dir_all(data_dir).with_context(|| format!("cannot create `{}`", data_dir.display()))?;
    let path = data_dir.join(LOG);
    let log = OpenOptions::new().create(true).append(true).open(&path);
    let log = log.with_context(|| format!("cannot write `{}`", path.display()))?;
    let before = log.metadata()?.len();
    let arguments = std::env::args_os().skip(1).map(|argument| match argument == *flag {
        true => OsString::from(instead),
        false => argument,
    });
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::from(log))
        .spawn()
        .context("cannot start in the background")?;
    let output = child.stdout.take().context("cannot read the output of the background process")?;
    // The command promises to wait until everything works, also where its own output cannot be written any more.
    let mut shown = Ok(());
    for line in BufReader::new(output).lines() {
        let line = line?;
        if line == READY {
            shown?;
            print_line!(
                "\nRunning in the background as process {}. Log file: {}\nTo stop it: celplane down --data-dir {}",
                child.id(),
                path.display(),
                data_dir.display()
            )?;
            return Ok(ExitCode::SUCCESS);
        }
        if shown.is_ok() {
            shown = print_line!("{line}");
        }
    }
    child.wait()?;
    let mut said = String::new();
    let mut log = std::fs::File::open(&path)?;
    log.seek(SeekFrom::Start(before))?;
    log.read_to_string(&mut said)?;
    if is_new {
        // A failed start leaves nothing behind; a directory with data stays, because it is not empty.
        let _ = std::fs::remove_file(&path).and_then(|()| std::fs::remove_dir(data_dir));
    }
    bail!("{}", said.trim().strip_prefix("error: ").unwrap_or(said.trim()))
}

/// Called by the background process: creates a new session, so that a closed terminal does not end it.
pub(crate) fn detach() {
    // Fails only for a process that leads a group; then only the user ends the group.
    let _ = rustix::process::setsid();
}

/// Notifies the waiting process.
pub(crate) fn report_ready() {
    // It may have been stopped meanwhile.
    let _ = writeln!(std::io::stdout(), "{READY}").and_then(|()| std::io::stdout().flush());
}
