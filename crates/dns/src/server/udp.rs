//! Queries in datagrams.

use std::sync::Arc;
use std::time::Duration;

use telemetry::logs::chain;
use tokio::net::UdpSocket;
use tracing::warn;

use super::{Response, Server};
use crate::listen::Clients;
use crate::message::QUERY_BYTES_MAX;
use crate::metrics::Transport;

/// Pause after a failure of the socket.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until the future is dropped. Several can share a socket.
pub(crate) async fn serve(socket: Arc<UdpSocket>, clients: Clients, server: Arc<Server>) {
    // One byte more, so that queries that are too long are recognized.
    let mut packet = vec![0; QUERY_BYTES_MAX.saturating_add(1)];
    loop {
        let (length, client) = match socket.recv_from(&mut packet).await {
            Ok(received) => received,
            Err(error) => {
                warn!(err = %chain(&error), "Could not receive a query");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        if !clients.contain(client.ip()) {
            continue;
        }
        let bytes = packet.get(..length).unwrap_or_default();
        match server.respond(bytes, client.ip(), Transport::Udp) {
            Response::Nothing => {}
            // A client that cannot be reached is not an error of this server.
            Response::Ready(response) => drop(socket.send_to(&response, client).await),
            Response::Later(response) => {
                let socket = socket.clone();
                // Bounded by the clients that may wait.
                tokio::spawn(async move { drop(socket.send_to(&response.await, client).await) });
            }
        }
    }
}
