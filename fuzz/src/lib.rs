//! What the fuzz targets share.
//!
//! `make fuzz` runs all targets, `scripts/fuzz --minutes 5 shard_tar` one of them. Seeds lie in
//! `seeds`, in a folder with the name of the target; decoders also begin with the files of
//! `testdata/conformance` or `testdata/audio`. Inputs that once broke something lie in `regressions`. Ordinary tests of
//! `infeed` run those and the seeds.

pub mod annotations;
pub mod shards;

use std::sync::Arc;

use infeed_codec::decode::{
    ColorMode, DctScale, DecodeError, Decoder, Format, Header, Limits, Request,
};
use infeed_core::exec::budget::BudgetError;
use infeed_core::sample::{Image, Region, Size};
use infeed_source::Source;
use infeed_source::store::Blob;

/// Passes a result on.
///
/// # Panics
///
/// If a codec panicked: the decoder's guard hides that from the fuzzer.
pub fn not_panicked<T>(done: Result<T, DecodeError>) -> Result<T, DecodeError> {
    if let Err(error @ DecodeError::Panicked { .. }) = &done {
        panic!("{error}");
    }
    done
}

/// The limits of a decoder here.
pub const LIMITS: Limits = Limits {
    max_pixels: 1 << 16,
};

/// Returns a decoder and the header, of records that pass the checks and are small.
pub fn prepare(bytes: &[u8], orient: bool) -> Option<(Decoder, Header)> {
    let mut decoder = Decoder::new();
    let header = not_panicked(decoder.header(bytes, orient, &LIMITS)).ok()?;
    not_panicked(decoder.check(bytes, &header, false)).ok()?;
    Some((decoder, header))
}

/// Decodes bytes of one format: every mode, and a region, which must equal the whole.
///
/// # Panics
///
/// If the codec panics or the region differs.
pub fn one_format(bytes: &[u8], format: Format) {
    if Format::of(bytes) != Some(format) {
        return;
    }
    if let Some((mut decoder, header)) = prepare(bytes, true) {
        region_equals_whole(&mut decoder, bytes, &header, DctScale::Full);
        every_mode(&mut decoder, bytes, &header);
    }
}

/// Decodes the whole image in each mode; any result is right, and none may panic.
pub fn every_mode(decoder: &mut Decoder, bytes: &[u8], header: &Header) {
    let modes = [
        ColorMode::Rgb,
        ColorMode::Gray,
        ColorMode::Rgba,
        ColorMode::Stored,
        ColorMode::Stored16,
    ];
    for mode in modes {
        let mut image = Image::default();
        let request = Request::whole(header, mode);
        let _ = not_panicked(decoder.decode(bytes, header, &request, &mut image));
    }
}

/// Decodes two files that must have the same pixels.
///
/// # Panics
///
/// If they differ, or only the second errs.
pub fn same_pixels(one: &[u8], other: &[u8]) {
    let decoded = |bytes: &[u8]| {
        let (mut decoder, header) = prepare(bytes, true)?;
        let mut image = Image::default();
        let request = Request::whole(&header, ColorMode::Rgb);
        decoder.decode(bytes, &header, &request, &mut image).ok()?;
        Some(image)
    };
    if let Some(image) = decoded(one) {
        assert!(decoded(other) == Some(image), "other pixels");
    }
}

/// Decodes a region that the bytes choose, and the whole image, and compares.
///
/// # Panics
///
/// If they differ, or only the region errs.
pub fn region_equals_whole(decoder: &mut Decoder, bytes: &[u8], header: &Header, scale: DctScale) {
    let size = header.scaled_size(scale);
    let mut request = Request {
        scale,
        ..Request::whole(header, ColorMode::Rgb)
    };
    request.region = size.whole();
    let mut whole = Image::default();
    let all = not_panicked(decoder.decode(bytes, header, &request, &mut whole));

    let pick = |at: usize, n: u32| u32::from(bytes[bytes.len() - 1 - at % bytes.len()]) * n / 256;
    let (top, left) = (pick(3, size.height), pick(5, size.width));
    let height = 1 + pick(7, size.height - top);
    let width = 1 + pick(9, size.width - left);
    request.region = Region {
        top,
        left,
        size: Size { height, width },
    };
    let mut part = Image::default();
    let some = not_panicked(decoder.decode(bytes, header, &request, &mut part));

    match (all, some) {
        (Ok(_), Ok(_)) => {
            for y in 0..part.height() {
                let from = left as usize * 3;
                let row = &whole.row(top as usize + y)[from..from + width as usize * 3];
                assert_eq!(part.row(y), row, "{:?}, row {y}", request);
            }
        }
        (Ok(_), Err(error)) => panic!("only the region errs: {error}"),
        (Err(_), _) => {}
    }
}

/// A file whose bytes are the input.
#[derive(Debug)]
pub struct Input(pub bytes::Bytes);

impl Blob for Input {
    fn name(&self) -> &str {
        "input"
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn stamp(&self) -> String {
        String::new()
    }

    fn read(&self, range: std::ops::Range<u64>) -> std::io::Result<bytes::Bytes> {
        let (start, end) = (range.start as usize, range.end as usize);
        if start > end || end > self.0.len() {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(self.0.slice(start..end))
    }
}

/// The input as the one file of a dataset.
pub fn input(bytes: &[u8]) -> Vec<Arc<dyn Blob>> {
    vec![Arc::new(Input(bytes::Bytes::copy_from_slice(bytes)))]
}

/// Reads the first records, as long as they ask for no more memory than a small loader has.
pub fn first_records(source: &dyn Source) {
    const LIMIT: u64 = 16 << 20;
    let run: Vec<u64> = (0..source.len().min(16)).collect();
    for read in source.plan(&run, LIMIT) {
        let mut admit = |bytes: u64| match bytes <= LIMIT {
            true => Ok(()),
            false => Err(BudgetError::TooLarge { limit: LIMIT }),
        };
        let _ = source.read(&read, &mut admit, &mut |_, found| {
            if let Ok(record) = found {
                assert_eq!(record.fields.len(), source.fields().len());
            }
        });
    }
}
