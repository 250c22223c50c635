//! Options of a run.

use infeed::pipeline::Pipeline;
use infeed_codec::transform::Transform;

use super::encoding::Encoding;
use super::targets::Target;

/// Default bytes of a shard. Large enough that opening one costs nothing, small enough that there
/// are hundreds to shuffle and distribute.
pub const SHARD_BYTES: u64 = 256_000_000;

/// Options of [`pack`](fn@super::pack).
#[derive(Clone, Debug, PartialEq)]
pub struct PackOptions {
    /// Output format.
    pub to: Target,
    /// Transforms for every record: only fixed changes of geometry (`Crop`, `CenterCrop`, `Resize`,
    /// `Pad`, `CropOrPad`). Masks are resized with the nearest filter.
    pub transforms: Vec<Transform>,
    /// Encoding of image fields in files.
    pub image: Encoding,
    /// Encoding of mask fields in files. Must be lossless.
    pub mask: Encoding,
    /// Width of a tile in MCUs for restart markers in JPEGs, which let readers decode a region from
    /// few tiles. [`TILE`](super::TILE) is a good width. JPEGs that would be copied are rewritten with the same
    /// coefficients and metadata. None: no markers.
    pub restart: Option<u16>,
    /// Threads that decode and encode. None: the number of cores that this process may use.
    pub workers: Option<usize>,
    /// For shards: seed of the order, which is the first epoch of a pipeline shuffled with this
    /// seed. None: the order of the source.
    pub shuffle: Option<u64>,
    /// Bytes at which a shard ends. A single record may have more.
    pub shard_bytes: u64,
    /// Rows of a `.npz` file. None: the batch size of the pipeline, if that is more than 1.
    pub rows: Option<u64>,
    /// Maximum number of bad records, which are left out and listed in [`BAD_LIST`](super::BAD_LIST). One more ends
    /// the run. None: any number. 0: the first bad record ends the run.
    pub max_bad: Option<u64>,
    /// Whether copied images are decoded completely first, to find files whose header is valid and
    /// whose pixels are not.
    pub verify: bool,
}

impl PackOptions {
    /// Copies everything: no transforms, [`Encoding::Keep`], all cores, the source's order, shards
    /// of [`SHARD_BYTES`], bad records left out.
    pub fn new(to: Target) -> PackOptions {
        PackOptions {
            to,
            transforms: Vec::new(),
            image: Encoding::Keep,
            mask: Encoding::Keep,
            restart: None,
            workers: None,
            shuffle: None,
            shard_bytes: SHARD_BYTES,
            rows: None,
            max_bad: None,
            verify: false,
        }
    }

    pub(super) fn threads(&self) -> usize {
        let workers = self.workers;
        workers
            .unwrap_or_else(infeed_raw::machine::usable_cores)
            .max(1)
    }

    /// Returns the rows of a file, if a file is a batch.
    pub(super) fn rows(&self, pipeline: &Pipeline) -> Option<u64> {
        let batch = pipeline.batch.size.or(pipeline.batch.per_rank);
        // A batch size of 1 is the default, so the user did not choose it.
        let batch = batch.filter(|&rows| rows > 1);
        let rows = self.rows.or(batch);
        rows.filter(|_| self.to.batch_file().is_some())
    }
}
