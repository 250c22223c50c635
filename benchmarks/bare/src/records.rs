//! Records from the page cache, and their order.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};

/// Image files below a folder, sorted.
pub fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut rest = vec![root.to_path_buf()];
    while let Some(folder) = rest.pop() {
        for entry in folder
            .read_dir()
            .with_context(|| format!("cannot list {folder:?}"))?
        {
            let path = entry?.path();
            let kind = path.extension().map(|e| e.to_ascii_lowercase());
            if path.is_dir() {
                rest.push(path);
            } else if kind.is_some_and(|k| ["png", "jpg", "jpeg", "ifl"].iter().any(|of| k == *of))
            {
                found.push(path);
            }
        }
    }
    if found.is_empty() {
        bail!("{root:?} holds no images");
    }
    found.sort();
    Ok(found)
}

/// Reads a file into a buffer that keeps its capacity.
pub fn read(path: &Path, into: &mut Vec<u8>) -> Result<()> {
    into.clear();
    File::open(path)
        .and_then(|mut file| file.read_to_end(into))
        .with_context(|| format!("cannot read {path:?}"))?;
    Ok(())
}

/// Assigns positions to threads, repeatedly.
#[derive(Default)]
pub struct Turn(AtomicUsize);

impl Turn {
    /// Returns the next position below `len`.
    pub fn next(&self, len: usize) -> usize {
        // Steps of a large prime visit all positions, scattered like a shuffle.
        self.0
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(1_000_003)
            % len
    }
}

/// Fast random numbers: SplitMix64.
///
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
pub struct Random(pub u64);

impl Random {
    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number in `low..high`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns true with a probability of one half.
    pub fn coin(&mut self) -> bool {
        self.bits() >> 63 == 1
    }
}
