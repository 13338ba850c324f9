//! The scheduler's core: framework, plugins, queue, cache and one cycle. Pure: no clock, no network, no threads.
//!
//! A caller owns a [`Scheduler`], passes it the changes of the cluster, and requests decisions:
//!
//! ```text
//! set_node, remove_node, set_pod, remove_pod, set_object, remove_object     what the API says; in any order, as often as seen
//! schedule_one(now) -> Option<Attempt>                                      one attempt: bind here, or why not
//! bound(uid, now), binding_failed(uid, now)                                 what became of a decision
//! searched(result, now)                                                     what came of a search that was carried out aside
//! next_wake_up(now) -> Option<Duration>                                     when to ask again if nothing happens
//! ```
//!
//! `now` is the time since a moment of the caller's choice; it must not run backwards. In reading order:
//!
//! - [`framework`]: plugins and extension points; [`plugins`], one file each.
//! - [`cluster`]: nodes, pods and other objects as plugins see them.
//! - [`queue`]: waiting pods, and the events that wake them.
//! - [`cycle`], [`diagnosis`], [`preemption`]: one attempt, why it failed, and how to make room.
//! - [`aside`]: device searches in the background.
//! - [`explain`]: the result of every plugin for every node, and changes that would help.
//! - [`timing`]: how long plugins take, where the caller gives a clock.
//! - [`config`]: `KubeSchedulerConfiguration`. [`Scheduler`] ties everything together.

pub mod aside;
pub mod cluster;
mod complaints;
pub mod config;
pub mod cycle;
pub mod diagnosis;
pub mod explain;
pub mod framework;
mod memory;
pub mod plugins;
pub mod preemption;
pub mod profile;
pub mod queue;
mod random;
mod scheduler;
pub mod timing;
pub mod writes;

pub use complaints::Complaint;
pub use memory::Memory;
pub use profile::Profile;
pub use random::Random;
pub use scheduler::{Attempt, FitError, Outcome, Placement, Scheduler};
