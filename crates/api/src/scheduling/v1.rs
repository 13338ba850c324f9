//! `scheduling.k8s.io/v1`: priorities.

use crate::json::Text;
use crate::view::object;

object! {
    /// A name for a priority.
    pub struct PriorityClass("scheduling.k8s.io", "v1") {
        pub value: i32,
        pub global_default: bool,
        pub description: Text,
        pub preemption_policy: Option<Text>,
    }
}
