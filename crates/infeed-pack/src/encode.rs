//! Encodes pixels to the bytes of an image file.

use infeed_raw::jpeg_encode::{self, Subsampling};

use super::encoding::{Encoding, PngFilter, PngLevel};
use super::error::PackError;
use super::restart::interval;
use infeed_codec::decode::exif_block;
use infeed_core::sample::{Depth, Image};

/// Quality of a JPEG that is decoded and encoded again.
pub(super) const KEPT_QUALITY: u8 = 95;

/// The palette of an indexed PNG, as its chunks hold it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PngPalette<'a> {
    /// Three bytes per colour.
    colors: &'a [u8],
    /// Alpha of the first colours.
    alpha: Option<&'a [u8]>,
}

/// Encodes an image. `Keep` and `Raw` produce a PNG here.
///
/// # Errors
///
/// For JPEG, an image without 1 or 3 channels of 8 bits, or with a side over 65 500. For WebP, 16
/// bits or a side over 16 384. For all formats, an error of the library.
pub fn encode(image: &Image, encoding: Encoding) -> Result<Vec<u8>, PackError> {
    encode_with(image, encoding, &FileExtras::default())
}

/// Contents of a file in addition to the pixels.
#[derive(Debug)]
pub(super) struct FileExtras<'a> {
    /// Palette of an index image.
    pub(super) palette: Option<PngPalette<'a>>,
    /// Tiles of a JPEG have about this number of MCUs. None: no restart markers.
    pub(super) restart: Option<u16>,
    /// EXIF orientation, 1 to 8, that turns the pixels to the displayed ones.
    pub(super) orientation: u8,
}

impl Default for FileExtras<'_> {
    fn default() -> Self {
        FileExtras {
            palette: None,
            restart: None,
            orientation: 1,
        }
    }
}

impl FileExtras<'_> {
    /// Returns the EXIF block of an image that is not upright.
    fn exif(&self) -> Option<Vec<u8>> {
        (self.orientation != 1).then(|| exif_block(self.orientation))
    }
}

/// As [`encode`], with the extras that the format supports.
pub(super) fn encode_with(
    image: &Image,
    encoding: Encoding,
    extras: &FileExtras<'_>,
) -> Result<Vec<u8>, PackError> {
    match encoding {
        Encoding::Jpeg { quality } => jpeg(image, quality, extras),
        Encoding::WebpLossless => webp(image, extras),
        Encoding::Png { filter, level } => png(image, filter, level, extras),
        // Pixels have no file that could be kept or recoded.
        Encoding::Keep | Encoding::Raw | Encoding::Lossless | Encoding::Restore => {
            png(image, PngFilter::default(), PngLevel::default(), extras)
        }
    }
}

fn jpeg(image: &Image, quality: u8, extras: &FileExtras<'_>) -> Result<Vec<u8>, PackError> {
    let (width, height) = (image.size.width, image.size.height);
    let gray: Vec<u8>;
    let (rgb, chroma) = match (image.channels, image.depth) {
        (3, Depth::U8) => (&image.data, Subsampling::Quarter),
        (1, Depth::U8) => {
            // The luma of three equal channels equals the channel, because the weights sum to
            // exactly one.
            gray = image.data.iter().flat_map(|&gray| [gray; 3]).collect();
            (&gray, Subsampling::Gray)
        }
        (channels, depth) => {
            let bits = depth.bytes() * 8;
            return Err(PackError::NotJpeg { channels, bits });
        }
    };
    // 0 means no markers.
    let interval = extras.restart.map_or(0, |wanted| {
        interval(width.div_ceil(chroma.mcu_width()), wanted)
    });
    let mut bytes =
        jpeg_encode::encode_with_restarts(rgb, width, height, quality, chroma, interval)?;
    if let Some(exif) = extras.exif() {
        let at = end_of_jfif(&bytes);
        let segment = [b"Exif\0\0", &exif[..]].concat();
        // The block has 26 bytes, so the length fits. It counts itself.
        let length = (segment.len() as u16 + 2).to_be_bytes();
        bytes.splice(at..at, [&[0xFF, 0xE1], &length[..], &segment].concat());
    }
    Ok(bytes)
}

