//! JPEGs with restart markers, of which regions are decoded by tiles (`decode/jpeg/restart.rs`).

use infeed_raw::jpeg_restart::{self, RestartTask};

use crate::decode::{ColorMode, Decoder, Format, Header, Limits, Request};
use crate::sample::Image;

/// Width of a tile in MCUs that is aimed at unless another is asked for.
///
/// Over 300 photographs of ImageNet and regions of `RandomResizedCrop(224)`, decoding a region took
/// least processor time at 4: 0.59 ms, against 0.63, 0.60 and 0.64 ms at 1, 2 and 8, 0.70 ms at 16, and
/// 0.85 ms without markers; files grew by 7.4, 3.7, 3.3, 0.9 and 0.4 % at 1, 2, 4, 8 and 16
/// (`examples/restart_tiles.rs`, AMD EPYC, November 2026).
pub const TILE: u16 = 4;

/// Most scans of a progressive original, as for decoding.
const MAX_SCANS: u16 = 100;

/// MCUs from one restart marker to the next: the divisor of a row's MCUs whose ratio to the width
/// wanted is least. Two cannot be equally near: then the width wanted would itself divide the row.
///
/// Rows of a prime number of MCUs have no divisor but 1 and the whole row. Rows of 13 stay whole at
/// 4 wanted: what lies above and below a region is still saved. Rows of 23 get a marker after each
/// MCU, which costs more bytes and less time than whole rows do.
pub(super) fn interval(mcus_across: u32, wanted: u16) -> u16 {
    let wanted = u64::from(wanted.max(1));
    let far = |divisor: u64| (divisor.max(wanted), divisor.min(wanted));
    let mut best = 1;
    for divisor in (1..=u64::from(mcus_across)).filter(|d| u64::from(mcus_across) % d == 0) {
        let ((a, b), (c, d)) = (far(divisor), far(best));
        if a * d <= c * b {
            best = divisor;
        }
    }
    // An image has 8192 MCUs in a row at most.
    u16::try_from(best).unwrap_or(u16::MAX)
}

/// The JPEG rewritten with restart markers and the same coefficients, tiles as near to `wanted` MCUs
/// as its width allows. None where it is no JPEG or cannot be rewritten without loss: one that is
/// damaged in any way that libjpeg-turbo notices, whose components do not fit one scan, or that lacks
/// scans, over which decoders smooth. Such files are good as they are.
pub fn with_restarts(bytes: &[u8], header: &Header, wanted: u16) -> Option<Vec<u8>> {
    if header.format != Format::Jpeg {
        return None;
    }
    let pixels = header.size.pixels();
    // Components sampled less often only need less. One MCU of 32x32 more to each side.
    let padded = (u64::from(header.size.width) + 64) * (u64::from(header.size.height) + 64);
    let coefficients = padded * header.channels as u64 * 2;
    let task = RestartTask {
        interval: interval(header.mcus_across()?, wanted),
        max_pixels: pixels,
        max_scans: MAX_SCANS,
        max_memory_mib: u16::try_from((coefficients >> 20) + 16).unwrap_or(u16::MAX),
    };
    let rewritten = jpeg_restart::with_restarts(bytes, &task).ok()?;
    // The coefficients are the same, but without later scans those of the original are not final.
    let is_same = !header.has_several_scans() || pixels_of(bytes)? == pixels_of(&rewritten)?;
    is_same.then_some(rewritten)
}

fn pixels_of(bytes: &[u8]) -> Option<Image> {
    let mut decoder = Decoder::new();
    let limits = Limits {
        max_pixels: u64::MAX,
    };
    let header = decoder.header(bytes, false, &limits).ok()?;
    let mut image = Image::default();
    let request = Request::whole(&header, ColorMode::Rgb);
    decoder.decode(bytes, &header, &request, &mut image).ok()?;
    Some(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> Vec<u8> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/conformance/");
        std::fs::read(format!("{folder}{name}")).expect("a file of the suite")
    }

    fn rewritten(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut decoder = Decoder::new();
        let header = decoder.header(bytes, false, &Limits::default());
        with_restarts(bytes, &header.expect("a header"), TILE)
    }

    #[test]
    fn a_progressive_file_is_rewritten_unless_it_lacks_scans() {
        let bytes = file("s420p.jpg");
        let starts = |pair: &&[u8]| *pair == [0xFF, 0xDA];
        let scans = bytes.windows(2).filter(starts).count();
        assert!(scans > 3);
        let mut last = bytes
            .windows(2)
            .enumerate()
            .filter(|(_, pair)| starts(pair));
        let (third, _) = last.nth(2).expect("a third scan");
        let fewer = [&bytes[..third], &[0xFF, 0xD9]].concat();

        let whole = rewritten(&bytes).expect("complete");

        assert_eq!(pixels_of(&whole), pixels_of(&bytes));
        assert!(pixels_of(&fewer).is_some(), "decoders show what is there");
        assert_eq!(rewritten(&fewer), None);
    }

    #[test]
    fn what_is_no_jpeg_or_is_damaged_is_left_as_it_is() {
        assert_eq!(rewritten(&file("c2b08.png")), None);
        let bytes = file("s444.jpg");
        let cut = [&bytes[..bytes.len() / 2], &[0xFF, 0xD9]].concat();
        assert_eq!(rewritten(&cut), None);
    }

    #[test]
    fn the_interval_divides_the_row_and_is_nearest_to_what_is_wanted() {
        for (mcus, wanted, interval) in [
            (32, 8, 8),
            (24, 8, 8),
            (63, 8, 9),
            (74, 8, 2),
            (20, 8, 10),
            (36, 8, 9),
            (23, 8, 23),
            (13, 4, 13),
            (23, 4, 1),
            (1, 8, 1),
            (12, 3, 3),
            (32, 1, 1),
            (24, 100, 24),
        ] {
            assert_eq!(super::interval(mcus, wanted), interval, "{mcus}, {wanted}");
        }
    }
}
