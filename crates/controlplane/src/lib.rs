//! A Kubernetes control plane as a library: the API server with its data directory, certificates and store, and the
//! components that run in its process.
//!
//! Nothing here reads command lines or prints: the binary `celplane` does, and tests start clusters without it.
//!
//! - [`settings`] and [`control_plane`]: an API server on a port, and its clean end.
//! - [`components`]: controllers, scheduler and nodes in the same process; [`load`] fills them from a dump.
//! - [`throw_away`]: all of it in memory, without a socket.
//! - [`roles`]: one component, in this process or alone over a kubeconfig.
//! - [`placement`]: the proposals' fields in annotations.
//! - [`data_directory`], [`rotation`], [`file_limit`]: files and limits of the process.

pub mod components;
pub mod control_plane;
pub mod data_directory;
mod etcd_format;
pub mod file_limit;
pub mod gates;
pub mod load;
pub mod nodes;
pub mod placement;
mod ready;
pub mod replicas;
pub mod roles;
pub mod rotation;
pub mod settings;
mod system_objects;
pub mod throw_away;
mod upgrade;

pub use components::Components;
pub use control_plane::ControlPlane;
pub use settings::ServerSettings;
pub use throw_away::TemporaryPlane;
