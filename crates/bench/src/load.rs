//! Load for an API server: how many requests per second over TLS, how fast, and in how much memory?
//!
//! [`target`] starts the server or finds a running one, [`connection`] speaks HTTP/1.1 with as little work of its own as
//! possible, because it shares the machine with the server; [`pods`] prepares the bodies, [`workers`] send them,
//! [`watchers`] wait for events, [`reach`] asks how many of them there can be and [`tally`] whether each has its own;
//! [`plan`] says what is done in which order, and [`report`] shows it beside recorded figures; [`compare`] shows two
//! programs side by side.

pub mod compare;
pub mod connection;
pub mod latencies;
pub mod plan;
pub mod pods;
pub mod progress;
pub mod reach;
pub mod report;
pub mod tally;
pub mod target;
pub mod watchers;
pub mod workers;
