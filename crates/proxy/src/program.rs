//! Programs of the system: `nft`, `conntrack` and `ip`, with limits on time and output.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::MemfdFlags;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

/// Time limit of a program.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Most bytes of an error that are read.
const ERROR_BYTES_MAX: u64 = 4 << 10;
/// Directories of programs beside those of the caller's `PATH`: not every user has the administrator's.
const MORE_DIRECTORIES: &str = ":/usr/sbin:/sbin:/usr/local/sbin";

/// A failure of a program.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The program is not installed or may not be run.
    #[error("cannot run `{program}`")]
    Start {
        /// The program.
        program: &'static str,
        /// The reason.
        source: std::io::Error,
    },
    /// The input cannot be prepared, or pipes broke.
    #[error("cannot communicate with `{program}`")]
    Pipe {
        /// The program.
        program: &'static str,
        /// The reason.
        source: std::io::Error,
    },
    /// The program took too long and was killed.
    #[error("`{program}` did not end within {} s", TIMEOUT.as_secs())]
    Timeout {
        /// The program.
        program: &'static str,
    },
    /// The program reported an error.
    #[error("`{program}` failed: {message}")]
    Failed {
        /// The program.
        program: &'static str,
        /// The beginning of its error output, on one line.
        message: String,
    },
}

/// Runs a program with an input, and returns at most `bytes_max` of its output. It is killed after a minute. The program starts with its
/// complete input: it outlives this process, and must not take the beginning of a transaction for the whole.
///
/// # Errors
/// The program cannot be run, fails, or takes too long.
pub async fn run(
    program: &'static str,
    arguments: &[&str],
    input: String,
    bytes_max: u64,
) -> Result<String, ProgramError> {
    let running = run_unlimited(program, arguments, input, bytes_max);
    tokio::time::timeout(TIMEOUT, running).await.unwrap_or(Err(ProgramError::Timeout { program }))
}

async fn run_unlimited(
    program: &'static str,
    arguments: &[&str],
    text: String,
    bytes_max: u64,
) -> Result<String, ProgramError> {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(MORE_DIRECTORIES);
    let start = Command::new(program)
        .args(arguments)
        .env("PATH", path)
        .stdin(input(&text).map_err(|source| ProgramError::Pipe { program, source })?)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A Ctrl-C is for the proxy, which then removes its table.
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let mut child = start.map_err(|source| ProgramError::Start { program, source })?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (output, error) = tokio::try_join!(read(stdout, bytes_max), read(stderr, ERROR_BYTES_MAX))
        .map_err(|source| ProgramError::Pipe { program, source })?;
    let status = child.wait().await.map_err(|source| ProgramError::Pipe { program, source })?;
    if status.success() {
        return Ok(output);
    }
    let lines: Vec<&str> = error.lines().map(str::trim).filter(|it| !it.is_empty()).take(3).collect();
    let message = if lines.is_empty() { status.to_string() } else { lines.join("; ") };
    Err(ProgramError::Failed { program, message })
}

/// A file in memory with the whole input, which ends with its last reader. The end of a pipe would be that of its writer: if this process
/// were killed while it writes, `nft` would commit the statements that it has read.
fn input(text: &str) -> std::io::Result<Stdio> {
    if text.is_empty() {
        return Ok(Stdio::null());
    }
    let mut file = File::from(rustix::fs::memfd_create("celplane-input", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file.into())
}

/// Reads to the end, and keeps the beginning.
async fn read(stream: Option<impl AsyncRead + Unpin>, bytes_max: u64) -> std::io::Result<String> {
    let Some(mut stream) = stream else { return Ok(String::new()) };
    let mut kept = Vec::new();
    (&mut stream).take(bytes_max).read_to_end(&mut kept).await?;
    // The program must not block on a full pipe.
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Ok(String::from_utf8_lossy(&kept).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn output_is_limited_and_errors_are_named() {
        assert_eq!(run("cat", &[], "x".repeat(100_000), 3).await.unwrap(), "xxx");
        let failed = run("sh", &["-c", "echo first >&2; echo second >&2; exit 3"], String::new(), 9).await.unwrap_err();
        assert_eq!(failed.to_string(), "`sh` failed: first; second");
        let missing = run("no-such-program", &[], String::new(), 9).await.unwrap_err();
        assert_eq!(missing.to_string(), "cannot run `no-such-program`");
    }
}
