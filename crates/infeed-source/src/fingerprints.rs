//! Hashes that differ between datasets.

use crate::store::Blob;
use infeed_core::order::window::Groups;
use infeed_core::random::{hash, hash_bytes};
use infeed_core::sample::Field;

/// Fingerprint of only the number of records and the names of fields.
pub(crate) fn fingerprint(len: u64, fields: &[Field]) -> u64 {
    let names = fields.iter().map(|field| hash_bytes(field.name.as_bytes()));
    hash(&[len, hash(&names.collect::<Vec<_>>())])
}

/// Fingerprint of records in files that are read in groups. Their order follows from the order of
/// the files and from the ends of the groups, so names without folders, lengths and ends are part
/// of the hash.
pub(crate) fn files_fingerprint<'a>(
    fields: &[Field],
    files: impl Iterator<Item = &'a dyn Blob>,
    groups: &Groups,
) -> u64 {
    let files = files.map(|file| {
        let name = file.name().rsplit(['/', '\\']).next();
        hash(&[hash_bytes(name.unwrap_or_default().as_bytes()), file.len()])
    });
    hash(&[
        fingerprint(groups.records(), fields),
        hash(&files.collect::<Vec<_>>()),
        hash(&groups.ends),
    ])
}