/// Returns the offset after the JFIF segment, which must be the first one of a JPEG.
fn end_of_jfif(jpeg: &[u8]) -> usize {
    match jpeg {
        [0xFF, 0xD8, 0xFF, 0xE0, high, low, ..] => {
            4 + usize::from(u16::from_be_bytes([*high, *low]))
        }
        _ => 2,
    }
}

fn webp(image: &Image, extras: &FileExtras<'_>) -> Result<Vec<u8>, PackError> {
    let color = match (image.channels, image.depth) {
        (1, Depth::U8) => image_webp::ColorType::L8,
        (2, Depth::U8) => image_webp::ColorType::La8,
        (3, Depth::U8) => image_webp::ColorType::Rgb8,
        (4, Depth::U8) => image_webp::ColorType::Rgba8,
        (channels, depth) => {
            let bits = depth.bytes() * 8;
            return Err(PackError::NotWebp { channels, bits });
        }
    };
    let mut bytes = Vec::new();
    let mut encoder = image_webp::WebPEncoder::new(&mut bytes);
    if let Some(exif) = extras.exif() {
        encoder.set_exif_metadata(exif);
    }
    encoder.encode(&image.data, image.size.width, image.size.height, color)?;
    Ok(bytes)
}

fn png(
    image: &Image,
    filter: PngFilter,
    level: PngLevel,
    extras: &FileExtras<'_>,
) -> Result<Vec<u8>, PackError> {
    let palette = extras.palette.as_ref();
    let palette = palette.filter(|palette| palette.covers(image));
    let color = match image.channels {
        1 if palette.is_some() => png::ColorType::Indexed,
        1 => png::ColorType::Grayscale,
        2 => png::ColorType::GrayscaleAlpha,
        3 => png::ColorType::Rgb,
        _ => png::ColorType::Rgba,
    };
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, image.size.width, image.size.height);
    encoder.set_color(color);
    encoder.set_depth(match image.depth {
        Depth::U8 => png::BitDepth::Eight,
        Depth::U16 => png::BitDepth::Sixteen,
    });
    if let Some(palette) = palette {
        encoder.set_palette(palette.colors);
        if let Some(alpha) = palette.alpha {
            encoder.set_trns(alpha);
        }
    }
    // Setting the compression also sets a filter, so the filter must be set after it.
    encoder.set_compression(match level {
        PngLevel::Stored => png::Compression::NoCompression,
        PngLevel::Fast => png::Compression::Fast,
        PngLevel::Balanced => png::Compression::Balanced,
        PngLevel::High => png::Compression::High,
    });
    encoder.set_filter(match filter {
        PngFilter::None => png::Filter::NoFilter,
        PngFilter::Sub => png::Filter::Sub,
        PngFilter::Up => png::Filter::Up,
        PngFilter::Avg => png::Filter::Avg,
        PngFilter::Paeth => png::Filter::Paeth,
        PngFilter::Adaptive => png::Filter::Adaptive,
    });
    let mut writer = encoder.write_header()?;
    if let Some(exif) = extras.exif() {
        writer.write_chunk(png::chunk::eXIf, &exif)?;
    }
    match image.depth {
        Depth::U8 => writer.write_image_data(&image.data)?,
        Depth::U16 => {
            // PNG stores 16-bit samples in big-endian order.
            let swap = |pair: &[u8]| u16::from_ne_bytes([pair[0], pair[1]]).to_be_bytes();
            let big_endian: Vec<u8> = image.data.chunks_exact(2).flat_map(swap).collect();
            writer.write_image_data(&big_endian)?;
        }
    }
    writer.finish()?;
    Ok(bytes)
}

