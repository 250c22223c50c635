//! Adds restart markers to JPEGs, so that a reader can decode a region from its tiles
//! (`decode/jpeg/restart.rs`).

use infeed_raw::jpeg_restart::{self, RestartTask};

use infeed_codec::decode::{ColorMode, Decoder, Format, Header, Limits, Request};
use infeed_core::sample::Image;

/// Default width of a tile in MCUs.
///
/// Over 300 photographs of ImageNet and regions of `RandomResizedCrop(224)`, decoding a region took
/// the least processor time at 4: 0.59 ms, compared with 0.63, 0.60 and 0.64 ms at 1, 2 and 8, 0.70
/// ms at 16, and 0.85 ms without markers. Files grew by 7.4, 3.7, 3.3, 0.9 and 0.4 % at 1, 2, 4, 8
/// and 16 (`examples/restart_tiles.rs`, AMD EPYC, November 2026).
pub const TILE: u16 = 4;

/// Maximum number of scans of a progressive original, as for decoding.
const MAX_SCANS: u16 = 100;

/// Returns the MCUs between two restart markers: the divisor of a row's MCUs with the smallest
/// ratio to the wanted width. Two divisors cannot be equally near, because then the wanted width
/// would divide the row.
///
/// A row with a prime number of MCUs has only the divisors 1 and the whole row. With 4 wanted, rows
/// of 13 stay whole, which still saves the rows above and below a region. Rows of 23 get a marker
/// after each MCU, which costs more bytes and less time than whole rows.
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
    // An image has at most 8192 MCUs in a row.
    u16::try_from(best).unwrap_or(u16::MAX)
}

/// Rewrites a JPEG with restart markers and the same coefficients. Tiles are as near to `wanted`
/// MCUs as the width allows. None if the file is no JPEG or cannot be rewritten without loss: if
/// libjpeg-turbo reports any damage, if its components do not fit one scan, or if it lacks scans
/// that decoders would smooth over. The original of such a file stays usable.
pub fn with_restarts(bytes: &[u8], header: &Header, wanted: u16) -> Option<Vec<u8>> {
    if header.format != Format::Jpeg {
        return None;
    }
    let pixels = header.size.pixels();
    // An upper bound, because subsampled components need less. Adds one MCU of 32x32 on each side.
    let padded = (u64::from(header.size.width) + 64) * (u64::from(header.size.height) + 64);
    let coefficients = padded * header.channels as u64 * 2;
    let task = RestartTask {
        interval: interval(header.mcus_across()?, wanted),
        max_pixels: pixels,
        max_scans: MAX_SCANS,
        max_memory_mib: u16::try_from((coefficients >> 20) + 16).unwrap_or(u16::MAX),
    };
    let rewritten = jpeg_restart::with_restarts(bytes, &task).ok()?;
    // The coefficients are equal. Without later scans, however, those of the original are not
    // final.
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
    fn other_formats_and_damaged_files_are_not_rewritten() {
        assert_eq!(rewritten(&file("c2b08.png")), None);
        let bytes = file("s444.jpg");
        let cut = [&bytes[..bytes.len() / 2], &[0xFF, 0xD9]].concat();
        assert_eq!(rewritten(&cut), None);
    }

    #[test]
    fn the_interval_divides_the_row_and_is_nearest_to_the_wanted_width() {
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
