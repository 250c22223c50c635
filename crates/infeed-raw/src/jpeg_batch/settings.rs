//! Settings of a device's decoder. Only nvJPEG has a choice; other devices ignore them.

use std::fmt;
use std::path::PathBuf;

/// Part of a GPU that decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The JPEG engine, which some GPUs have.
    Engine,
    /// The cores that also run the training.
    Cores,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Engine => "the engine",
            Backend::Cores => "the GPU's cores",
        })
    }
}

/// Where to look for the library that decodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// Path of the library. If it is set, no other is tried.
    pub file: Option<PathBuf>,
    /// Folders to search before the system's, such as those below Python's `site-packages`. The
    /// newest library in any of them comes first.
    pub folders: Vec<PathBuf>,
}

/// Settings for opening a decoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecoderSettings {
    /// Where to look for the library.
    pub search: Search,
    /// The backend; None selects the engine if the GPU has one, else the cores.
    pub backend: Option<Backend>,
    /// Number of host threads that the library may use for a batch. The cores backend uses them to
    /// decode Huffman codes.
    pub threads: u16,
}

impl Default for DecoderSettings {
    fn default() -> DecoderSettings {
        DecoderSettings {
            search: Search::default(),
            backend: None,
            threads: 1,
        }
    }
}
