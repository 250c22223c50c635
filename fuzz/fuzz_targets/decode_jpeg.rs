//! JPEG: a region at every scale gives what the whole gives, or one of the two errs; so does one of
//! the file with restart markers, whole and damaged, whose regions are decoded by tiles.
#![no_main]

use infeed_codec::decode::{DctScale, Format};
use infeed_fuzz::{LIMITS, prepare, region_equals_whole, same_pixels};
use infeed_pack::with_restarts;
use infeed_raw::jpeg_batch::Baseline;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if Format::of(bytes) != Some(Format::Jpeg) {
        return;
    }
    let baseline = Baseline::read(bytes, LIMITS.max_pixels);
    every_scale(bytes);
    let Some((_, header)) = prepare(bytes, true) else {
        return;
    };
    if let Ok(device) = baseline {
        // Orientation may have exchanged rows and columns.
        let (a, b) = (device.width, device.height);
        let (c, d) = (header.size.width, header.size.height);
        assert!(
            (a, b) == (c, d) || (a, b) == (d, c),
            "another size for the device"
        );
    }
    let wanted = 1 + u16::from(bytes[bytes.len() / 2] % 8);
    let Some(mut tiles) = with_restarts(bytes, &header, wanted) else {
        return;
    };
    same_pixels(bytes, &tiles);
    every_scale(&tiles);
    // Damage where the input says, often next to a marker.
    let at = usize::from(u16::from_le_bytes([
        bytes[bytes.len() - 1],
        bytes[bytes.len() / 3],
    ]));
    let at = at % tiles.len();
    tiles[at] = bytes[bytes.len() / 4];
    every_scale(&tiles);
});

fn every_scale(bytes: &[u8]) {
    if let Some((mut decoder, header)) = prepare(bytes, true) {
        for scale in DctScale::ALL {
            region_equals_whole(&mut decoder, bytes, &header, scale);
        }
    }
}
