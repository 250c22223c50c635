//! The manifest of a packed dataset: its description, which another run must share, and its shards.

use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::count::Totals;
use super::entry::Entry;
use super::options::PackOptions;
use super::overlap::absolute;
use super::selection::RecordSelection;
use infeed::pipeline::{Pipeline, SourceSpec};
use infeed_codec::transform::Transform;
use infeed_core::error::Error;
use infeed_core::random::hash_bytes;

/// Version of the manifest.
const VERSION: u32 = 1;

/// Maximum size in bytes of a manifest in a bucket: one with a million shards.
pub(super) const MAX_BYTES: u64 = 1 << 30;

/// Source and settings of a packed dataset. Equal descriptions produce equal files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Description {
    to: String,
    /// The source, with only the last component of each path. So the manifest contains no path of
    /// the machine, and it has the same bytes in every folder and bucket.
    source: serde_json::Value,
    /// Checksum of the source with absolute paths. Absent in manifests of older versions, whose
    /// `source` has absolute paths.
    #[serde(default)]
    source_id: Option<String>,
    /// Number of records in the source.
    of: u64,
    /// Numbers of the chosen records. Absent if all are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chosen: Option<Vec<u64>>,
    orient: bool,
    modes: serde_json::Value,
    transforms: Vec<Transform>,
    image: String,
    mask: String,
    /// Width of the tiles of JPEGs in MCUs. Absent without restart markers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    restart: Option<u16>,
    /// Seed of the order. Absent for the source's order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shuffle: Option<u64>,
    /// Bytes of a shard, for formats with shards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shard_bytes: Option<u64>,
    /// Records per file, for formats with a fixed number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rows: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    verify: bool,
    /// A checksum of some records, for a source in memory, whose name identifies nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    values: Option<String>,
}

/// Content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    version: u32,
    infeed: String,
    #[serde(flatten)]
    description: Description,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    records: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes_in: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes_out: Option<u64>,
    /// Number of bad records that were left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bad: Option<u64>,
    /// Class names by label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    classes: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    shards: Vec<Entry>,
}

/// Results for the manifest of a complete dataset.
pub(super) struct ManifestContents<'a> {
    pub(super) totals: &'a Totals,
    pub(super) classes: Option<&'a [String]>,
    pub(super) shards: &'a [Entry],
}

impl Description {
    pub(super) fn new(
        pipeline: &Pipeline,
        chosen: &RecordSelection,
        options: &PackOptions,
        values: Option<String>,
    ) -> Description {
        let decode = pipeline.decode.clone().unwrap_or_default();
        let json = |value| serde_json::to_value(value).unwrap_or_default();
        let mut source = pipeline.source.clone();
        // Sources with different spellings of one path are equal.
        source.map_paths(absolute);
        let source_id = checksum_of(&json_of(&source));
        source.map_paths(|path| path.file_name().unwrap_or_default().into());
        Description {
            to: options.to.name().to_owned(),
            source: json_of(&source),
            source_id: Some(source_id),
            of: chosen.all(),
            chosen: chosen.some().map(<[u64]>::to_vec),
            orient: decode.orient,
            modes: json(&decode.modes),
            transforms: options.transforms.clone(),
            image: options.image.to_string(),
            mask: options.mask.to_string(),
            restart: options.restart,
            shuffle: options.shuffle,
            shard_bytes: options.to.is_shards().then_some(options.shard_bytes),
            rows: options.rows(pipeline),
            verify: options.verify,
            values,
        }
    }

    /// Returns the manifest of a dataset, without results as long as it is incomplete.
    pub(super) fn manifest(&self, done: Option<&ManifestContents<'_>>) -> Bytes {
        let totals = done.map(|done| done.totals);
        let manifest = Manifest {
            version: VERSION,
            infeed: env!("CARGO_PKG_VERSION").to_owned(),
            description: self.clone(),
            records: totals.map(|totals| totals.done - totals.bad),
            bytes_in: totals.map(|totals| totals.bytes_in),
            bytes_out: totals.map(|totals| totals.bytes_out),
            bad: totals.map(|totals| totals.bad),
            classes: done.and_then(|done| Some(done.classes?.to_vec())),
            shards: done.map_or(Vec::new(), |done| done.shards.to_vec()),
        };
        let mut text = serde_json::to_vec_pretty(&manifest)
            .expect("a manifest holds plain data with string keys");
        text.push(b'\n');
        text.into()
    }

    /// Returns the shards in a manifest of this dataset. `out` is its folder.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a manifest of another dataset, or with other settings.
    pub(super) fn shards_in(&self, out: &Path, manifest: &[u8]) -> Result<Vec<Entry>, Error> {
        let found: Option<Manifest> = serde_json::from_slice(manifest).ok();
        let differs = match &found {
            Some(found) if found.version == VERSION => found.description.difference(self),
            _ => Some("its manifest is from another version of infeed".to_owned()),
        };
        match differs {
            None => Ok(found.map_or(Vec::new(), |found| found.shards)),
            Some(difference) => {
                let problem = format!(
                    "{} was packed differently ({difference}); use a new folder, or remove that one",
                    out.display()
                );
                Err(Error::config("out", problem))
            }
        }
    }

    fn has_source_of(&self, wanted: &Description) -> bool {
        let id = self.source_id.clone();
        Some(id.unwrap_or_else(|| checksum_of(&self.source))) == wanted.source_id
    }

    /// Describes the first difference.
    fn difference(&self, wanted: &Description) -> Option<String> {
        let has_source = self.has_source_of(wanted);
        let (Ok(found), Ok(wanted)) = (serde_json::to_value(self), serde_json::to_value(wanted))
        else {
            return Some("its manifest cannot be read".to_owned());
        };
        let keys = [
            "source",
            "of",
            "chosen",
            "to",
            "transforms",
            "image",
            "mask",
            "restart",
            "shuffle",
            "shard_bytes",
            "rows",
            "verify",
            "orient",
            "modes",
            "values",
        ];
        keys.iter().find_map(|key| {
            let (there, here) = (&found[key], &wanted[key]);
            let is_equal = match *key {
                "source" => has_source,
                _ => there == here,
            };
            if is_equal {
                return None;
            }
            Some(match *key {
                "source" if there == here => {
                    format!("source: {there}, at another path")
                }
                "chosen" => "of other records".to_owned(),
                "values" => "of other values in memory".to_owned(),
                key => format!("{key}: {there} there, {here} requested"),
            })
        })
    }
}

fn json_of(source: &SourceSpec) -> serde_json::Value {
    serde_json::to_value(source).unwrap_or_default()
}

/// Returns the checksum of a source with absolute paths.
fn checksum_of(source: &serde_json::Value) -> String {
    format!("{:016x}", hash_bytes(source.to_string().as_bytes()))
}
