//! Events of the core group.

use super::ObjectReference;
use crate::json::Text;
use crate::time::{MicroTime, Timestamp};
use crate::view::{object, view};

object! {
    /// An occurrence that concerns an object.
    pub struct Event("", "v1") {
        pub involved_object: ObjectReference,
        pub reason: Text,
        pub message: Text,
        pub source: EventSource,
        pub first_timestamp: Option<Timestamp>,
        pub last_timestamp: Option<Timestamp>,
        pub count: i32,
        #[serde(rename = "type")]
        pub event_type: Text,
        pub event_time: Option<MicroTime>,
        pub series: Option<EventSeries>,
        pub action: Text,
        pub related: Option<ObjectReference>,
        pub reporting_component: Text,
        pub reporting_instance: Text,
    }
}

view! {
    /// Reporter of an event.
    pub struct EventSource {
        pub component: Text,
        pub host: Text,
    }

    /// Repetitions of an event.
    pub struct EventSeries {
        pub count: i32,
        pub last_observed_time: Option<MicroTime>,
    }
}