impl<'a> PngPalette<'a> {
    /// Returns the palette of an indexed PNG. None for any other file.
    ///
    /// Source: W3C PNG (Third Edition), 5.3 (chunks), 11.2.1 (IHDR), 11.2.2 (PLTE).
    pub(super) fn of(png: &'a [u8]) -> Option<PngPalette<'a>> {
        const INDEXED: u8 = 3;
        let mut rest = png.strip_prefix(b"\x89PNG\r\n\x1a\n")?;
        let (mut colors, mut alpha) = (None, None);
        loop {
            let length = u32::from_be_bytes(rest.get(..4)?.try_into().ok()?) as usize;
            let kind = rest.get(4..8)?;
            let data = rest.get(8..length.checked_add(8)?)?;
            match kind {
                b"IHDR" if data.get(9) != Some(&INDEXED) => return None,
                b"PLTE" => colors = Some(data),
                b"tRNS" => alpha = Some(data),
                b"IDAT" => break,
                _ => {}
            }
            rest = rest.get(length.checked_add(12)?..)?;
        }
        colors.map(|colors| PngPalette { colors, alpha })
    }

    /// Returns whether every index of an image has a colour.
    fn covers(&self, image: &Image) -> bool {
        let entries = self.colors.len() / 3;
        image.channels == 1
            && image.depth == Depth::U8
            && image.data.iter().all(|&index| usize::from(index) < entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_codec::decode::{ColorMode, Decoder, Limits, Request};
    use infeed_core::sample::Size;

    fn image(channels: usize, depth: Depth) -> Image {
        let mut image = Image::default();
        let size = Size {
            height: 19,
            width: 23,
        };
        image.reset(size, channels, depth);
        for (at, byte) in image.data.iter_mut().enumerate() {
            *byte = (at * 7 % 251) as u8;
        }
        image
    }

    fn decode_image(bytes: &[u8], mode: ColorMode) -> Image {
        let mut decoder = Decoder::new();
        let header = decoder
            .header(bytes, false, &Limits::default())
            .expect("a header");
        decoder
            .check(bytes, &header, true)
            .expect("right checksums");
        let mut out = Image::default();
        let request = Request::whole(&header, mode);
        decoder
            .decode(bytes, &header, &request, &mut out)
            .expect("decodes");
        out
    }

    #[test]
    fn every_png_decodes_to_the_original_pixels() {
        for filter in ["none", "sub", "up", "avg", "paeth", "adaptive"] {
            for level in ["stored", "fast", "balanced", "high"] {
                let encoding = format!("png:{filter}:{level}")
                    .parse()
                    .expect("an encoding");
                for (channels, depth) in [(1, Depth::U8), (3, Depth::U8), (4, Depth::U8)] {
                    let image = image(channels, depth);
                    let bytes = encode(&image, encoding).expect("encodes");
                    assert_eq!(decode_image(&bytes, ColorMode::Stored), image, "{encoding}");
                }
                let image = image(1, Depth::U16);
                let bytes = encode(&image, encoding).expect("encodes");
                assert_eq!(
                    decode_image(&bytes, ColorMode::Stored16),
                    image,
                    "{encoding}"
                );
            }
        }
    }

    #[test]
    fn a_lossless_webp_gives_back_colours_with_and_without_alpha_and_gray_as_three_equal_channels()
    {
        for channels in [3, 4] {
            let image = image(channels, Depth::U8);
            let bytes = encode(&image, Encoding::WebpLossless).expect("encodes");
            assert_eq!(decode_image(&bytes, ColorMode::Stored), image);
        }
        let gray = image(1, Depth::U8);
        let bytes = encode(&gray, Encoding::WebpLossless).expect("encodes");
        assert_eq!(decode_image(&bytes, ColorMode::Gray), gray);

        let error = encode(&image(1, Depth::U16), Encoding::WebpLossless);
        let text = error.expect_err("no such WebP").to_string();
        assert!(text.contains("use png"), "{text}");
    }

    #[test]
    fn a_jpeg_with_restart_markers_has_the_pixels_of_one_without() {
        for channels in [1, 3] {
            let image = image(channels, Depth::U8);
            let encoding = Encoding::Jpeg { quality: 90 };
            let without = encode(&image, encoding).expect("encodes");

            let extras = FileExtras {
                restart: Some(1),
                ..FileExtras::default()
            };
            let with = encode_with(&image, encoding, &extras).expect("encodes");

            assert!(with.windows(2).any(|pair| pair == [0xFF, 0xD0]));
            assert!(!without.windows(2).any(|pair| pair == [0xFF, 0xD0]));
            let mode = ColorMode::Stored;
            assert_eq!(decode_image(&with, mode), decode_image(&without, mode));
        }
    }

    #[test]
    fn a_file_of_any_encoding_keeps_its_orientation_next_to_equal_pixels() {
        for encoding in ["jpeg:90", "png", "webp-lossless", "keep"] {
            let encoding = encoding.parse().expect("an encoding");
            for orientation in 1..=8 {
                let extras = FileExtras {
                    orientation,
                    ..FileExtras::default()
                };
                let image = image(3, Depth::U8);
                let bytes = encode_with(&image, encoding, &extras).expect("encodes");

                let upright = encode(&image, encoding).expect("encodes");
                let mode = ColorMode::Rgb;
                assert_eq!(
                    decode_image(&bytes, mode),
                    decode_image(&upright, mode),
                    "{encoding}"
                );
                let header = Decoder::new()
                    .header(&bytes, true, &Limits::default())
                    .expect("a header");
                assert_eq!(header.orientation, orientation, "{encoding}");
            }
        }
    }

    #[test]
    fn each_filter_and_each_level_produces_another_file() {
        let mut files: Vec<Vec<u8>> = Vec::new();
        let filters = ["none", "sub", "up", "avg", "paeth"].map(|f| format!("png:{f}"));
        let levels = ["stored", "fast", "high"].map(|level| format!("png:adaptive:{level}"));
        for text in filters.iter().chain(&levels) {
            let encoding = text.parse().expect("an encoding");
            files.push(encode(&image(3, Depth::U8), encoding).expect("encodes"));
        }

        let count = files.len();
        files.sort();
        files.dedup();
        assert_eq!(files.len(), count);
    }

    #[test]
    fn a_gray_jpeg_has_one_channel_and_nearly_its_pixels() {
        let mut image = image(1, Depth::U8);
        let width = image.width();
        for (at, byte) in image.data.iter_mut().enumerate() {
            *byte = (at % width * 5 + at / width) as u8;
        }

        let bytes = encode(&image, Encoding::Jpeg { quality: 100 }).expect("encodes");

        let back = decode_image(&bytes, ColorMode::Stored);
        assert_eq!(back.channels, 1);
        let far = back
            .data
            .iter()
            .zip(&image.data)
            .map(|(a, b)| a.abs_diff(*b))
            .max();
        assert!(far <= Some(2), "{far:?}");
    }

    #[test]
    fn a_jpeg_with_alpha_or_16_bits_is_rejected_with_the_fix() {
        for (channels, depth) in [(4, Depth::U8), (1, Depth::U16)] {
            let error = encode(&image(channels, depth), Encoding::Jpeg { quality: 90 });
            let text = error.expect_err("no such JPEG").to_string();
            assert!(text.contains("use png"), "{text}");
        }
    }

    #[test]
    fn indices_keep_their_palette_unless_one_has_no_colour() {
        let palette = [0, 0, 0, 128, 0, 0, 0, 128, 0];
        let with = |palette| FileExtras {
            palette,
            ..FileExtras::default()
        };
        let original = PngPalette {
            colors: &palette,
            alpha: Some(&[0]),
        };
        let original = with(Some(original));
        let mut image = image(1, Depth::U8);
        image.data.iter_mut().for_each(|index| *index %= 3);

        let bytes = encode_with(&image, Encoding::Keep, &original).expect("encodes");
        let found = with(PngPalette::of(&bytes));
        assert_eq!(found.palette, original.palette);
        assert_eq!(decode_image(&bytes, ColorMode::Stored), image);

        image.data[5] = 3;
        let bytes = encode_with(&image, Encoding::Keep, &found).expect("encodes");
        assert_eq!(PngPalette::of(&bytes), None);
        assert_eq!(decode_image(&bytes, ColorMode::Stored), image);
    }
}
