//! Read-only file mappings, for data that is read where it lies.
//!
//! The hazard: Rust requires that bytes behind a shared reference do not change, and nothing on a
//! usual system keeps another process from writing to or truncating a mapped file. Readers see
//! changed bytes as they are, which decoders here survive because they trust no byte. A file made
//! *shorter* while it is mapped ends the process with SIGBUS (Windows rejects the truncation) at
//! the first read beyond its new end. No check can close that gap, so [`FileMap::open`] is safe
//! only if nobody edits training data during a run. A caller that cannot promise this should read
//! the file instead.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

/// Distance between two reads of [`FileMap::touch`], in bytes: the smallest page in use.
const PAGE: usize = 4096;

/// A file's bytes, read-only, for as long as the map lives; an empty file is no bytes.
#[derive(Debug)]
pub struct FileMap {
    map: Mmap,
}

impl FileMap {
    /// Maps the whole file at `path`, with its length as it is now.
    ///
    /// The file must not be changed or truncated meanwhile; the head of this module says
    /// what happens if it is.
    ///
    /// # Errors
    ///
    /// The errors of opening and of mapping a file: not a regular file, no address space.
    pub fn open(path: impl AsRef<Path>) -> io::Result<FileMap> {
        FileMap::of(&File::open(path)?)
    }

    /// Maps the whole of an open file; otherwise as [`open`](FileMap::open). The map stays
    /// valid after the file is closed.
    ///
    /// # Errors
    ///
    /// As for `open`, without the opening.
    pub fn of(file: &File) -> io::Result<FileMap> {
        // SAFETY: the mapping is private to this value, read-only and unmapped on drop.
        // That nobody changes the file meanwhile is upheld by the user, who is told so;
        // it cannot be checked.
        let map = unsafe { Mmap::map(file)? };
        Ok(FileMap { map })
    }

    /// Reads one byte of every page in `range`, so that page faults, and with them the
    /// waiting for storage, happen here, on this thread. What lies outside the file is
    /// left out.
    ///
    /// # Cost
    ///
    /// Blocks until the range is in memory; without faults, about a nanosecond a page.
    pub fn touch(&self, range: Range<usize>) {
        let end = range.end.min(self.map.len());
        let mut at = range.start;
        while at < end {
            // SAFETY: a reference to a byte of the map, checked by indexing. The read is
            // volatile because its effect, the fault, is all that is wanted of it.
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

    /// A file of its own for one test, gone with it.
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
