//! Read-only file mappings, for data that is read in place.
//!
//! The hazard: Rust requires that bytes behind a shared reference do not change, but an operating
//! system usually lets other processes write to or truncate a mapped file. Readers see changed
//! bytes, which the decoders tolerate because they trust no byte. A file that is made *shorter*
//! while it is mapped ends the process with SIGBUS at the first read beyond its new end (Windows
//! rejects the truncation). No check can prevent that, so [`FileMap::open`] is safe only if no
//! process edits training data during a run. A caller that cannot promise this should read the file
//! instead.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

/// Distance between two reads of [`FileMap::touch`], in bytes: the smallest page in use.
const PAGE: usize = 4096;

/// A file's bytes, read-only, for as long as the map lives. An empty file has no bytes.
#[derive(Debug)]
pub struct FileMap {
    map: Mmap,
}

impl FileMap {
    /// Maps the whole file at `path`, with its current length.
    ///
    /// No process may change or truncate the file meanwhile; the module documentation describes the
    /// consequences.
    ///
    /// # Errors
    ///
    /// The errors of opening and of mapping a file: not a regular file, no address space.
    pub fn open(path: impl AsRef<Path>) -> io::Result<FileMap> {
        FileMap::of(&File::open(path)?)
    }

    /// Maps the whole of an open file; otherwise as [`open`](FileMap::open). The map stays valid
    /// after the file is closed.
    ///
    /// # Errors
    ///
    /// As for `open`, without the opening.
    pub fn of(file: &File) -> io::Result<FileMap> {
        // SAFETY: the mapping belongs to this value, is read-only and is unmapped on drop. The user
        // ensures that no process changes the file meanwhile, as the documentation requires; this
        // cannot be checked.
        let map = unsafe { Mmap::map(file)? };
        Ok(FileMap { map })
    }

    /// Reads one byte of every page in `range`, so that page faults and the wait for storage happen
    /// on this thread. Ignores the part outside of the file.
    ///
    /// # Cost
    ///
    /// Blocks until the range is in memory; without faults, takes about a nanosecond per page.
    pub fn touch(&self, range: Range<usize>) {
        let end = range.end.min(self.map.len());
        let mut at = range.start;
        while at < end {
            // SAFETY: a reference to a byte of the map, checked by indexing. The read is volatile
            // because only its side effect, the page fault, is needed.
            unsafe { std::ptr::read_volatile(&self.map[at]) };
            // The map starts on a page, so the next page starts at the next multiple.
            at = (at / PAGE + 1) * PAGE;
        }
    }
}

impl AsRef<[u8]> for FileMap {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// A file for one test, removed when dropped.
    struct Scratch(PathBuf);

    impl Scratch {
        fn with(name: &str, bytes: &[u8]) -> Scratch {
            let file = format!("infeed-map-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(file);
            fs::write(&path, bytes).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_file(&self.0).unwrap();
        }
    }

    #[test]
    fn a_map_holds_the_bytes_of_the_file() {
        let bytes: Vec<u8> = (0..10_000).map(|n| n as u8).collect();
        let file = Scratch::with("bytes", &bytes);

        let map = FileMap::open(&file.0).unwrap();

        assert_eq!(map.as_ref(), bytes);
    }

    #[test]
    fn an_empty_file_maps_to_no_bytes() {
        let file = Scratch::with("empty", &[]);

        assert!(FileMap::open(&file.0).unwrap().as_ref().is_empty());
    }

    #[test]
    fn touching_stays_inside_the_file() {
        let file = Scratch::with("touch", &[1; 9000]);
        let map = FileMap::open(&file.0).unwrap();

        for range in [
            0..9000,
            0..usize::MAX,
            8999..9001,
            9000..9001,
            5..5,
            usize::MAX..usize::MAX,
        ] {
            map.touch(range);
        }
    }

    #[test]
    fn a_missing_file_is_an_error() {
        let error = FileMap::open("/nonexistent/infeed").unwrap_err();

        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
