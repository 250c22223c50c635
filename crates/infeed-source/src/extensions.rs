//! Extensions of image files, and the files of a folder that have none.

use std::path::Path;

use crate::left_out::LeftOut;
use infeed_codec::decode::is_undecoded_image;
use infeed_core::error::Error;

/// File extensions of images. The bytes of a file decide its format; the extension only keeps notes
/// and checksums out of a dataset.
pub const IMAGE_EXTENSIONS: [&str; 15] = [
    "jpg", "jpeg", "jpe", "jfif", "png", "webp", "bmp", "gif", "tif", "tiff", "ppm", "pgm", "pbm",
    "pnm", "ifl",
];

/// Files that are not images according to their extension.
const OTHER_FILE: &str = "file without an image extension";

/// Files that are images according to their extension, but not for the decoder.
const UNDECODED_IMAGE: &str = "file of a format that infeed does not decode";

/// Files of arrays, which no source of images reads.
const ARRAY_FILE: &str = "file with an array";

/// Whether a name has the extension of an image, in any case.
pub(super) fn has_image_extension(name: &str) -> bool {
    has_extension(name, IMAGE_EXTENSIONS)
}

/// Whether a name has one of some extensions, in any case.
pub(super) fn has_extension<'a>(name: &str, extensions: impl IntoIterator<Item = &'a str>) -> bool {
    let Some((_, own)) = name.rsplit_once('.') else {
        return false;
    };
    let mut extensions = extensions.into_iter();
    extensions.any(|known| known.eq_ignore_ascii_case(own))
}

/// Returns the kind of a file without an image extension, which has no names yet, and how to read it.
pub(super) fn left_out_file(name: &str) -> LeftOut {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    match is_undecoded_image(extension) {
        true => LeftOut::new("", UNDECODED_IMAGE).note("convert them to PNG or WebP"),
        false if has_extension(name, ["npy"]) => LeftOut::new("", ARRAY_FILE).note(
            "read them in Python with sources.Items(dataset), whose __getitem__ calls np.load",
        ),
        false => LeftOut::new("", OTHER_FILE),
    }
}

/// Returns the error for a folder without images, which names files that only look like images.
pub(super) fn without_images(root: &Path, left_out: &[LeftOut]) -> Error {
    let of_kind = |kind| left_out.iter().find(|part| part.kind == kind);
    let root = root.display();
    let problem = match of_kind(UNDECODED_IMAGE).or_else(|| of_kind(ARRAY_FILE)) {
        Some(part) => {
            let (counted, named) = (part.count_text(), part.names_text());
            let note = &part.note;
            format!("{root} holds no images but {counted}: {named}; {note}")
        }
        None => {
            let known = IMAGE_EXTENSIONS.join(", ");
            format!("{root} holds no images (files named {known})")
        }
    };
    Error::config("source", problem)
}
