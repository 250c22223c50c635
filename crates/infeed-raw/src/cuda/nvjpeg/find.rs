//! Finds the library.

use std::ffi::CString;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::error::NoDecoder;
use super::functions::Nvjpeg;
use crate::cuda::library::Library;
use crate::jpeg_batch::Search;

/// Major versions that are looked for, newest first.
const MAJORS: [i32; 3] = [13, 12, 11];

/// The oldest supported version: earlier ones leak memory when they decode.
const OLDEST: (i32, i32) = (11, 6);

/// One candidate.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LibraryCandidate {
    /// A library that the process has loaded under this name.
    Loaded(String),
    /// A file, or a name that the system searches for.
    File(String),
}

impl Search {
    /// Returns the candidates in order, for a driver of this CUDA version: the given file;
    /// libraries that the process has loaded; the folders; the system. Libraries newer than the
    /// driver do not work with it.
    pub(super) fn candidates(&self, driver_major: i32) -> Vec<LibraryCandidate> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        if let Some(file) = &self.file {
            return vec![LibraryCandidate::File(text(file))];
        }
        let fits = |major: &&i32| driver_major == 0 || **major <= driver_major;
        let name = |major: &i32| format!("libnvjpeg.so.{major}");
        let names: Vec<String> = MAJORS.iter().filter(fits).map(name).collect();
        let loaded = names.iter().cloned().map(LibraryCandidate::Loaded);
        let inside = names.iter().flat_map(|name| {
            let files = self.folders.iter().map(move |folder| folder.join(name));
            files.filter(|file| file.is_file())
        });
        let inside = inside.map(|file| LibraryCandidate::File(text(&file)));
        let named = names.iter().cloned().map(LibraryCandidate::File);
        loaded.chain(inside).chain(named).collect()
    }

    /// Loads the first library that exists and is new enough. It stays loaded.
    ///
    /// # Errors
    ///
    /// [`NoDecoder::NoLibrary`], [`NoDecoder::TooOld`]: the error of the last library found.
    pub(super) fn find(&self, driver_major: i32) -> Result<&'static Nvjpeg, NoDecoder> {
        let mut last = NoDecoder::NoLibrary {
            file: "libnvjpeg.so".to_owned(),
            why: format!("there is no version for a driver of CUDA {driver_major}"),
        };
        for candidate in self.candidates(driver_major) {
            match load(candidate) {
                Ok(library) => return Ok(library),
                // The error of a library that is too old is more useful than that of a missing one.
                Err(NoDecoder::NoLibrary { .. }) if matches!(last, NoDecoder::TooOld { .. }) => {}
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn load(candidate: LibraryCandidate) -> Result<&'static Nvjpeg, NoDecoder> {
    /// Tables by file: libraries are never closed, so their tables are never freed.
    static LOADED: Mutex<Vec<&'static Nvjpeg>> = Mutex::new(Vec::new());
    let (file, is_loaded) = match candidate {
        LibraryCandidate::Loaded(name) => (name, true),
        LibraryCandidate::File(name) => (name, false),
    };
    let mut known = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = known.iter().find(|library| library.file == file) {
        return Ok(library);
    }
    let none = |why: String| NoDecoder::NoLibrary {
        file: file.clone(),
        why,
    };
    let name = CString::new(file.as_str()).map_err(|error| none(error.to_string()))?;
    let library = match is_loaded {
        true => Library::find_loaded(&name).ok_or_else(|| none("it is not loaded".to_owned()))?,
        false => Library::open(&name).map_err(none)?,
    };
    let old = |why: String| NoDecoder::TooOld {
        file: file.clone(),
        why,
    };
    let library = Nvjpeg::new(&library, file.clone())
        .map_err(|function| old(format!("it has no {function}")))?;
    let version = library.version();
    if version < OLDEST {
        let why = format!("version {}.{} leaks memory", version.0, version.1);
        return Err(old(why));
    }
    let library: &'static Nvjpeg = Box::leak(Box::new(library));
    known.push(library);
    Ok(library)
}
