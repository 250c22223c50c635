//! Records of PNGs.

use png::{BitDepth, ColorType};

use super::*;
use crate::decode::lossless::planes::SampleShape;

const MODES: [ColorMode; 5] = [
    ColorMode::Rgb,
    ColorMode::Gray,
    ColorMode::Rgba,
    ColorMode::Stored,
    ColorMode::Stored16,
];

/// PNGs of the conformance data, with their names.
fn pngs() -> Vec<(String, Vec<u8>)> {
    let files = files("png");
    assert!(files.len() >= 60);
    files
}

/// A record of a file, even if it is larger than the file.
fn record(file: &[u8]) -> Vec<u8> {
    let image = pixels(file, None, u32::MAX, &mut Decoder::new()).unwrap();
    plane_writer::encode(file, &image).unwrap()
}

/// Like the engine: header, check and decode, without checksums.
fn decode_unchecked(
    bytes: &[u8],
    mode: ColorMode,
    orient: bool,
    region: Option<Region>,
) -> Result<Image, DecodeError> {
    let limits = Limits {
        max_pixels: 1 << 20,
    };
    let mut decoder = Decoder::new();
    let header = decoder.header(bytes, orient, &limits)?;
    decoder.check(bytes, &header, false)?;
    let mut request = Request::whole(&header, mode);
    request.region = region.unwrap_or(request.region);
    let mut out = Image::default();
    decoder.decode(bytes, &header, &request, &mut out)?;
    Ok(out)
}

/// Fails unless a record decodes like its file, in every mode and several regions.
fn assert_same(name: &str, file: &[u8], bytes: &[u8]) {
    for orient in [false, true] {
        for mode in MODES {
            let whole = decode_unchecked(file, mode, orient, None);
            let message = format!("{name} {mode:?} {orient}");
            match (decode_unchecked(bytes, mode, orient, None), &whole) {
                (Err(found), Err(expected)) => {
                    assert_eq!(found.to_string(), expected.to_string(), "{message}");
                }
                (found, expected) => assert!(found == *expected, "{message}"),
            }
            let Ok(Image { size, .. }) = whole else {
                continue;
            };
            let Size { height, width } = size;
            for (top, left) in [(0, 0), (height / 2, width / 3), (height - 1, width - 1)] {
                for (rows, columns) in [(1, 1), (height / 3 + 1, width / 2 + 1)] {
                    let region = Region {
                        top,
                        left,
                        size: Size {
                            height: rows.min(height - top),
                            width: columns.min(width - left),
                        },
                    };
                    assert!(
                        decode_unchecked(bytes, mode, orient, Some(region))
                            == decode_unchecked(file, mode, orient, Some(region)),
                        "{message} {region:?}"
                    );
                }
            }
        }
    }
}

/// Chunks other than those of the pixels: kind, and bytes without those that interlacing changes.
fn chunks(file: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut at = 8;
    let mut found = Vec::new();
    while at < file.len() {
        let length = u32::from_be_bytes(file[at..at + 4].try_into().unwrap()) as usize;
        let (kind, data) = file[at + 4..at + 8 + length].split_at(4);
        let data = if kind == b"IHDR" { &data[..12] } else { data };
        if kind != b"IDAT" || found.last().is_none_or(|(kind, _)| kind != b"IDAT") {
            let data = if kind == b"IDAT" { &[] } else { data };
            found.push((kind.to_vec(), data.to_vec()));
        }
        at += length + 12;
    }
    found
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as usize % n
    }
}

