//! Regions of files with restart markers: pixels and errors equal those of the whole file.

use infeed_raw::jpeg_encode::{Subsampling, encode_with_restarts};
use infeed_raw::jpeg_restart::{RestartTask, with_restarts};

use super::*;

const SUBSAMPLINGS: [Subsampling; 5] = [
    Subsampling::None,
    Subsampling::Half,
    Subsampling::HalfRows,
    Subsampling::Quarter,
    Subsampling::Gray,
];

/// Draws edges everywhere, in colours, so that chroma differs from pixel to pixel.
fn picture(width: u32, height: u32) -> Vec<u8> {
    let mut random = Random(u64::from(width) << 20 | u64::from(height));
    let noise: Vec<u8> = (0..width * height * 3)
        .map(|_| random.below(256) as u8)
        .collect();
    let mut rgb = noise.clone();
    for (at, value) in rgb.iter_mut().enumerate() {
        let (x, y) = (at / 3 % width as usize, at / 3 / width as usize);
        let square = (x / 5 + y / 3) * 97 % 256;
        *value = ((usize::from(noise[at]) + 3 * square) / 4) as u8;
    }
    rgb
}

fn file(subsampling: Subsampling, width: u32, height: u32, interval: u32) -> Vec<u8> {
    let rgb = picture(width, height);
    encode_with_restarts(&rgb, width, height, 90, subsampling, interval as u16).unwrap()
}

fn rewritten(bytes: &[u8], interval: u32) -> Vec<u8> {
    let task = RestartTask {
        interval: interval as u16,
        max_pixels: 1 << 20,
        max_scans: 100,
        max_memory_mib: 64,
    };
    with_restarts(bytes, &task).unwrap()
}

fn header(bytes: &[u8]) -> Header {
    Decoder::new()
        .header(bytes, false, &Limits::default())
        .unwrap()
}

fn divisors(n: u32) -> Vec<u32> {
    (1..=n).filter(|d| n.is_multiple_of(*d)).collect()
}

/// Decodes a region; returns whether it was decoded from tiles.
fn part(bytes: &[u8], request: &Request) -> (Result<Image, DecodeError>, bool) {
    let mut decoder = Decoder::new();
    let header = header(bytes);
    let mut image = Image::default();
    let done = decoder.decode(bytes, &header, request, &mut image);
    // An assembled file that was not used is cleared.
    let by_tiles = !decoder.scratch.tiles.is_empty();
    (done.map(|_| image), by_tiles)
}

fn whole(bytes: &[u8], mode: ColorMode, scale: DctScale) -> Result<Image, DecodeError> {
    let header = header(bytes);
    let request = Request {
        scale,
        region: header.scaled_size(scale).whole(),
        ..Request::whole(&header, mode)
    };
    part(bytes, &request).0
}

/// Returns a region that begins or ends at or next to a tile's border more often than by chance.
fn near_borders(random: &mut Random, size: Size, tile: Size) -> Region {
    let mut side = |length: u32, tile: u32| {
        let mut place = |most: u32| {
            let near = random.below(most / tile + 1) * tile + random.below(5);
            match random.below(3) {
                0 => random.below(most + 1),
                _ => near.saturating_sub(2).min(most),
            }
        };
        let (a, b) = (place(length), place(length));
        let start = a.min(b).min(length - 1);
        (start, (a.max(b) - start).max(1))
    };
    let ((top, height), (left, width)) =
        (side(size.height, tile.height), side(size.width, tile.width));
    Region {
        top,
        left,
        size: Size { height, width },
    }
}

#[test]
fn a_region_from_tiles_equals_the_same_part_of_the_whole_for_every_layout_and_scale() {
    let mut random = Random(11);
    let mut by_tiles = [0, 0];
    for subsampling in SUBSAMPLINGS {
        for (width, height) in [(200_u32, 120), (193, 113), (67, 45), (37, 70)] {
            let mcu = subsampling.mcu_width();
            for interval in divisors(width.div_ceil(mcu)) {
                let bytes = file(subsampling, width, height, interval);
                for scale in DctScale::ALL {
                    let all = whole(&bytes, ColorMode::Rgb, scale).unwrap();
                    let tile = scale.apply(Size {
                        height: mcu,
                        width: mcu * interval,
                    });
                    for _ in 0..30 {
                        let region = near_borders(&mut random, all.size, tile);
                        let request = Request {
                            scale,
                            region,
                            ..Request::whole(&header(&bytes), ColorMode::Rgb)
                        };

                        let (found, tiled) = part(&bytes, &request);

                        by_tiles[usize::from(tiled)] += 1;
                        let same = found.unwrap() == cut(&all, region);
                        assert!(
                            same,
                            "{subsampling:?} {width}x{height}, {interval} MCUs, {request:?}"
                        );
                    }
                }
            }
        }
    }
    let [ordinary, tiled] = by_tiles;
    assert!(tiled > 4 * ordinary, "{tiled} by tiles, {ordinary} not");
}

