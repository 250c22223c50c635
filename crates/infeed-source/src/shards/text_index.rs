//! Text indexes next to shards, in the two formats of NVIDIA DALI's tools.
//!
//! For a tar (`wds2idx`): a line `v1.2 RECORDS`, then one line per record with `EXTENSION OFFSET
//! SIZE NAME` for each member; the offset is the first byte of the data. For a TFRecord file
//! (`tfrecord2idx`): one line `OFFSET SIZE` per record, framing included.
//!
//! The formats have no checksum. Therefore an index is used only if its lines account for every
//! record byte of the shard: a line that was cut, lost or changed leaves a gap.

#[cfg(test)]
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::store::links::check_no_link;
use crate::store::{self, Blob};

/// A member of a tar, as its index lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexedMember<'a> {
    /// Part of the base name after its first dot.
    pub(crate) extension: &'a str,
    /// First byte of the data.
    pub(crate) offset: u64,
    /// Bytes of the data.
    pub(crate) size: u64,
    /// Full name.
    pub(crate) name: &'a str,
}

/// Writes the index of a tar with these records.
#[cfg(test)]
pub(crate) fn of_tar(records: &[Vec<IndexedMember<'_>>]) -> String {
    let mut text = format!("v1.2 {}\n", records.len());
    for record in records {
        for (at, member) in record.iter().enumerate() {
            let gap = if at > 0 { " " } else { "" };
            let (offset, size) = (member.offset, member.size);
            let _ = write!(
                text,
                "{gap}{} {offset} {size} {}",
                member.extension, member.name
            );
        }
        text.push('\n');
    }
    text
}

/// Writes the index of a TFRecord file from the first byte of each record and the end of the last.
#[cfg(test)]
pub(crate) fn of_tfrecord(starts: &[u64]) -> String {
    let mut text = String::new();
    for pair in starts.windows(2) {
        let _ = writeln!(text, "{} {}", pair[0], pair[1] - pair[0]);
    }
    text
}

/// Parses the index of a tar. None for any other text, for names with spaces, and for version 1.1,
/// whose lines lack the names that distinguish records.
pub(crate) fn tar(text: &str) -> Option<Vec<Vec<IndexedMember<'_>>>> {
    let mut lines = text.lines();
    let count = lines.next()?.trim().strip_prefix("v1.2 ")?;
    let mut records = Vec::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let parts: Vec<&str> = line.split_ascii_whitespace().collect();
        let (parts, []) = parts.as_chunks::<4>() else {
            return None;
        };
        let members = parts.iter().map(|[extension, offset, size, name]| {
            Some(IndexedMember {
                extension,
                offset: offset.parse().ok()?,
                size: size.parse().ok()?,
                name,
            })
        });
        records.push(members.collect::<Option<_>>()?);
    }
    (count.trim().parse() == Ok(records.len())).then_some(records)
}

/// Parses the index of a TFRecord file: the first byte of each record and the end of the last.
pub(crate) fn tfrecord(text: &str) -> Option<Vec<u64>> {
    let mut starts = vec![0];
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (offset, size) = line.trim().split_once(' ')?;
        let (offset, size): (u64, u64) = (offset.parse().ok()?, size.trim().parse().ok()?);
        // Records follow each other without a gap.
        if starts.last() != Some(&offset) {
            return None;
        }
        starts.push(offset.checked_add(size)?);
    }
    Some(starts)
}

