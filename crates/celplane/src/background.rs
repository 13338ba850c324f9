//! A control plane that stays when the command that started it has ended: `celplane up --wait`.
//!
//! The command starts itself again in a session of its own, shows what that one prints until it says that it is ready, and
//! leaves. Logs go to a file in the data directory.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};

/// Says that everything was printed that the command shows.
const READY: &str = "# ready";
/// Where the one in the background logs.
const LOG: &str = "celplane.log";

/// Starts this program again with the same arguments but for the flag that asked for it.
pub(crate) fn start(flag: &str, instead: &str, data_dir: &Path) -> Result<ExitCode> {
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
    let output = child.stdout.take().context("nothing can be read from the background")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        if line == READY {
            println!(
                "\nIt runs in the background as process {}. Its log is {}.\nTo end it: celplane down --data-dir {}",
                child.id(),
                path.display(),
                data_dir.display()
            );
            return Ok(ExitCode::SUCCESS);
        }
        println!("{line}");
    }
    child.wait()?;
    let mut said = String::new();
    let mut log = std::fs::File::open(&path)?;
    log.seek(SeekFrom::Start(before))?;
    log.read_to_string(&mut said)?;
    bail!("{}", said.trim().strip_prefix("error: ").unwrap_or(said.trim()))
}

/// Called by the one in the background: it gets a session of its own, so that a closed terminal does not end it.
pub(crate) fn detach() {
    // Fails only for a process that leads a group; then nobody ends the group but the user.
    let _ = rustix::process::setsid();
}

/// Tells the one who waits.
pub(crate) fn tell_ready() {
    // It may have been ended meanwhile.
    let _ = writeln!(std::io::stdout(), "{READY}").and_then(|()| std::io::stdout().flush());
}
