//! How samples form batches.

use serde::{Deserialize, Serialize};

use infeed_core::error::Error;
use infeed_core::order::partition::Tail;

/// How samples form batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BatchSpec {
    /// Rows of the global batch, over all ranks.
    // Without this default, a description with only `per_rank` would also get `size` 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Rows of each rank's batch; an alternative to `size`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_rank: Option<u64>,
    /// Drop an incomplete last batch; the same as `tail = "drop"`.
    pub drop_last: bool,
    /// Pad samples of different sizes with zeros to the largest sample of their batch.
    pub pad: bool,
    /// Form of fields whose rows are lists of different lengths, such as boxes.
    #[serde(skip_serializing_if = "is_default_layout")]
    pub ragged: RaggedLayout,
    /// Handling of an incomplete last batch. Absent: `drop_last` decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<Tail>,
    /// Maximum number of rows of the global batch times the length of its longest record. `size` is
    /// then the maximum number of rows, and may be absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// With `max_tokens`, the number of rows is a multiple of this. Absent: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiple_of: Option<u64>,
}

/// Form of lists of different lengths in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RaggedLayout {
    /// All values one after another, and the offsets of the rows.
    #[default]
    Offsets,
    /// An array with zeros at the end of shorter rows. A further column `<name>_count` has the
    /// lengths.
    Pad,
}

impl BatchSpec {
    /// Whether each batch of a rank is one sample, so that rows cannot differ in shape.
    pub fn is_of_one(&self) -> bool {
        matches!(
            (self.size, self.per_rank),
            (Some(1), None) | (None, Some(1))
        )
    }

    /// Returns the rows of the global batch of `ranks` ranks. With `max_tokens`, the order has the
    /// rows of each batch.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if both sizes are given, or one that contradicts `max_tokens`.
    pub(crate) fn global_rows(&self, ranks: u64) -> Result<u64, Error> {
        if self.max_tokens.is_some() && self.per_rank.is_some() {
            let problem = "max_tokens is the limit of all ranks together, and per_rank is the size \
                           of one; set the maximum number of rows with the size over all ranks";
            return Err(Error::config("batch", problem));
        }
        match (self.size, self.per_rank) {
            (Some(size), None) => Ok(size),
            (None, Some(rows)) => Ok(rows.saturating_mul(ranks)),
            (None, None) => Ok(1),
            (Some(_), Some(_)) => {
                let problem = "both the global size and per_rank are set; set one of them";
                Err(Error::config("batch", problem))
            }
        }
    }

    /// Returns the handling of an incomplete last batch, from `tail` or `drop_last`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if `tail` and `drop_last` contradict each other.
    pub fn settled_tail(&self) -> Result<Tail, Error> {
        match (self.tail, self.drop_last) {
            (None, false) => Ok(Tail::Keep),
            (None | Some(Tail::Drop), _) => Ok(Tail::Drop),
            (Some(tail), false) => Ok(tail),
            (Some(tail), true) => {
                let problem = format!(
                    "drop_last contradicts tail=\"{}\"; set only one of them",
                    tail.name()
                );
                Err(Error::config("batch", problem))
            }
        }
    }
}

impl Default for BatchSpec {
    fn default() -> BatchSpec {
        BatchSpec {
            size: Some(1),
            per_rank: None,
            drop_last: false,
            pad: false,
            ragged: RaggedLayout::default(),
            tail: None,
            max_tokens: None,
            multiple_of: None,
        }
    }
}

fn is_default_layout(layout: &RaggedLayout) -> bool {
    *layout == RaggedLayout::default()
}
