//! Settings of a decoder.

use std::ffi::c_uint;
use std::fmt;

use super::find::Search;
use super::functions::backend;

/// Part of a GPU that decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The JPEG engine, which some GPUs have.
    Engine,
    /// The cores that also run the training.
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

/// Settings for opening a decoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where to look for the library.
    pub search: Search,
    /// The backend; None selects the engine if the GPU has one, else the cores.
    pub backend: Option<Backend>,
    /// Number of host threads that the library may use for a batch. The cores backend uses them to
    /// decode Huffman codes.
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