/// Reads the text of the index next to a shard: `SHARD.idx`, or with `.idx` instead of the shard's
/// extension. Without `follow_links`, no link is read.
pub(crate) fn text(shard: &dyn Blob, follow_links: bool) -> Option<String> {
    // A record takes more bytes in its shard than in the index.
    let most = shard.len().saturating_mul(2).saturating_add(64 << 10);
    let replaced = match shard.name().rsplit_once('.') {
        Some((stem, extension)) if !extension.contains(['/', '\\']) => Some(stem),
        _ => None,
    };
    let names = [Some(shard.name()), replaced].into_iter().flatten();
    for name in names.map(|stem| format!("{stem}.idx")) {
        let known_path = shard.path().is_some();
        if known_path && is_older(Path::new(&name), shard.path().map(Path::to_owned)) {
            continue;
        }
        if known_path && !follow_links {
            let path = Path::new(&name);
            let folder = path.parent().unwrap_or(Path::new(""));
            if let Err(error) = check_no_link(folder, path) {
                tracing::warn!("the index is not used, and the shard is read instead: {error}");
                continue;
            }
        }
        let Ok(index) = store::open(&name) else {
            continue;
        };
        if index.len() > most {
            continue;
        }
        let bytes = index.read(0..index.len()).ok()?;
        return String::from_utf8(bytes.to_vec()).ok();
    }
    None
}

/// Whether an index is missing, or older than its shard.
fn is_older(index: &Path, shard: Option<PathBuf>) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    match (time(index), shard.and_then(|shard| time(&shard))) {
        (Some(index), Some(shard)) => index < shard,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, offset: u64, size: u64) -> IndexedMember<'_> {
        let extension = name.split_once('.').map_or("", |(_, extension)| extension);
        IndexedMember {
            extension,
            offset,
            size,
            name,
        }
    }

    #[test]
    fn an_index_of_a_tar_reads_as_it_was_written() {
        let records = vec![
            vec![member("a.jpg", 512, 100), member("a.cls", 1536, 1)],
            vec![member("b.seg.png", 2560, 7)],
        ];

        let text = of_tar(&records);

        assert_eq!(
            text,
            "v1.2 2\njpg 512 100 a.jpg cls 1536 1 a.cls\nseg.png 2560 7 b.seg.png\n"
        );
        assert_eq!(tar(&text), Some(records));
    }

    #[test]
    fn any_other_text_is_not_an_index() {
        for text in [
            "",
            "v1.2",
            "v1.2 2\njpg 512 100 a.jpg\n",
            "v1.2 1\njpg 512 100 a b.jpg\n",
            "v1.2 1\njpg x 100 a.jpg\n",
            "v1.2 1\njpg -1 100 a.jpg\n",
            "v9 1\njpg 512 100 a.jpg\n",
            "v1.1 1\njpg 512 100\n",
        ] {
            assert_eq!(tar(text), None, "{text:?}");
        }
        for text in [
            "1 5\n",
            "0 5\n6 5\n",
            "0 x\n",
            "0\n",
            "0 18446744073709551615\n1 1",
        ] {
            assert_eq!(tfrecord(text), None, "{text:?}");
        }
    }

    #[test]
    fn an_index_of_a_tfrecord_file_reads_as_it_was_written() {
        let starts = [0, 30, 31, 900];

        let text = of_tfrecord(&starts);

        assert_eq!(text, "0 30\n30 1\n31 869\n");
        assert_eq!(tfrecord(&text).as_deref(), Some(&starts[..]));
    }

    #[cfg(unix)]
    #[test]
    fn an_index_that_is_a_link_is_read_only_if_links_are_followed() {
        let root = tempfile::tempdir().expect("a folder");
        let shard = root.path().join("a.tar");
        fs::write(&shard, "12345").expect("writes");
        let blob = crate::store::LocalFile::new(&shard).expect("is there");
        fs::write(root.path().join("other"), "v1.2 0\n").expect("writes");
        for name in ["a.idx", "a.tar.idx"] {
            let link = root.path().join(name);
            std::os::unix::fs::symlink("other", &link).expect("links");

            assert_eq!(text(&blob, true).as_deref(), Some("v1.2 0\n"), "{name}");
            assert_eq!(text(&blob, false), None, "{name}");

            fs::remove_file(&link).expect("removes");
            fs::write(&link, "v1.2 0\n").expect("writes");
            assert_eq!(text(&blob, false).as_deref(), Some("v1.2 0\n"), "{name}");
            fs::remove_file(&link).expect("removes");
        }
    }
}
