//! Settings of the shuffled order.

use serde::{Deserialize, Serialize};

use infeed_core::order::window::Groups;

/// Order of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shuffle {
    /// Seed of the order and of every random parameter.
    pub seed: u64,
    /// How far records of shards are mixed. Absent: [`WINDOW_BYTES`], or [`WHOLE_WINDOW_BYTES`]
    /// where a shard or row group can only be read whole. Has no effect on sources without shards,
    /// which are always shuffled as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<ShuffleWindow>,
}

/// How far records of shards are mixed. Shards are permuted, then records are permuted within a
/// window of successive shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", untagged)]
pub enum ShuffleWindow {
    /// Size of a window in bytes. A window has at least one shard.
    Bytes(u64),
    /// The whole dataset is one window: `"all"`.
    All(AllKeyword),
}

/// The keyword `all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AllKeyword {
    /// `"all"`.
    All,
}

/// Default window, in bytes, over shards whose records can be read one by one. It does not depend
/// on the machine, because the order must not.
pub const WINDOW_BYTES: u64 = 512 << 20;

/// Default window, in bytes, over shards that can only be read whole. Memory holds this window and
/// the next one.
pub const WHOLE_WINDOW_BYTES: u64 = 64 << 20;

impl Shuffle {
    /// Returns the window size in bytes for shuffling groups; `None` if records are shuffled one by
    /// one.
    pub(crate) fn window_bytes(self, groups: &Groups) -> Option<u64> {
        window_bytes(self.window, groups)
    }
}

/// Returns the window size in bytes; `None` to shuffle records one by one.
pub(super) fn window_bytes(window: Option<ShuffleWindow>, groups: &Groups) -> Option<u64> {
    match window {
        Some(ShuffleWindow::All(_)) if !groups.whole => None,
        Some(ShuffleWindow::All(_)) => Some(u64::MAX),
        Some(ShuffleWindow::Bytes(bytes)) => Some(bytes),
        None if groups.whole => Some(WHOLE_WINDOW_BYTES),
        None => Some(WINDOW_BYTES),
    }
}