/// A PNG of noise, a gradient or patches, and its kind.
fn random_png(random: &mut Random) -> (String, Vec<u8>) {
    let kinds = [
        (ColorType::Grayscale, &[1, 2, 4, 8, 16][..]),
        (ColorType::Indexed, &[1, 2, 4, 8]),
        (ColorType::GrayscaleAlpha, &[8, 16]),
        (ColorType::Rgb, &[8, 16]),
        (ColorType::Rgba, &[8, 16]),
    ];
    let (color, depths) = kinds[random.below(kinds.len())];
    let bits = depths[random.below(depths.len())];
    let tall = random.below(4) == 0;
    let width = 1 + random.below(if tall { 700 } else { 40 });
    let height = 1 + random.below(if tall { 400 } else { 40 });
    let row = (width * color.samples() * usize::from(bits)).div_ceil(8);
    let content = random.below(3);
    let noise = 1 + random.below(20);
    let mut data = Vec::with_capacity(row * height);
    for y in 0..height {
        for x in 0..row {
            data.push(match content {
                0 => random.below(256),
                1 => (y / 2 + x) % 256 + random.below(noise),
                _ => (y / 9 + x / 12) % 2 * 77,
            } as u8);
        }
    }
    let mut file = Vec::new();
    let mut png = png::Encoder::new(&mut file, width as u32, height as u32);
    png.set_color(color);
    png.set_depth(BitDepth::from_u8(bits).unwrap());
    if color == ColorType::Indexed {
        // Sometimes too few colours for the indices.
        let colors = 1 + random.below(1 << bits);
        png.set_palette(
            (0..3 * colors)
                .map(|_| random.below(256) as u8)
                .collect::<Vec<_>>(),
        );
        png.set_trns(
            (0..colors / 2 + 1)
                .map(|_| random.below(256) as u8)
                .collect::<Vec<_>>(),
        );
    } else if color == ColorType::Rgb || color == ColorType::Grayscale {
        let samples = if color == ColorType::Rgb { 3 } else { 1 };
        png.set_trns([0, 77].repeat(samples));
    }
    png.write_header().unwrap().write_image_data(&data).unwrap();
    (format!("{color:?} {bits} {width}x{height} {content}"), file)
}

#[test]
fn a_record_has_the_pixels_of_its_png_in_every_mode_and_region() {
    for (name, file) in pngs() {
        assert_same(&name, &file, &record(&file));
    }
}

#[test]
fn random_images_of_every_kind_are_restored() {
    write_and_restore(40);
}

#[test]
#[ignore = "long"]
fn many_random_images_of_every_kind_are_restored() {
    write_and_restore(400);
}

fn write_and_restore(count: usize) {
    let mut random = Random(7);
    for _ in 0..count {
        let (name, file) = random_png(&mut random);
        let bytes = record(&file);
        assert_same(&name, &file, &bytes);
        let restored = restore(&bytes).unwrap();
        assert_same(&name, &file, &restored.bytes);
    }
}

#[test]
fn a_png_is_restored_with_its_pixels_and_chunks() {
    for (name, file) in pngs() {
        let restored = restore(&record(&file)).unwrap();

        assert!(!restored.is_original, "{name}");
        assert_eq!(chunks(&restored.bytes), chunks(&file), "{name}");
        assert_same(&name, &file, &restored.bytes);
    }
}

#[test]
fn chunks_around_the_pixels_are_restored_in_order() {
    let (_, file) = &pngs()[0];
    let text = |text: &[u8]| {
        let covered = [b"tEXt", text].concat();
        let length = (text.len() as u32).to_be_bytes();
        let crc = crc32fast::hash(&covered).to_be_bytes();
        [&length[..], &covered, &crc].concat()
    };
    let pixels = file.windows(4).position(|kind| kind == b"IDAT").unwrap() - 4;
    let (before, rest) = file.split_at(pixels);
    let (idat, end) = rest.split_at(rest.len() - 12);
    let file = [before, &text(b"a\0b"), idat, &text(b"c\0d"), end].concat();

    let restored = restore(&record(&file)).unwrap();

    assert_eq!(chunks(&restored.bytes), chunks(&file));
}

