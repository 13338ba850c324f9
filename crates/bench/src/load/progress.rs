//! A progress line on a terminal; no output elsewhere.

use std::io::{IsTerminal as _, Write as _};

/// The line.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
}

impl Default for Progress {
    fn default() -> Self {
        Self { shown: std::io::stderr().is_terminal() }
    }
}

impl Progress {
    /// Shows a step and how much of it is done.
    pub fn show(&self, step: &str, done: u64, of: u64) {
        if !self.shown {
            return;
        }
        const WIDTH: u64 = 30;
        let filled = done.min(of).saturating_mul(WIDTH).checked_div(of).unwrap_or(0);
        let bar: String = (0..WIDTH).map(|at| if at < filled { '█' } else { '·' }).collect();
        let mut error = std::io::stderr();
        // Errors of the progress line are ignored.
        let _ = write!(error, "\r\x1b[K{step:<28} {bar} {done}/{of}");
        let _ = error.flush();
    }

    /// Takes the line away.
    pub fn clear(&self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
