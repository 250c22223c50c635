//! Data of files that their pixels do not have, and files with several images.

use std::io::Cursor;

use ::png::ColorType;
use ::tiff::encoder::{TiffEncoder, colortype};
use ::tiff::tags::Tag;

use super::*;

const SIDE: u32 = 4;

/// Returns the number of samples of an image of `SIDE` x `SIDE` pixels.
fn count(channels: usize) -> usize {
    channels * (SIDE * SIDE) as usize
}

fn png(color: ColorType, samples: &[u16]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut file, SIDE, SIDE);
    encoder.set_color(color);
    encoder.set_depth(::png::BitDepth::Sixteen);
    // A lossless record of so few pixels is not smaller than a compressed file.
    encoder.set_compression(::png::Compression::NoCompression);
    let bytes: Vec<u8> = samples.iter().flat_map(|s| s.to_be_bytes()).collect();
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&bytes).unwrap();
    writer.finish().unwrap();
    file
}

fn tiff<C: colortype::ColorType<Inner = u16>>(samples: &[u16]) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    let mut encoder = TiffEncoder::new(&mut file).unwrap();
    encoder.write_image::<C>(SIDE, SIDE, samples).unwrap();
    file.into_inner()
}

fn losses(bytes: &[u8], mode: ColorMode) -> Vec<Loss> {
    let mut decoder = Decoder::new();
    decode(&mut decoder, bytes, mode, None).unwrap();
    decoder.losses().collect()
}

/// Files of 16 bits with these samples in each channel but alpha, which is opaque.
fn files_of(value: impl Fn(usize) -> u16) -> Vec<Vec<u8>> {
    let samples = |channels: usize| -> Vec<u16> {
        let is_alpha = |n: usize| channels.is_multiple_of(2) && n % channels == channels - 1;
        (0..count(channels))
            .map(|n| if is_alpha(n) { 65_535 } else { value(n) })
            .collect()
    };
    vec![
        png(ColorType::Grayscale, &samples(1)),
        png(ColorType::GrayscaleAlpha, &samples(2)),
        png(ColorType::Rgb, &samples(3)),
        png(ColorType::Rgba, &samples(4)),
        tiff::<colortype::Gray16>(&samples(1)),
        tiff::<colortype::RGB16>(&samples(3)),
        tiff::<colortype::RGBA16>(&samples(4)),
    ]
}

#[test]
fn low_bytes_that_8_bits_do_not_have_are_a_loss_with_their_range() {
    let loss = Loss::LowBytes {
        least: 7,
        most: 4095,
    };
    let value = |n: usize| if n.is_multiple_of(5) { 7 } else { 4095 };
    for (number, file) in files_of(value).iter().enumerate() {
        for mode in [ColorMode::Rgb, ColorMode::Gray, ColorMode::Rgba] {
            assert_eq!(losses(file, mode), [loss], "file {number}, {}", mode.name());
        }
        assert!(
            losses(file, ColorMode::Stored16).is_empty(),
            "file {number}"
        );
    }

    let record = crate::lossless::encode(&files_of(value)[2], &mut Decoder::new());
    assert_eq!(losses(&record.unwrap().bytes, ColorMode::Rgb), [loss]);
    assert_eq!(
        loss.message("image"),
        "values 7 to 4095 of 65535 become 0 to 15 of 255; use .decode(image=\"stored16\") to keep \
         16 bits"
    );
}

#[test]
fn values_that_8_bits_hold_are_no_loss() {
    for value in [|n: usize| n as u16 * 257, |n: usize| (n as u16) << 8] {
        for (number, file) in files_of(value).iter().enumerate() {
            assert!(losses(file, ColorMode::Rgb).is_empty(), "file {number}");
        }
    }
}

#[test]
fn a_loss_belongs_to_its_image_only() {
    let mut decoder = Decoder::new();
    let [lossy, exact] = [0x1234, 0x1200].map(|value| {
        let samples = vec![value; count(1)];
        png(ColorType::Grayscale, &samples)
    });

    decode(&mut decoder, &lossy, ColorMode::Rgb, None).unwrap();
    assert_eq!(decoder.losses().count(), 1);
    decode(&mut decoder, &exact, ColorMode::Rgb, None).unwrap();
    assert_eq!(decoder.losses().count(), 0);
}

