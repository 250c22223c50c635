//! Files of audio: a range gives what the whole gives.
#![no_main]

use infeed_codec::audio::{decode, header};
use infeed_fuzz::not_panicked;
use libfuzzer_sys::fuzz_target;

/// Maximum number of samples that are decoded.
const MAX_SAMPLES: u64 = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let Ok(header) = not_panicked(header(bytes)) else {
        return;
    };
    let channels = u64::from(header.channels);
    if header.frames * channels > MAX_SAMPLES {
        return;
    }
    let pick = |at: usize, n: u64| u64::from(bytes[bytes.len() - 1 - at % bytes.len()]) * n / 255;
    let start = pick(3, header.frames);
    let end = start + pick(5, header.frames - start);
    let (mut whole, mut part) = (Vec::new(), Vec::new());
    let all = not_panicked(decode(bytes, &header, 0..u64::MAX, &mut whole));
    let some = not_panicked(decode(bytes, &header, start..end, &mut part));
    if all.is_err() {
        return;
    }
    some.expect("the range of a file that decodes");
    assert_eq!(whole.len() as u64, header.frames * channels);
    let expected = &whole[(start * channels) as usize..(end * channels) as usize];
    let bits = |samples: &[f32]| samples.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&part), bits(expected), "{start}..{end}");
});
