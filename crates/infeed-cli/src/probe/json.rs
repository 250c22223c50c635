//! The measurements as JSON.

use infeed_core::probe::{Machine, Profile, StorageRates};
use schemars::JsonSchema;
use serde::Serialize;

/// Result of `infeed probe`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct ProbeJson<'a> {
    /// This machine.
    pub(super) machine: &'a Machine,
    /// Rates at which cores copy memory.
    pub(super) memory: MemoryJson,
    /// Storage of the given folder or file. Null without one.
    pub(super) storage: Option<&'a StorageRates>,
    /// Time of the measurement in seconds since 1970, UTC.
    pub(super) made_at_s: u64,
    /// File that keeps the measurements. Null if they could not be saved.
    pub(super) kept: Option<String>,
    /// The machine of `--on`. Null without this option.
    pub(super) profile: Option<&'a Profile>,
}

/// Rates at which cores copy memory, in bytes read plus bytes written per second.
#[derive(JsonSchema, Serialize)]
pub(super) struct MemoryJson {
    /// Rate of one core.
    pub(super) one_core_bytes_per_s: f64,
    /// Rate of all usable cores together.
    pub(super) all_cores_bytes_per_s: f64,
}

/// Result of `infeed probe --list`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct ProfilesJson {
    /// The known machines and storages.
    pub(super) profiles: &'static [Profile],
}
