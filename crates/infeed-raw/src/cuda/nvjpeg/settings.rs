//! How a decoder is to be opened.

use std::ffi::c_uint;
use std::fmt;

use super::find::Search;
use super::functions::backend;

/// What of a card decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The engine for JPEGs, which some cards have.
    Engine,
    /// The cores that train, too.
    Cores,
}

impl Backend {
    pub(super) fn code(self) -> c_uint {
        match self {
            Backend::Engine => backend::HARDWARE,
            Backend::Cores => backend::GPU_HYBRID,
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Engine => "the engine",
            Backend::Cores => "the GPU's cores",
        })
    }
}

/// How to decode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where the library may be.
    pub search: Search,
    /// By what; if none is given, by the engine where there is one, else by the cores.
    pub backend: Option<Backend>,
    /// Threads of the host that the library may use for a batch, of those that read Huffman codes
    /// where the card does not.
    pub threads: u16,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            search: Search::default(),
            backend: None,
            threads: 1,
        }
    }
}
