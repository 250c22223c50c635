//! Damaged files give an error or pixels, never a panic, and the same result for every request.

use super::*;

/// One small file for each path through the decoders.
const FILES: [&str; 31] = [
    "s420.jpg",
    "s422p.jpg",
    "s420r.jpg",
    "s420a.jpg",
    "gray.jpg",
    "cmykp.jpg",
    "orientation6.jpg",
    "c2b08.png",
    "c2b16i.png",
    "c3b04t.png",
    "c3b08i.png",
    "c0b01.png",
    "c6b08.png",
    "lossy.webp",
    "lossless.webp",
    "alpha.webp",
    "rgb.bmp",
    "palette.bmp",
    "palette.gif",
    "lzw.tif",
    "gray.tif",
    "gray16.tif",
    "tiff_p4_b.tif",
    "tiff_p8_lzw.tif",
    "tiff_g1_fax4.tif",
    "tiff_g4_tiled.tif",
    "tiff_big_l.tif",
    "tiff_planar_tiled.tif",
    "tiff_rgbx.tif",
    "tiff_cmyk.tif",
    "tiff_jpeg.tif",
];

#[test]
fn a_file_cut_short_anywhere_is_an_error_or_whole() {
    let mut decoder = Decoder::new();
    // A truncated strip of JPEG data decodes to gray after the end of the data.
    for file in FILES.iter().filter(|file| **file != "tiff_jpeg.tif") {
        let bytes = read(file);
        let whole = decode(&mut decoder, &bytes, ColorMode::Rgb, None).unwrap();
        for length in 0..bytes.len() {
            if let Ok(image) = decode(&mut decoder, &bytes[..length], ColorMode::Rgb, None) {
                assert!(
                    image == whole,
                    "{file} cut to {length} of {} bytes",
                    bytes.len()
                );
            }
        }
    }
}

#[test]
fn a_jpeg_cut_short_and_closed_again_is_an_error() {
    let mut decoder = Decoder::new();
    for file in ["s420.jpg", "s422p.jpg", "gray.jpg", "s420r.jpg"] {
        let bytes = read(file);
        let closed = [&bytes[..bytes.len() * 3 / 4], &[0xFF, 0xD9]].concat();

        let error = decode(&mut decoder, &closed, ColorMode::Rgb, None).unwrap_err();

        assert_eq!(error, DecodeError::Truncated, "{file}");
    }
}

#[test]
fn a_flipped_bit_in_a_png_is_an_error_or_leaves_the_pixels_right() {
    let mut decoder = Decoder::new();
    for file in FILES.iter().filter(|file| file.ends_with(".png")) {
        let bytes = read(file);
        let whole = decode(&mut decoder, &bytes, ColorMode::Rgb, None).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(image) = decode(&mut decoder, &flipped, ColorMode::Rgb, None) {
                assert!(image == whole, "{file}, bit {bit}");
            }
        }
    }
}

#[test]
fn a_region_of_a_damaged_file_equals_the_whole_or_the_whole_is_an_error() {
    let mut decoder = Decoder::new();
    let mut random = Random(3);
    for file in FILES {
        let bytes = read(file);
        for round in 0..400 {
            let mut damaged = bytes.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(damaged.len() as u32) as usize;
                damaged[at] ^= 1 << random.below(8);
            }
            let limits = Limits {
                max_pixels: 1 << 20,
            };
            let header = match decoder.header(&damaged, false, &limits) {
                Ok(header) => header,
                Err(error) => {
                    assert_no_panic(&error);
                    continue;
                }
            };
            // Without checksums, so that damage reaches the decoders.
            if decoder.check(&damaged, &header, false).is_err() {
                continue;
            }
            let mut request = Request::whole(&header, ColorMode::Rgb);
            let mut whole = Image::default();
            let all = decoder.decode(&damaged, &header, &request, &mut whole);
            request.region = random.region(header.size);
            let mut part = Image::default();
            let some = decoder.decode(&damaged, &header, &request, &mut part);

            match (all, some) {
                (Ok(_), Ok(_)) => {
                    assert!(part == cut(&whole, request.region), "{file}, round {round}");
                }
                (Ok(_), Err(error)) => panic!("{file}, round {round}: only a part errs: {error}"),
                (Err(error), _) => assert_no_panic(&error),
            }
        }
    }
}

#[test]
fn bytes_that_once_broke_a_decoder_no_longer_do() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/regressions");
    let mut decoder = Decoder::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        for mode in [
            ColorMode::Rgb,
            ColorMode::Rgba,
            ColorMode::Stored,
            ColorMode::Stored16,
        ] {
            let _ = decode(&mut decoder, &bytes, mode, None);
        }
    }
}
