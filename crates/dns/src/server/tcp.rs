//! Queries over TCP: each message behind its length.
//!
//! Connections are bounded in number, in total and per client address. A connection ends when it is idle, when its client does not read,
//! or with a message that is too long.

use locks::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use telemetry::logs::chain;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::{Response, Server};
use crate::listen::Clients;
use crate::message::QUERY_BYTES_MAX;
use crate::metrics::Transport;

/// Maximum number of open connections.
pub(crate) const CONNECTIONS_MAX: usize = 256;
/// Maximum number of open connections of one client address.
pub(crate) const CONNECTIONS_PER_CLIENT_MAX: usize = 32;
/// One address may have this part of the free places, so that a few greedy addresses leave some for others.
const FREE_PART: usize = 4;
/// Time limit for a query to arrive, and for a response to be taken.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Queries of one connection that wait for other servers. Further ones are not read.
const PIPELINE_MAX: usize = 16;
/// Pause after a failure of the listener, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);
const LENGTH_BYTES: usize = 2;

/// Number of connections of each client address.
type Counts = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// An open connection.
struct Place {
    clients: Counts,
    address: IpAddr,
}

impl Place {
    fn take(clients: &Counts, address: IpAddr) -> Option<Self> {
        let mut counts = clients.lock();
        let all: usize = counts.values().sum();
        let own = counts.get(&address).copied().unwrap_or(0);
        let free = CONNECTIONS_MAX.saturating_sub(all);
        if own >= CONNECTIONS_PER_CLIENT_MAX.min(free.div_ceil(FREE_PART)) {
            return None;
        }
        counts.insert(address, own.saturating_add(1));
        Some(Self { clients: clients.clone(), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.clients.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// Serves until the future is dropped, which ends all connections.
pub(crate) async fn serve(listener: TcpListener, clients: Clients, server: Arc<Server>) {
    let (counts, mut connections) = (Counts::default(), JoinSet::new());
    loop {
        while connections.try_join_next().is_some() {}
        let (stream, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(err = %chain(&error), "Could not accept a connection");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        if !clients.contain(client.ip()) {
            continue;
        }
        let Some(place) = Place::take(&counts, client.ip()) else { continue };
        let server = server.clone();
        connections.spawn(async move {
            let _ = connection(stream, client.ip(), &server).await;
            drop(place);
        });
    }
}

/// Takes the first message out of a buffer; an error if it is too long.
fn take_message(buffer: &mut Vec<u8>) -> Result<Option<Vec<u8>>, ()> {
    let Some(length) = buffer.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes(*length));
    if length > QUERY_BYTES_MAX {
        return Err(());
    }
    let end = LENGTH_BYTES.saturating_add(length);
    if buffer.len() < end {
        return Ok(None);
    }
    let rest = buffer.split_off(end);
    let message = std::mem::replace(buffer, rest).split_off(LENGTH_BYTES);
    Ok(Some(message))
}

async fn connection(mut stream: TcpStream, client: IpAddr, server: &Arc<Server>) -> std::io::Result<()> {
    let (mut reader, mut writer) = stream.split();
    let (mut buffer, mut waiting) = (Vec::with_capacity(512), JoinSet::new());
    let mut chunk = vec![0; 1024];
    let mut deadline = idle_deadline();
    let mut is_open = true;
    loop {
        while waiting.len() < PIPELINE_MAX
            && let Ok(Some(message)) = take_message(&mut buffer)
        {
            deadline = idle_deadline();
            match server.respond(&message, client, Transport::Tcp) {
                Response::Nothing => return Ok(()),
                Response::Ready(response) => send(&mut writer, &response).await?,
                Response::Later(response) => drop(waiting.spawn(response)),
            }
        }
        let is_too_long = take_message(&mut Vec::from(buffer.get(..LENGTH_BYTES).unwrap_or_default())).is_err();
        if is_too_long || (!is_open && waiting.is_empty()) {
            return Ok(());
        }
        tokio::select! {
            read = reader.read(&mut chunk), if is_open && waiting.len() < PIPELINE_MAX => match read? {
                // A client may close its side and wait for responses.
                0 => is_open = false,
                length => buffer.extend(chunk.get(..length).unwrap_or_default()),
            },
            Some(response) = waiting.join_next() => {
                deadline = idle_deadline();
                send(&mut writer, &response.map_err(std::io::Error::other)?).await?;
            },
            () = tokio::time::sleep_until(deadline), if waiting.is_empty() => return Ok(()),
        }
    }
}

fn idle_deadline() -> Instant {
    Instant::now().checked_add(IDLE_TIMEOUT).unwrap_or_else(Instant::now)
}

async fn send(writer: &mut tokio::net::tcp::WriteHalf<'_>, response: &[u8]) -> std::io::Result<()> {
    let length = u16::try_from(response.len()).map_err(std::io::Error::other)?;
    let message = [&length.to_be_bytes(), response].concat();
    timeout(IDLE_TIMEOUT, writer.write_all(&message)).await.map_err(std::io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_one_by_one() {
        let mut buffer = vec![0, 2, 7, 8, 0, 0, 0];
        assert_eq!(take_message(&mut buffer), Ok(Some(vec![7, 8])));
        assert_eq!(take_message(&mut buffer), Ok(Some(Vec::new())));
        assert_eq!((take_message(&mut buffer), buffer.as_slice()), (Ok(None), [0].as_slice()));
        assert_eq!(take_message(&mut vec![255, 255, 1]), Err(()));
    }

    #[test]
    fn connections_of_one_client_are_bounded() {
        let (clients, one) = (Counts::default(), IpAddr::from([192, 0, 2, 1]));
        let mut places: Vec<_> = (0..CONNECTIONS_PER_CLIENT_MAX).map(|_| Place::take(&clients, one).unwrap()).collect();
        assert!(Place::take(&clients, one).is_none());
        assert!(Place::take(&clients, IpAddr::from([192, 0, 2, 2])).is_some());
        places.pop();
        assert!(Place::take(&clients, one).is_some());
        for last in 2..=16 {
            let other = IpAddr::from([192, 0, 2, last]);
            let taken: Vec<_> = std::iter::from_fn(|| Place::take(&clients, other)).collect();
            assert!(!taken.is_empty(), "{last}");
            places.extend(taken);
        }
    }
}