#[test]
fn every_region_of_one_pixel_equals_that_pixel_of_the_whole() {
    for subsampling in SUBSAMPLINGS {
        let bytes = file(subsampling, 69, 37, 1);
        let all = whole(&bytes, ColorMode::Rgb, DctScale::Full).unwrap();
        for top in 0..37 {
            for left in 0..69 {
                let region = Region {
                    top,
                    left,
                    size: Size {
                        height: 1,
                        width: 1,
                    },
                };
                let request = Request {
                    region,
                    ..Request::whole(&header(&bytes), ColorMode::Rgb)
                };

                let (found, _) = part(&bytes, &request);

                assert!(
                    found.unwrap() == cut(&all, region),
                    "{subsampling:?}, {left},{top}"
                );
            }
        }
    }
}

#[test]
fn tiles_equal_the_original_for_every_kind_of_file_and_mode() {
    let mut random = Random(12);
    for case in cases().iter().filter(|case| case.file.ends_with(".jpg")) {
        let bytes = read(&case.file);
        let mut decoder = Decoder::new();
        let limits = Limits::default();
        let original = decoder.header(&bytes, case.orient, &limits).unwrap();
        for interval in divisors(original.mcus_across().unwrap()) {
            let tiled = rewritten(&bytes, interval);
            let header = decoder.header(&tiled, case.orient, &limits).unwrap();
            for scale in DctScale::ALL {
                let mut request = Request {
                    scale,
                    region: original.scaled_size(scale).whole(),
                    ..Request::whole(&original, case.mode)
                };
                let mut all = Image::default();
                decoder
                    .decode(&bytes, &original, &request, &mut all)
                    .unwrap();
                for _ in 0..10 {
                    request.region = random.region(all.size);
                    let mut found = Image::default();
                    decoder
                        .decode(&tiled, &header, &request, &mut found)
                        .unwrap();

                    assert!(
                        found == cut(&all, request.region),
                        "{}, {interval} MCUs, {request:?}",
                        case.file
                    );
                }
            }
        }
    }
}

/// Byte ranges between markers, by number.
fn segments(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let scan = bytes.windows(2).position(|pair| pair == [0xFF, 0xDA]);
    let scan = scan.unwrap() + 2;
    let data = scan + usize::from(u16::from_be_bytes([bytes[scan], bytes[scan + 1]]));
    let mut start = data;
    let mut found = Vec::new();
    for at in data..bytes.len() - 1 {
        if bytes[at] == 0xFF && bytes[at + 1] != 0 {
            found.push(start..at);
            start = at + 2;
        }
    }
    found
}

/// 6x4 tiles of 32x16 pixels, 4:2:0.
fn six_by_four() -> Vec<u8> {
    file(Subsampling::Quarter, 192, 64, 2)
}

fn request(bytes: &[u8], left: u32, top: u32, width: u32, height: u32) -> Request {
    Request {
        region: Region {
            top,
            left,
            size: Size { height, width },
        },
        ..Request::whole(&header(bytes), ColorMode::Rgb)
    }
}

#[test]
fn a_tile_of_the_region_that_lost_or_gained_bytes_is_an_error_and_one_elsewhere_is_not() {
    let bytes = six_by_four();
    let segments = segments(&bytes);
    assert_eq!(segments.len(), 24);
    // Columns 1 and 2 of rows 1 and 2. Pixels one beyond the region are in the same tiles.
    let request = request(&bytes, 34, 18, 60, 28);
    let (right, by_tiles) = part(&bytes, &request);
    assert!(by_tiles);
    let needed = [7, 8, 13, 14];

    for (number, segment) in segments.iter().enumerate() {
        let half = segment.start + segment.len() / 2;
        // Do not cut after the first half of a stuffed byte: the remaining half would become a fill
        // byte.
        let middle = half - usize::from(bytes[half - 1] == 0xFF);
        let shorter = [&bytes[..middle], &bytes[segment.end..]].concat();
        // libjpeg's bit buffer may hold up to eight bytes, which libjpeg does not count.
        let longer = [&bytes[..segment.end], &[1; 12], &bytes[segment.end..]].concat();
        for damaged in [shorter, longer] {
            let (found, _) = part(&damaged, &request);

            match needed.contains(&number) {
                true => assert!(found.is_err(), "segment {number}"),
                false => assert!(found == right, "segment {number}"),
            }
        }
    }
}

