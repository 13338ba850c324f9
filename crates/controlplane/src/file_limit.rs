//! Limit of open files: every connection is one, and 1024 is the limit that most shells set.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Allows as many as the system lets us have.
pub fn raise() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // With the limit that there is, fewer clients can connect.
    let _ = setrlimit(Resource::Nofile, limit);
}
