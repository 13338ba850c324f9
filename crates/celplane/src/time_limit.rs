//! A limit on the time that an offline command takes.
//!
//! Files may come from strangers: a command that judges them in a pipeline must end. The process ends as a whole, because
//! it holds nothing that would have to be cleaned up.

use std::time::Duration;

use crate::output::complain_line;

/// Exit code of a command that could not judge its input.
const EXIT_CODE: i32 = 2;

/// The `--timeout` flag.
#[derive(clap::Args)]
pub(crate) struct TimeLimit {
    /// Exit with code 2 after this time, such as `90s`; 0 for no limit
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse)]
    timeout: Duration,
}

fn parse(text: &str) -> anyhow::Result<Duration> {
    if text == "0" { Ok(Duration::ZERO) } else { crate::waiting_time::parse(text) }
}

impl TimeLimit {
    /// Ends the process when the time is over, unless it has ended by then.
    pub(crate) fn start(&self) -> std::io::Result<()> {
        let timeout = self.timeout;
        if !timeout.is_zero() {
            std::thread::Builder::new().name("time-limit".to_owned()).spawn(move || {
                std::thread::sleep(timeout);
                complain_line!("error: not finished after {} s; --timeout sets another limit", timeout.as_secs_f64());
                std::process::exit(EXIT_CODE);
            })?;
        }
        Ok(())
    }
}
