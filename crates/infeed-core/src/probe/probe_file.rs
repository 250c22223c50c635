//! Stores the measurements of a machine in a file, so that they are taken once.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::{Machine, StorageRates, machine, memory_bandwidth};
use crate::replace::replace;
use infeed_raw::file;

/// Version of the file format.
pub const VERSION: u32 = 1;

/// Measurements of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// [`VERSION`].
    pub version: u32,
    /// Version of infeed.
    pub infeed: String,
    /// Seconds since 1970, UTC.
    pub made_at_s: u64,
    /// The machine.
    pub machine: Machine,
    /// Rate at which one core copies memory, read plus written.
    pub memory_one_core_bytes_per_s: f64,
    /// Rate of all usable cores together.
    pub memory_all_cores_bytes_per_s: f64,
    /// Storage by path, in the order of the measurements.
    pub storage: Vec<StorageRates>,
}

impl Probe {
    /// Measures cores and memory of this machine; takes about a second.
    pub fn measure() -> Probe {
        let machine = machine();
        let one = memory_bandwidth(1);
        let all = match machine.cores {
            1 => one,
            cores => memory_bandwidth(cores),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Probe {
            version: VERSION,
            infeed: env!("CARGO_PKG_VERSION").to_owned(),
            made_at_s: now.map_or(0, |since| since.as_secs()),
            machine,
            memory_one_core_bytes_per_s: one,
            memory_all_cores_bytes_per_s: all,
            storage: Vec::new(),
        }
    }

    /// Returns the measured storage of a path, if any.
    pub fn storage_of(&self, path: &Path) -> Option<&StorageRates> {
        let path = whole(path);
        self.storage.iter().find(|storage| storage.path == path)
    }

    /// Adds the storage of a path, and replaces an earlier measurement.
    pub fn add(&mut self, mut storage: StorageRates) {
        storage.path = whole(&storage.path);
        self.storage.retain(|known| known.path != storage.path);
        self.storage.push(storage);
    }

    /// Path of the file: `$XDG_CACHE_HOME/infeed/probe.json`, or below `~/.cache`. None without a
    /// home folder.
    pub fn path() -> Option<PathBuf> {
        let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let cache = named("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(named("HOME")?).join(".cache")))?;
        Some(cache.join("infeed").join("probe.json"))
    }

    /// Reads the file; None unless it describes this machine in its current state.
    pub fn load(path: &Path) -> Option<Probe> {
        let kept: Probe =
            serde_json::from_slice(&file::read(path, file::MAX_TEXT_BYTES).ok()?).ok()?;
        (kept.version == VERSION && kept.machine == machine()).then_some(kept)
    }

    /// Writes the file atomically.
    ///
    /// # Errors
    ///
    /// The operating system's error, with the path.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let mut text = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        text.push(b'\n');
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(named)?;
        }
        replace(path, &text).map_err(named)
    }
}

/// Canonical path of a folder.
fn whole(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe() -> Probe {
        Probe {
            version: VERSION,
            infeed: "0".to_owned(),
            made_at_s: 1,
            machine: machine(),
            memory_one_core_bytes_per_s: 1e10,
            memory_all_cores_bytes_per_s: 2e10,
            storage: Vec::new(),
        }
    }

    #[test]
    fn a_stored_probe_is_loaded_only_on_the_same_machine() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let path = root.path().join("infeed/probe.json");
        let mut kept = probe();
        kept.add(StorageRates {
            path: root.path().join("."),
            files: 3,
            ..StorageRates::default()
        });
        let mut moved = kept.clone();
        moved.machine.cores += 1;

        kept.save(&path).expect("writes");
        assert_eq!(Probe::load(&path), Some(kept.clone()));
        assert_eq!(
            kept.storage_of(root.path()).map(|found| found.files),
            Some(3)
        );
        moved.save(&path).expect("writes");
        assert_eq!(Probe::load(&path), None, "that was another machine");
        fs::write(&path, "{").expect("writes");
        assert_eq!(Probe::load(&path), None, "that is no probe");
        assert_eq!(Probe::load(&root.path().join("none")), None);
    }

    #[test]
    fn a_path_that_is_measured_again_is_known_once() {
        let mut kept = probe();
        for files in [1, 2] {
            kept.add(StorageRates {
                path: PathBuf::from("/data"),
                files,
                ..StorageRates::default()
            });
        }

        assert_eq!(kept.storage.len(), 1);
        assert_eq!(kept.storage[0].files, 2);
    }
}
