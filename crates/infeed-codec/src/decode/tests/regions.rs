//! A region decoded alone equals the same region of the whole image.

use super::*;

#[test]
fn a_region_equals_the_same_part_of_the_whole_in_every_file_and_mode() {
    let mut decoder = Decoder::new();
    let mut random = Random(1);
    for case in cases() {
        let bytes = read(&case.file);
        let header = decoder
            .header(&bytes, case.orient, &Limits::default())
            .unwrap();
        for scale in DctScale::ALL {
            let size = header.scaled_size(scale);
            let mut request = Request {
                scale,
                ..Request::whole(&header, case.mode)
            };
            request.region = size.whole();
            let mut whole = Image::default();
            decoder
                .decode(&bytes, &header, &request, &mut whole)
                .unwrap();

            for _ in 0..if header.format == Format::Jpeg { 12 } else { 2 } {
                request.region = random.region(size);
                let mut part = Image::default();
                decoder
                    .decode(&bytes, &header, &request, &mut part)
                    .unwrap();

                let same = part == cut(&whole, request.region);
                assert!(same, "{} {:?} {request:?}", case.file, case.mode);
            }
        }
    }
}

#[test]
fn a_region_is_mapped_back_through_every_orientation() {
    let coded = Size {
        height: 5,
        width: 7,
    };
    let mut stored = Image::default();
    stored.reset(coded, 1, Depth::U8);
    stored
        .data
        .iter_mut()
        .enumerate()
        .for_each(|(i, pixel)| *pixel = i as u8);
    let mut random = Random(2);

    for orientation in 1..=8 {
        let mut shown = Image::default();
        orient::turn(&stored, orientation, &mut shown);
        for _ in 0..50 {
            let region = random.region(shown.size);
            let part = cut(&stored, orient::coded_region(orientation, region, coded));
            let mut turned = Image::default();
            orient::turn(&part, orientation, &mut turned);

            assert_eq!(
                turned,
                cut(&shown, region),
                "orientation {orientation}, {region:?}"
            );
        }
    }
}

#[test]
fn a_region_of_a_progressive_file_without_its_last_scans_equals_the_same_part_of_the_whole() {
    let mut decoder = Decoder::new();
    let mut random = Random(4);
    for file in ["grayp.jpg", "s444p.jpg", "s420p.jpg"] {
        let bytes = read(file);
        let scans: Vec<usize> = (0..bytes.len() - 1)
            .filter(|&at| bytes[at..at + 2] == [0xFF, 0xDA])
            .collect();
        for &end in &scans[1..] {
            let fewer = [&bytes[..end], &[0xFF, 0xD9]].concat();
            let header = decoder.header(&fewer, false, &Limits::default()).unwrap();
            for scale in DctScale::ALL {
                let size = header.scaled_size(scale);
                let mut request = Request {
                    scale,
                    ..Request::whole(&header, ColorMode::Rgb)
                };
                request.region = size.whole();
                let mut whole = Image::default();
                decoder
                    .decode(&fewer, &header, &request, &mut whole)
                    .unwrap();

                for _ in 0..40 {
                    request.region = random.region(size);
                    let mut part = Image::default();
                    decoder
                        .decode(&fewer, &header, &request, &mut part)
                        .unwrap();

                    let same = part == cut(&whole, request.region);
                    assert!(same, "{file} cut to {end}, {request:?}");
                }
            }
        }
    }
}
