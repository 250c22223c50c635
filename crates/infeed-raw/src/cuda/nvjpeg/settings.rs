//! How a decoder is to be opened.

use std::ffi::c_uint;
use std::fmt;

use super::find::Search;
use super::functions::backend;

/// What of a card decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The engine for JPEGs, which some cards have.
    Engine,
    /// The cores that train, too.
    Cores,
}

impl Way {
    pub(super) fn backend(self) -> c_uint {
        match self {
            Way::Engine => backend::HARDWARE,
            Way::Cores => backend::GPU_HYBRID,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Engine => "the engine",
            Way::Cores => "the card's cores",
        })
    }
}

/// Room that is asked for in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// Files of a batch.
    pub files: u16,
    /// Rows of the largest.
    pub height: u16,
    /// Columns of the largest.
    pub width: u16,
}

/// How to decode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where the library may be.
    pub search: Search,
    /// By what; if none is given, by the engine where there is one, else by the cores.
    pub way: Option<Way>,
    /// Threads of the host that the library may use for a batch, of those that read Huffman codes
    /// where the card does not.
    pub threads: u16,
    /// Room for batches, if it is known how much they need.
    pub reserve: Option<Reserve>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            search: Search::default(),
            way: None,
            threads: 1,
            reserve: None,
        }
    }
}
