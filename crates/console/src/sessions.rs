//! One-time codes and sessions.
//!
//! The code stands in the fragment of the printed URL, which browsers do not send: the page exchanges it for a session key. A code is
//! valid once; the next one is printed when it has been used.

use locks::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// A session without a request for this long ends.
const IDLE_MAX: Duration = Duration::from_secs(60 * 60);
/// A session ends after this time in any case.
const AGE_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// Number of open sessions; a further one replaces the one that was idle for longest.
const SESSIONS_MAX: usize = 16;
/// Requests of a session that are being served, streams included.
const REQUESTS_MAX: usize = 24;

type Digest = [u8; 32];

/// An open session.
#[derive(Debug)]
pub(crate) struct Session {
    opened: Instant,
    used: Mutex<Instant>,
    ended: watch::Sender<bool>,
    /// Requests that are being served.
    pub(crate) requests: Arc<Semaphore>,
    /// Held by the one long computation of a session.
    pub(crate) heavy: Arc<Semaphore>,
    /// Held by the short computations of a session.
    pub(crate) light: Arc<Semaphore>,
}

impl Session {
    fn new(now: Instant) -> Self {
        Self {
            opened: now,
            used: Mutex::new(now),
            ended: watch::channel(false).0,
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
            heavy: Arc::new(Semaphore::new(1)),
            light: Arc::new(Semaphore::new(2)),
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        *self.ended.borrow()
            || now.duration_since(self.opened) >= AGE_MAX
            || now.duration_since(*self.used.lock()) >= IDLE_MAX
    }

    /// Returns when the session has ended: by logout, replacement, age or idleness.
    pub(crate) async fn over(self: Arc<Self>) {
        let mut ended = self.ended.subscribe();
        loop {
            let now = Instant::now();
            if self.is_over(now) {
                return;
            }
            let last = self.opened.checked_add(AGE_MAX);
            let idle = self.used.lock().checked_add(IDLE_MAX);
            let next = last.into_iter().chain(idle).min().unwrap_or(now);
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                changed = ended.changed() => if changed.is_err() { return },
            }
        }
    }
}

/// The sessions and the code of a console.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    code: Option<Digest>,
    open: HashMap<Digest, Arc<Session>>,
}

fn digest_of(text: &str) -> Digest {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    bytes
}

/// 256 random bits as hexadecimal digits; none if the system has no randomness.
fn random_text() -> Option<String> {
    let mut bytes = [0_u8; 32];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Sessions {
    /// Replaces the code and returns the new one.
    pub(crate) fn new_code(&self) -> Option<String> {
        let code = random_text()?;
        self.inner.lock().code = Some(digest_of(&code));
        Some(code)
    }

    /// Exchanges the code for the key of a new session. A code that is wrong leaves the right one valid: it cannot be guessed.
    pub(crate) fn exchange(&self, code: &str) -> Option<String> {
        // Digests are compared, so the time of the comparison reveals nothing about the code.
        let given = digest_of(code);
        let now = Instant::now();
        let mut inner = self.inner.lock();
        if inner.code != Some(given) {
            return None;
        }
        let key = random_text()?;
        inner.code = None;
        inner.open.retain(|_, session| !session.is_over(now));
        if inner.open.len() >= SESSIONS_MAX {
            let idlest = inner.open.iter().min_by_key(|(_, session)| *session.used.lock()).map(|(key, _)| *key);
            if let Some(session) = idlest.and_then(|key| inner.open.remove(&key)) {
                session.ended.send_replace(true);
            }
        }
        inner.open.insert(digest_of(&key), Arc::new(Session::new(now)));
        Some(key)
    }

    /// The session of a key, which counts as used now.
    pub(crate) fn find(&self, key: &str) -> Option<Arc<Session>> {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        let key = digest_of(key);
        let session = inner.open.get(&key)?.clone();
        if session.is_over(now) {
            inner.open.remove(&key);
            return None;
        }
        *session.used.lock() = now;
        Some(session)
    }

    /// Ends a session and its streams.
    pub(crate) fn end(&self, key: &str) {
        if let Some(session) = self.inner.lock().open.remove(&digest_of(key)) {
            session.ended.send_replace(true);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn code_is_valid_once() {
        let sessions = Sessions::default();
        let code = sessions.new_code().unwrap();
        assert!(sessions.exchange("wrong").is_none());
        let key = sessions.exchange(&code).unwrap();
        assert!(sessions.find(&key).is_some());
        assert!(sessions.exchange(&code).is_none());
        assert!(sessions.find(&code).is_none(), "a code is no key");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_session_ends() {
        let sessions = Sessions::default();
        let key = sessions.exchange(&sessions.new_code().unwrap()).unwrap();
        tokio::time::advance(IDLE_MAX / 2).await;
        let session = sessions.find(&key).unwrap();
        tokio::time::advance(IDLE_MAX / 2).await;
        assert!(sessions.find(&key).is_some(), "it was used meanwhile");
        session.clone().over().await;
        assert!(sessions.find(&key).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn busy_session_ends_by_age() {
        let sessions = Sessions::default();
        let key = sessions.exchange(&sessions.new_code().unwrap()).unwrap();
        let mut uses = 0;
        while sessions.find(&key).is_some() {
            tokio::time::advance(IDLE_MAX / 2).await;
            uses += 1;
        }
        assert_eq!(uses, 24);
    }

    #[tokio::test(start_paused = true)]
    async fn ended_session_ends_its_streams() {
        let sessions = Sessions::default();
        let key = sessions.exchange(&sessions.new_code().unwrap()).unwrap();
        let stream = tokio::spawn(sessions.find(&key).unwrap().over());
        tokio::task::yield_now().await;
        sessions.end(&key);
        stream.await.unwrap();
        assert!(sessions.find(&key).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn further_session_replaces_the_idlest() {
        let sessions = Sessions::default();
        let open = || sessions.exchange(&sessions.new_code().unwrap()).unwrap();
        let keys: Vec<String> = (0..SESSIONS_MAX).map(|_| open()).collect();
        tokio::time::advance(Duration::from_secs(1)).await;
        for key in keys.iter().skip(1) {
            assert!(sessions.find(key).is_some());
        }
        open();
        assert!(sessions.find(keys.first().unwrap()).is_none());
        assert!(sessions.find(keys.last().unwrap()).is_some());
    }
}