/// Returns an APNG of a number of frames.
fn apng(frames: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut file, SIDE, SIDE);
    encoder.set_animated(frames, 0).unwrap();
    let mut writer = encoder.write_header().unwrap();
    for frame in 0..frames {
        writer
            .write_image_data(&vec![frame as u8; count(1)])
            .unwrap();
    }
    writer.finish().unwrap();
    file
}

/// Returns a WebP whose frames are the image of a lossless file.
fn animated_webp(frames: usize) -> Vec<u8> {
    let still = read("lossless.webp");
    let header = Decoder::new()
        .header(&still, false, &Limits::default())
        .unwrap();
    let [height, width] = [header.size.height, header.size.width].map(|side| side - 1);
    let bits = |number: u32| number.to_le_bytes()[..3].to_vec();
    let chunk = |kind: &[u8], payload: &[u8]| {
        let length = (payload.len() as u32).to_le_bytes();
        let pad = vec![0; payload.len() % 2];
        [kind, &length, payload, &pad].concat()
    };
    let canvas = [vec![0x12, 0, 0, 0], bits(width), bits(height)].concat();
    let at = still.windows(4).position(|kind| kind == b"VP8L").unwrap();
    let place = [vec![0; 6], bits(width), bits(height), bits(40), vec![0]].concat();
    let frame = chunk(b"ANMF", &[&place, &still[at..]].concat());
    let body = [
        b"WEBP".to_vec(),
        chunk(b"VP8X", &canvas),
        chunk(b"ANIM", &[0; 6]),
        frame.repeat(frames),
    ];
    chunk(b"RIFF", &body.concat())
}

/// A GIF of 12 x 10 pixels with frames of 4 x 3 pixels at column 5 and row 2.
fn gif(transparent: Option<u8>, frames: usize) -> Vec<u8> {
    let mut file = Vec::new();
    let palette = [0, 0, 0, 10, 20, 200, 250, 10, 10, 10, 250, 10];
    let mut encoder = ::gif::Encoder::new(&mut file, 12, 10, &palette).unwrap();
    for _ in 0..frames {
        let pixels = vec![2, 3, 2, 3, 3, 3, 2, 2, 0, 1, 2, 3];
        let mut frame = ::gif::Frame::from_indexed_pixels(4, 3, pixels, transparent);
        (frame.left, frame.top) = (5, 2);
        encoder.write_frame(&frame).unwrap();
    }
    drop(encoder);
    file
}

#[test]
fn an_animation_gives_its_first_frame_and_the_others_are_a_loss() {
    type Animation = fn(u32) -> Vec<u8>;
    let kinds: [Animation; 3] = [
        apng,
        |frames| animated_webp(frames as usize),
        |frames| gif(None, frames as usize),
    ];
    for (number, animation) in kinds.iter().enumerate() {
        let mut decoder = Decoder::new();
        let pixels = |decoder: &mut Decoder, frames| {
            decode(decoder, &animation(frames), ColorMode::Rgb, None).unwrap()
        };

        let one = pixels(&mut decoder, 1);
        assert_eq!(decoder.losses().count(), 0, "{number}");
        assert_eq!(pixels(&mut decoder, 3), one, "{number}");
        assert_eq!(decoder.losses().collect::<Vec<_>>(), [Loss::Frames]);
    }
}

#[test]
fn a_gif_frame_smaller_than_its_canvas_is_surrounded_like_in_pillow() {
    let pixel = |transparent, mode, y: usize, x: usize| {
        let image = decode(&mut Decoder::new(), &gif(transparent, 1), mode, None).unwrap();
        assert_eq!((image.height(), image.width()), (10, 12));
        let channels = image.channels;
        image.row(y)[x * channels..(x + 1) * channels].to_vec()
    };

    // Without transparency, the surroundings have index 0, and with it the transparent index.
    assert_eq!(pixel(None, ColorMode::Rgba, 0, 0), [0, 0, 0, 255]);
    assert_eq!(pixel(Some(3), ColorMode::Rgba, 0, 0), [10, 250, 10, 0]);
    // Alpha is dropped, and the colour of a transparent pixel stays.
    assert_eq!(pixel(Some(3), ColorMode::Rgb, 0, 0), [10, 250, 10]);
    assert_eq!(pixel(Some(3), ColorMode::Rgb, 2, 6), [10, 250, 10]);
    assert_eq!(pixel(Some(1), ColorMode::Rgb, 9, 11), [10, 20, 200]);
    assert_eq!(pixel(Some(1), ColorMode::Rgb, 2, 5), [250, 10, 10]);
}