#[test]
fn a_mask_of_colours_is_one_plane_with_a_table() {
    let colors = [[128, 64, 128], [0, 0, 192], [128, 64, 128], [64, 0, 128]];
    let mut file = Vec::new();
    let mut png = png::Encoder::new(&mut file, 300, 200);
    png.set_color(ColorType::Rgb);
    let data: Vec<u8> = (0..300 * 200)
        .flat_map(|at| colors[(at % 300 / 50 + at / 300 / 30) % 4])
        .collect();
    png.write_header().unwrap().write_image_data(&data).unwrap();

    let bytes = encode(&file, &mut Decoder::new()).unwrap().bytes;

    let parts = PlaneParts::read(&bytes[12..]).unwrap();
    let ihdr = crate::decode::png_chunks::ihdr_of(parts.head).unwrap();
    let layout = parts.layout(SampleShape::of(&ihdr)).unwrap();
    let sorted = [0, 0, 192, 64, 0, 128, 128, 64, 128];
    assert_eq!(layout.table(), Some(&sorted[..]));
    assert_same("mask", &file, &bytes);
}

#[test]
fn positions_in_the_table_give_the_pixels_in_every_mode_and_region() {
    let mut random = Random(13);
    let files = pngs().into_iter();
    let random_files = std::iter::repeat_with(|| random_png(&mut random)).take(60);
    let (mut tables, mut others) = (0, 0);
    let mut decoder = Decoder::new();
    for (name, file) in files.chain(random_files) {
        let bytes = record(&file);
        for (orient, mode) in [false, true]
            .into_iter()
            .flat_map(|o| MODES.map(|m| (o, m)))
        {
            let header = decoder.header(&bytes, orient, &Limits::default()).unwrap();
            let mut request = Request::whole(&header, mode);
            let Size { height, width } = header.size;
            request.region.top = height / 3;
            request.region.size.height = height - height / 3;
            request.region.size.width = width.div_ceil(2);
            let mut positions = Image::default();
            let table = decoder.decode_positions(&bytes, &header, &request, &mut positions);
            let pixels = decode_unchecked(&bytes, mode, orient, Some(request.region));
            match table {
                Ok(Some(table)) => {
                    let table: Vec<&[u8]> = table.pixels().collect();
                    let found = positions.data.iter().flat_map(|&at| table[usize::from(at)]);
                    assert!(found.eq(&pixels.unwrap().data), "{name} {mode:?}");
                    assert_eq!(positions.size, request.region.size);
                    tables += 1;
                }
                Ok(None) => others += 1,
                Err(error) => {
                    assert_eq!(error.to_string(), pixels.unwrap_err().to_string(), "{name}");
                }
            }
        }
    }
    assert!(
        tables > 200 && others > 100,
        "{tables} tables, {others} others"
    );
}

#[test]
fn a_file_that_a_record_would_enlarge_or_change_is_kept() {
    let mut decoder = Decoder::new();
    let mut random = Random(3);
    let (_, file) = pngs().swap_remove(0);
    let mut noise = Vec::new();
    let mut png = png::Encoder::new(&mut noise, 4096, 1);
    png.set_depth(BitDepth::One);
    let data: Vec<u8> = (0..512).map(|_| random.below(256) as u8).collect();
    png.write_header().unwrap().write_image_data(&data).unwrap();
    assert_eq!(encode(&noise, &mut decoder), Err(KeepReason::Larger));

    // A chunk between those of the pixels.
    let text = [
        &[0, 0, 0, 0][..],
        b"tEXt",
        &crc32fast::hash(b"tEXt").to_be_bytes(),
    ]
    .concat();
    let empty = [
        &[0, 0, 0, 0][..],
        b"IDAT",
        &crc32fast::hash(b"IDAT").to_be_bytes(),
    ]
    .concat();
    let end = file.len() - 12;
    let file = [&file[..end], &text, &empty, &file[end..]].concat();
    assert_eq!(encode(&file, &mut decoder), Err(KeepReason::Unsupported));

    let (_, mut file) = random_png(&mut random);
    let at = file.len() - 20;
    file[at] ^= 1;
    assert!(matches!(
        encode(&file, &mut decoder),
        Err(KeepReason::Damaged(_))
    ));
}