#[test]
fn wrong_markers_give_the_same_result_as_without_tiles() {
    let bytes = six_by_four();
    let segments = segments(&bytes);
    let request = request(&bytes, 40, 20, 50, 20);
    let (right, _) = part(&bytes, &request);
    let at = segments[3].end;
    let with = |marker: &[u8]| [&bytes[..at], marker, &bytes[at + 2..]].concat();

    for damaged in [
        with(&[]),
        with(&[0xFF, 0xD4]),
        with(&[0xFF, 0xD9]),
        with(&[0xFF, 0xFE]),
    ] {
        let (found, by_tiles) = part(&damaged, &request);

        assert!(!by_tiles);
        assert!(found.is_err());
    }
    // Fill bytes before a marker are allowed, and libjpeg skips them.
    let (found, by_tiles) = part(&with(&[0xFF, 0xFF, 0xFF, 0xD3]), &request);
    assert!(!by_tiles);
    assert!(found == right);
}

#[test]
fn an_interval_that_does_not_divide_the_row_and_a_whole_image_use_no_tiles() {
    let odd = file(Subsampling::Quarter, 192, 64, 5);
    let all = whole(&odd, ColorMode::Rgb, DctScale::Full).unwrap();
    let inner = request(&odd, 40, 20, 50, 20);

    let (found, by_tiles) = part(&odd, &inner);

    assert!(!by_tiles);
    assert!(found.unwrap() == cut(&all, inner.region));
    let even = six_by_four();
    assert!(!part(&even, &Request::whole(&header(&even), ColorMode::Rgb)).1);
    assert!(!part(&even, &request(&even, 0, 0, 192, 30)).1);
}

#[test]
fn tiles_of_a_damaged_file_equal_the_whole_or_the_whole_is_an_error() {
    let mut random = Random(13);
    for subsampling in SUBSAMPLINGS {
        let bytes = file(subsampling, 130, 50, 1);
        for round in 0..1500 {
            let mut damaged = bytes.clone();
            for _ in 0..=random.below(3) {
                let most = match random.below(2) {
                    0 => damaged.len(),
                    // Half of the damage is in the header.
                    _ => damaged.len().min(640),
                };
                let at = random.below(most as u32) as usize;
                match random.below(4) {
                    0 => damaged[at] = 0xFF,
                    1 => damaged.truncate(at.max(4)),
                    2 => drop(damaged.remove(at)),
                    _ => damaged[at] ^= 1 << random.below(8),
                }
            }
            let mut decoder = Decoder::new();
            let limits = Limits {
                max_pixels: 1 << 18,
            };
            let Ok(header) = decoder.header(&damaged, false, &limits) else {
                continue;
            };
            if decoder.check(&damaged, &header, false).is_err() {
                continue;
            }
            let mut request = Request::whole(&header, ColorMode::Rgb);
            let mut all = Image::default();
            let whole = decoder.decode(&damaged, &header, &request, &mut all);
            request.region = random.region(header.size);
            let mut some = Image::default();
            let part = decoder.decode(&damaged, &header, &request, &mut some);

            if whole.is_ok() {
                part.unwrap_or_else(|error| {
                    panic!("{subsampling:?}, round {round}: only a part errs: {error}")
                });
                let same = some == cut(&all, request.region);
                assert!(same, "{subsampling:?}, round {round}");
            }
        }
    }
}

#[test]
fn tiles_stay_below_the_memory_bound() {
    for subsampling in SUBSAMPLINGS {
        let bytes = file(subsampling, 200, 120, 1);
        let header = header(&bytes);
        for (left, top, width, height) in [(0, 0, 9, 9), (40, 20, 90, 70), (150, 90, 50, 30)] {
            let request = request(&bytes, left, top, width, height);
            let mut decoder = Decoder::new();
            let mut image = Image::default();
            decoder
                .decode(&bytes, &header, &request, &mut image)
                .unwrap();

            let scratch = &decoder.scratch;
            let held = image.data.len() + scratch.wide.capacity() + scratch.tiles.capacity();

            assert!(!scratch.tiles.is_empty());
            assert!(held as u64 <= decoder.scratch_bytes(&header, &request));
        }
    }
}