#[test]
fn a_gif_frame_beyond_its_canvas_enlarges_the_image_up_to_the_limit() {
    let mut file = gif(None, 1);
    let at = file
        .windows(5)
        .position(|w| w == [0x2C, 5, 0, 2, 0])
        .unwrap();
    file[at + 1] = 10;

    let image = decode(&mut Decoder::new(), &file, ColorMode::Rgb, None).unwrap();
    assert_eq!((image.height(), image.width()), (10, 14));

    file[at + 1..at + 5].fill(0xFF);
    let limits = Limits {
        max_pixels: 1 << 20,
    };
    let error = Decoder::new().header(&file, false, &limits).unwrap_err();
    assert!(matches!(error, DecodeError::TooLarge { .. }), "{error}");
}

/// Returns a TIFF with pages of these widths.
fn pages(widths: &[u32]) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    let mut encoder = TiffEncoder::new(&mut file).unwrap();
    for &width in widths {
        let samples = vec![width as u8; (width * SIDE) as usize];
        encoder
            .write_image::<colortype::Gray8>(width, SIDE, &samples)
            .unwrap();
    }
    file.into_inner()
}

#[test]
fn a_stack_of_tiff_pages_is_an_error_and_pages_of_other_sizes_are_a_loss() {
    assert!(losses(&pages(&[4]), ColorMode::Rgb).is_empty());
    assert_eq!(losses(&pages(&[4, 2]), ColorMode::Rgb), [Loss::Pages]);

    for widths in [&[4, 4][..], &[4, 2, 4]] {
        let error = Decoder::new()
            .header(&pages(widths), false, &Limits::default())
            .unwrap_err();
        assert!(
            error.to_string().starts_with(
                "a TIFF with several pages of one size cannot be decoded; save each page as a file"
            ),
            "{error}"
        );
    }
}

/// Returns a TIFF of 8 bits with a number of channels, and the given tags for those after the first
/// or third.
fn bands(channels: u16, photometric: u16, extra: &[u16]) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    let mut encoder = TiffEncoder::new(&mut file).unwrap();
    let mut directory = encoder.image_directory().unwrap();
    let samples = vec![7_u8; count(channels.into())];
    let offset = directory.write_data(&samples[..]).unwrap() as u32;
    for (tag, value) in [(Tag::ImageWidth, SIDE), (Tag::ImageLength, SIDE)] {
        directory.write_tag(tag, value).unwrap();
    }
    let bits = vec![8_u16; channels.into()];
    directory.write_tag(Tag::BitsPerSample, &bits[..]).unwrap();
    directory
        .write_tag(Tag::PhotometricInterpretation, photometric)
        .unwrap();
    directory.write_tag(Tag::SamplesPerPixel, channels).unwrap();
    directory.write_tag(Tag::StripOffsets, offset).unwrap();
    let length = samples.len() as u32;
    directory.write_tag(Tag::StripByteCounts, length).unwrap();
    directory.write_tag(Tag::RowsPerStrip, SIDE).unwrap();
    if !extra.is_empty() {
        directory.write_tag(Tag::ExtraSamples, extra).unwrap();
    }
    directory.finish().unwrap();
    file.into_inner()
}

#[test]
fn channels_of_a_tiff_without_a_meaning_are_an_error_or_a_loss() {
    let (gray, rgb) = (1, 2);
    for (channels, photometric, extra) in [
        (2, gray, &[][..]),
        (2, gray, &[0]),
        (3, gray, &[0, 0]),
        (5, gray, &[0, 0, 0, 0]),
    ] {
        let file = bands(channels, photometric, extra);
        let error = decode(&mut Decoder::new(), &file, ColorMode::Rgb, None).unwrap_err();
        let expected = format!("TIFF with {channels} 8-bit samples per pixel cannot be decoded");
        assert!(error.to_string().contains(&expected), "{error}");
    }

    assert!(losses(&bands(2, gray, &[2]), ColorMode::Rgb).is_empty());
    assert!(losses(&bands(4, rgb, &[2]), ColorMode::Rgb).is_empty());
    for (channels, extra) in [(4, &[0][..]), (5, &[0, 0]), (5, &[2, 0]), (8, &[0; 5])] {
        let file = bands(channels, rgb, extra);
        for mode in [ColorMode::Rgb, ColorMode::Stored] {
            assert_eq!(losses(&file, mode), [Loss::FurtherChannels], "{channels}");
        }
    }
}

