//! Load for an API server: how many requests per second over TLS, how fast, and in how much memory?
//!
//! [`target`] starts the server or connects to a running one, [`connection`] implements HTTP/1.1 with little
//! work, because it shares the machine with the server; [`pods`] prepares the bodies, [`workers`] send them,
//! [`watchers`] wait for events, [`reach`] measures the maximum number of watchers and [`tally`] checks their
//! events; [`plan`] defines the steps, and [`report`] prints them next to recorded figures; [`compare`]
//! compares two programs.

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