#[test]
fn a_truncated_record_is_an_error() {
    for (name, file) in pngs().into_iter().step_by(7) {
        let bytes = record(&file);
        for end in 0..bytes.len() {
            assert!(
                decode_unchecked(&bytes[..end], ColorMode::Rgb, true, None).is_err(),
                "{name} {end}"
            );
            assert!(restore(&bytes[..end]).is_err(), "{name} {end}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(decode_unchecked(&longer, ColorMode::Rgb, true, None).is_err());
    }
}

#[test]
fn damage_that_the_checksum_hides_gives_an_error_or_other_pixels_and_no_panic() {
    let mut random = Random(11);
    let not_panicked = |done: Result<(), DecodeError>| {
        let is_panic = matches!(done, Err(DecodeError::Panicked { .. }));
        assert!(!is_panic, "{done:?}");
    };
    for (_, file) in pngs().into_iter().step_by(3) {
        let bytes = record(&file);
        for _ in 0..60 {
            let mut bytes = bytes.clone();
            for _ in 0..1 + random.below(3) {
                let at = 12 + random.below(bytes.len() - 12);
                bytes[at] = random.below(256) as u8;
            }
            for mode in MODES {
                not_panicked(decode_unchecked(&bytes, mode, true, None).map(|_| ()));
            }
            // A checksum that fits reaches the restoring code.
            let mut fixed = record::RecordWriter::new(record::RecordKind::Planes, 0);
            fixed.body().extend(&bytes[12..]);
            let _ = restore(&fixed.finish());
        }
    }
}

/// A record of an image of 2 rows and 3 columns with these strips.
fn crafted_record(color: ColorType, depth: BitDepth, strips: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut png = png::Encoder::new(&mut file, 3, 2);
    png.set_color(color);
    png.set_depth(depth);
    png.write_header().unwrap();
    let head = &file[..33];
    let mut out = record::RecordWriter::new(record::RecordKind::Planes, 0);
    for part in [head, &[]] {
        varint::write(out.body(), part.len() as u64);
        out.body().extend(part);
    }
    out.body().extend(strips);
    out.finish()
}

fn decode_crafted(strips: &[u8]) -> Result<Image, DecodeError> {
    let bytes = crafted_record(ColorType::Rgb, BitDepth::Eight, strips);
    decode_unchecked(&bytes, ColorMode::Rgb, false, None)
}

fn damage(strips: &[u8]) -> String {
    decode_crafted(strips).unwrap_err().to_string()
}

#[test]
fn the_bytes_of_a_plane_must_be_exactly_one_frame_of_its_length() {
    let frame = |length: usize| zstd::bulk::compress(&vec![5; length], 1).unwrap();
    let strips = |frame: &[u8]| {
        // One plane of a frame with a table of one pixel, in one strip.
        let head = [3, 0, 9, 8, 7, 2, 0, frame.len() as u8];
        [&head[..], frame].concat()
    };
    let zeros = zstd::bulk::compress(&[0; 6], 1).unwrap();
    assert!(zeros.len() != 6);
    assert_eq!(
        decode_crafted(&strips(&zeros)).unwrap().data,
        [9, 8, 7].repeat(6)
    );
    assert_eq!(
        damage(&strips(&frame(6))),
        "damaged: a pixel's index is not in the palette"
    );

    let skippable = [&[0x50, 0x2A, 0x4D, 0x18, 0, 0, 0, 0][..], &zeros].concat();
    for bad in [
        [&zeros[..], &zeros].concat(),
        [&zeros[..], &[0]].concat(),
        frame(5),
        frame(7),
        frame(0),
        skippable,
        Vec::new(),
    ] {
        let found = damage(&strips(&bad));
        assert_eq!(found, "damaged: a plane that cannot be expanded", "{bad:?}");
    }
}

#[test]
fn layouts_that_no_image_has_are_rejected() {
    let planes = |rows: u8| [&[0, rows, 0, 6, 0, 6, 0, 6][..], &[1; 18]].concat();
    assert_eq!(decode_crafted(&planes(2)).unwrap().data, [1; 18]);
    for rows in [0, 3, 127] {
        let expected = "damaged: strips of an invalid number of rows";
        assert_eq!(damage(&planes(rows)), expected);
    }
    let mut coding = planes(2);
    coding[0] = 4;
    assert_eq!(damage(&coding), "damaged: an unknown coding of planes");
    let mut predictor = planes(2);
    predictor[4] = 2;
    assert_eq!(damage(&predictor), "damaged: an unknown predictor");
    let longer = [&planes(2)[..], &[0]].concat();
    assert_eq!(
        damage(&longer),
        "damaged: strips of another length than their directory says"
    );
}

/// Files with a golden record, which every later version decodes to the same pixels. Those of the
/// conformance data have their pixels in `expected.bin`, the others as PNG next to the record.
fn golden() -> Vec<(String, Vec<u8>)> {
    let names = [
        "c0b01", "c0b04i", "c0b16t", "c2b08", "c2b08t", "c2b16i", "c3b04t", "c3b08", "c4b08",
        "c4b16", "c6b08", "c6b16",
    ];
    let is_golden = |name: &str| names.iter().any(|golden| name == format!("{golden}.png"));
    let files = pngs().into_iter().filter(|(name, _)| is_golden(name));
    let mut files: Vec<_> = files.collect();
    assert_eq!(files.len(), names.len());
    let mut random = Random(5);
    let mut image = |name: &str, height: usize, pixel: &mut Pixel<'_>| {
        let mut file = Vec::new();
        let mut png = png::Encoder::new(&mut file, 300, height as u32);
        let data: Vec<u8> = (0..300 * height)
            .flat_map(|at| pixel(at % 300, at / 300, &mut random))
            .collect();
        match data.len() / (300 * height) {
            3 => png.set_color(ColorType::Rgb),
            _ => png.set_depth(BitDepth::Sixteen),
        }
        png.write_header().unwrap().write_image_data(&data).unwrap();
        files.push((name.to_owned(), file));
    };
    image("gradient.png", 330, &mut |x, y, random| {
        let gray = (x * x / 700 + y / 3 + random.below(2)) as u8;
        vec![gray.wrapping_add((x / 16) as u8), gray, gray / 2]
    });
    image("independent_red_blue.png", 40, &mut |x, y, random| {
        let (red, blue) = (
            (y + random.below(60)) as u8,
            (x / 3 + random.below(60)) as u8,
        );
        vec![red, (red + blue) / 2, blue]
    });
    image("depth.png", 90, &mut |x, y, random| {
        let depth = x * x / 2 + y * 111 + random.below(7);
        (depth as u16).to_be_bytes().to_vec()
    });
    image("mask.png", 330, &mut |x, y, _| {
        [[128, 64, 128], [0, 0, 192], [64, 0, 128]][(x / 50 + (y + x / 9) / 40) % 3].to_vec()
    });
    files
}

/// Returns the bytes of the pixel at a column and a row.
type Pixel<'a> = dyn FnMut(usize, usize, &mut Random) -> Vec<u8> + 'a;

#[test]
fn golden_records_decode_to_the_pixels_of_their_files() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/lossless");
    for (name, file) in golden() {
        let path = folder.join(&name).with_extension("ifl");
        if std::env::var_os("UPDATE_GOLDEN").is_some() && !path.exists() {
            std::fs::write(&path, record(&file)).unwrap();
            if !name.starts_with('c') {
                std::fs::write(folder.join(&name), &file).unwrap();
            }
        }
        assert_same(&name, &file, &std::fs::read(path).unwrap());
    }
}

#[test]
fn a_sample_of_more_bits_than_the_image_has_is_an_error() {
    let strips = |last: u8| [0, 2, 0, 6, 0, 1, 2, 3, 0, last];
    let record = |last: u8| crafted_record(ColorType::Grayscale, BitDepth::Two, &strips(last));

    let whole = decode_unchecked(&record(3), ColorMode::Gray, false, None).unwrap();
    assert_eq!(whole.data, [0, 85, 170, 255, 0, 255]);
    assert!(restore(&record(3)).is_ok());
    assert!(decode_unchecked(&record(4), ColorMode::Gray, false, None).is_err());
    assert!(restore(&record(4)).is_err());
}
