//! Compatibility of devices on one counter set, by the groups they declare.
//!
//! Follows `compatibility_groups.go`: all must have a group in common; a device without groups goes only with others
//! without groups.

use std::collections::BTreeSet;

use api::json::Text;

/// Common compatibility groups of the devices on a counter set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum CommonGroups {
    /// No device yet.
    #[default]
    Anything,
    /// Only devices without groups.
    NoGroups,
    /// Devices with these groups in common.
    Groups(BTreeSet<Text>),
}

impl CommonGroups {
    /// Whether a device may join.
    pub(crate) fn admits(&self, groups: &[Text]) -> bool {
        match self {
            CommonGroups::Anything => true,
            CommonGroups::NoGroups => groups.is_empty(),
            CommonGroups::Groups(common) => groups.iter().any(|group| common.contains(group)),
        }
    }

    /// Returns the common groups after a device was added.
    #[must_use]
    pub(crate) fn with(&self, groups: &[Text]) -> CommonGroups {
        match self {
            CommonGroups::Anything if groups.is_empty() => CommonGroups::NoGroups,
            CommonGroups::Anything => CommonGroups::Groups(groups.iter().cloned().collect()),
            CommonGroups::Groups(common) if !groups.is_empty() => {
                CommonGroups::Groups(groups.iter().filter(|group| common.contains(*group)).cloned().collect())
            }
            // An incompatible device has no effect; it was allocated before its groups were declared.
            other => other.clone(),
        }
    }
}
