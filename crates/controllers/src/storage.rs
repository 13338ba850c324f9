//! Controllers of volumes and claims, device claims included.

pub mod ephemeral_volume;
pub mod persistentvolume_binder;
pub mod resourceclaim;
pub mod simulated_volumes;
pub mod volume_protection;