#[test]
fn pnm_files_of_every_kind_and_maximum_are_decoded_as_pillow_decodes_them() {
    let pixels = |bytes: &[u8], mode| {
        let image = decode(&mut Decoder::new(), bytes, mode, None).unwrap();
        (image.channels, image.data)
    };
    let gray = |bytes: &[u8]| pixels(bytes, ColorMode::Gray).1;

    assert_eq!(gray(b"P1\n# a comment\n2 1\n0 1\n"), [255, 0]);
    assert_eq!(gray(b"P2\n3 1\n255\n0 7 255\n"), [0, 7, 255]);
    assert_eq!(gray(b"P4\n2 1\n\x40"), [255, 0]);
    assert_eq!(gray(b"P5 3 1 255 \x00\x07\xFF"), [0, 7, 255]);
    // Halves are rounded to even: 25.5, 76.5 and 127.5.
    assert_eq!(gray(b"P5\n3 1\n10\n\x01\x03\x05"), [26, 76, 128]);
    assert_eq!(gray(b"P5\n2 1\n4095\n\x0F\xFF\x01\x00"), [255, 16]);
    let colors = b"P6\n1 1\n255\n\x01\x02\x03";
    assert_eq!(pixels(colors, ColorMode::Rgb), (3, vec![1, 2, 3]));
    assert_eq!(
        pixels(b"P3\n1 1\n255\n1 2 3\n", ColorMode::Rgb),
        (3, vec![1, 2, 3])
    );

    // Stored samples are not scaled.
    let labels = b"P5\n3 1\n20\n\x00\x07\x14";
    assert_eq!(pixels(labels, ColorMode::Stored), (1, vec![0, 7, 20]));
    let wide = pixels(b"P5\n2 1\n4095\n\x0F\xFF\x01\x02", ColorMode::Stored16);
    let values: Vec<u8> = [4095_u16, 258]
        .iter()
        .flat_map(|v| v.to_ne_bytes())
        .collect();
    assert_eq!(wide, (1, values));
}

#[test]
fn hostile_pnm_headers_are_errors_before_anything_is_allocated() {
    let fails = |bytes: &[u8]| {
        let mut decoder = Decoder::new();
        check_and_decode(&mut decoder, bytes, ColorMode::Rgb, None).unwrap_err()
    };

    for bytes in [&b"P5\n100000 100000\n255\n"[..], b"P1\n100000 100000\n"] {
        assert!(matches!(fails(bytes), DecodeError::TooLarge { .. }));
    }
    for bytes in [&b"P5\n9 9\n255\nabc"[..], b"P6\n9 9\n65535\n", b"P5\n9"] {
        assert_eq!(fails(bytes), DecodeError::Truncated);
    }
    for bytes in [
        &b"P5\n4294967295 4294967295\n255\n"[..],
        b"P6\n99999999999 1\n255\n",
        b"P5\n0 4\n255\n",
        b"P5\n2 2\n0\nabcd",
        b"P5\n2 2\n65536\nabcdefgh",
        b"P2\n2 2\n255\n1 2 3 ",
        b"P2\n2 2\n255\n1 2 3 x",
        b"P5\n-1 4\n255\n",
    ] {
        assert_no_panic(&fails(bytes));
    }
}

#[test]
fn a_damaged_chunk_without_pixels_suggests_the_option_that_ignores_it() {
    let mut file = png(ColorType::Grayscale, &vec![0x1200; count(1)]);
    let text = [&b"tEXtkey\0value"[..]].concat();
    let length = (text.len() as u32 - 4).to_be_bytes();
    let chunk = [&length[..], &text, &[0; 4]].concat();
    file.splice(33..33, chunk);

    let error = decode(&mut Decoder::new(), &file, ColorMode::Rgb, None).unwrap_err();

    assert_eq!(
        error.to_string(),
        "damaged: the checksum of the tEXt chunk at byte 33 is wrong; the chunk has no pixels, so \
         .decode(verify=False) reads the image"
    );
}
