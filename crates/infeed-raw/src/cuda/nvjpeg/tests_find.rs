//! The search for nvJPEG.

use std::path::Path;

use super::find::LibraryCandidate;
#[cfg(all(linux_system, target_env = "gnu", not(miri)))]
use super::*;
use crate::jpeg_batch::Search;

#[test]
fn the_search_prefers_a_file_then_loaded_libraries_then_folders_then_the_system() {
    let folder = std::env::temp_dir().join(format!("infeed-nvjpeg-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("libnvjpeg.so.12"), "").unwrap();
    let search = Search {
        file: None,
        folders: vec![folder.clone()],
    };
    let inside = folder
        .join("libnvjpeg.so.12")
        .to_string_lossy()
        .into_owned();

    let candidates = search.candidates(12);

    let name = |major: i32| format!("libnvjpeg.so.{major}");
    assert_eq!(
        candidates,
        [
            LibraryCandidate::Loaded(name(12)),
            LibraryCandidate::Loaded(name(11)),
            LibraryCandidate::File(inside),
            LibraryCandidate::File(name(12)),
            LibraryCandidate::File(name(11)),
        ],
        "a library for CUDA 13 does not work with a driver for 12"
    );
    assert_eq!(
        search.candidates(0).len(),
        7,
        "a driver of unknown version excludes no library"
    );
    let file = Some(Path::new("/a/b").to_owned());
    let given = Search { file, ..search }.candidates(13);
    assert_eq!(given, [LibraryCandidate::File("/a/b".to_owned())]);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[cfg(all(linux_system, target_env = "gnu", not(miri)))]
#[test]
fn another_library_is_rejected_with_the_missing_function() {
    let search = |file: &str| Search {
        file: Some(file.into()),
        folders: Vec::new(),
    };

    let error = search("libnone.so.9").find(12).err().unwrap();
    let NoDecoder::NoLibrary { file, why } = &error else {
        panic!("{error}");
    };
    assert_eq!(file, "libnone.so.9");
    assert!(why.contains("libnone.so.9"), "{why}");
    assert!(error.to_string().contains("set INFEED_NVJPEG"), "{error}");
    let error = search("libc.so.6").find(12).err().unwrap().to_string();
    assert!(
        error.starts_with("libc.so.6 is too old: it has no nvjpegGetProperty"),
        "{error}"
    );
    assert!(search("a\0b").find(12).is_err());
}

/// Runs if the machine has the library, with or without a GPU.
#[cfg(not(miri))]
#[test]
fn the_library_of_this_machine_has_every_function_and_a_version() {
    let file = std::env::var_os("INFEED_NVJPEG").map(Into::into);
    let search = Search {
        file,
        folders: Vec::new(),
    };
    match search.find(0) {
        Ok(library) => {
            assert!(library.version() >= (11, 6), "{:?}", library.version());
            assert!(
                std::ptr::eq(search.find(0).ok().unwrap(), library),
                "the library is loaded once"
            );
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
