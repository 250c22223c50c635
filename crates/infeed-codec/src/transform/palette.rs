//! Colours of a mask and their classes.

use std::path::Path;

use super::error::{PaletteError, TransformError};
use super::onehot::MAX_CLASSES;
use super::view::PixelView;
use infeed_core::sample::Depth;
use infeed_raw::file;

/// Class numbers by exact colour.
#[derive(Clone, Debug)]
pub struct Palette {
    names: Vec<String>,
    colors: Vec<[u8; 3]>,
    /// Hash table with open addressing and linear probing, at most a quarter full. An entry has the
    /// colour in its lower 24 bits and the class above. The length is a power of two.
    table: Vec<u64>,
}

const EMPTY: u64 = u64::MAX;

impl Palette {
    /// Reads a CSV file with the header `name,r,g,b`. Classes are numbered by line, from 0.
    ///
    /// # Errors
    ///
    /// `Palette` with the line, if the file cannot be read or two classes have the same colour.
    pub fn from_csv(path: impl AsRef<Path>) -> Result<Palette, TransformError> {
        let path = path.as_ref();
        let failed = |source| TransformError::Palette {
            path: path.to_owned(),
            source,
        };
        file::read(path, file::MAX_TEXT_BYTES)
            .map_err(|error| PaletteError::from(csv::Error::from(error)))
            .and_then(|bytes| Palette::from_rows(csv_reader().from_reader(&*bytes)))
            .map_err(failed)
    }

    fn from_rows<R: std::io::Read>(mut reader: csv::Reader<R>) -> Result<Palette, PaletteError> {
        let header = reader.headers()?;
        // Spreadsheets write a byte order mark before the first column.
        let names = header
            .iter()
            .map(|name| name.trim_start_matches('\u{feff}'));
        if !names
            .map(str::to_ascii_lowercase)
            .eq(["name", "r", "g", "b"])
        {
            let found = header.iter().collect::<Vec<_>>().join(",");
            return Err(PaletteError::Header { found });
        }
        let (mut names, mut colors, mut lines) = (Vec::new(), Vec::new(), Vec::new());
        for row in reader.records() {
            let row = row?;
            let line = row.position().map_or(0, csv::Position::line);
            let color = [1, 2, 3].map(|at| row.get(at).and_then(|v| v.parse::<u8>().ok()));
            let (4, [Some(r), Some(g), Some(b)]) = (row.len(), color) else {
                let found = row.iter().collect::<Vec<_>>().join(",");
                return Err(PaletteError::Row { line, found });
            };
            names.push(row[0].to_owned());
            colors.push([r, g, b]);
            lines.push(line);
        }
        if colors.is_empty() || colors.len() > MAX_CLASSES {
            return Err(PaletteError::Classes {
                found: colors.len(),
            });
        }
        let mut table = vec![EMPTY; (4 * colors.len()).next_power_of_two()];
        for (class, &color) in colors.iter().enumerate() {
            let slot = slot(&table, key(color));
            if table[slot] != EMPTY {
                let first = lines[(table[slot] >> 24) as usize];
                return Err(PaletteError::Duplicate {
                    line: lines[class],
                    first,
                    color,
                });
            }
            table[slot] = key(color) | (class as u64) << 24;
        }
        Ok(Palette {
            names,
            colors,
            table,
        })
    }

    /// Returns the number of classes.
    pub fn classes(&self) -> usize {
        self.colors.len()
    }

    /// Returns the names of the classes, in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the colours of the classes, in order.
    pub fn colors(&self) -> &[[u8; 3]] {
        &self.colors
    }

    /// Returns the class of a colour.
    pub fn class(&self, color: [u8; 3]) -> Option<u16> {
        let found = self.table[slot(&self.table, key(color))];
        (found != EMPTY).then_some((found >> 24) as u16)
    }

    /// Writes the class of every pixel, row by row, and `unknown` for colours outside the palette.
    /// Returns the number of pixels with such colours.
    ///
    /// # Errors
    ///
    /// `Pixels` if the mask is not RGB of 8 bits, or a class does not fit in `T`.
    pub fn indices<T: Copy + TryFrom<u16>>(
        &self,
        mask: &PixelView<'_>,
        out: &mut Vec<T>,
        unknown: T,
    ) -> Result<u64, TransformError> {
        let last = T::try_from((self.classes() - 1) as u16);
        if mask.channels() != 3 || mask.depth() != Depth::U8 || last.is_err() {
            return Err(TransformError::Pixels {
                transform: "OneHot and ClassIndex",
                channels: mask.channels(),
                depth: mask.depth(),
                allowed: "3 channels of 8 bits, and as many classes as the index type can distinguish",
            });
        }
        out.clear();
        out.reserve(mask.height() * mask.width());
        let mut unknowns = 0;
        let mut current = ColorRun::of(self, [0; 3], unknown);
        for y in 0..mask.height() {
            let (mut pixels, _) = mask.row(y).as_chunks::<3>();
            while let Some((&color, _)) = pixels.split_first() {
                if color != current.color {
                    current = ColorRun::of(self, color, unknown);
                }
                let length = current.length(pixels);
                out.resize(out.len() + length, current.class);
                unknowns += if current.is_unknown { length as u64 } else { 0 };
                pixels = &pixels[length..];
            }
        }
        Ok(unknowns)
    }
}

/// The last colour and its class. Masks consist of runs of one colour.
struct ColorRun<T> {
    color: [u8; 3],
    /// The colour repeated eight times.
    pattern: [[u8; 3]; 8],
    class: T,
    is_unknown: bool,
}

impl<T: Copy + TryFrom<u16>> ColorRun<T> {
    fn of(palette: &Palette, color: [u8; 3], unknown: T) -> ColorRun<T> {
        let class = palette
            .class(color)
            .and_then(|class| T::try_from(class).ok());
        ColorRun {
            color,
            pattern: [color; 8],
            class: class.unwrap_or(unknown),
            is_unknown: class.is_none(),
        }
    }

    /// Returns the number of leading pixels that have the colour. The first pixel must have it.
    fn length(&self, pixels: &[[u8; 3]]) -> usize {
        let (eights, _) = pixels.as_chunks::<8>();
        let whole = 8 * eights
            .iter()
            .take_while(|eight| **eight == self.pattern)
            .count();
        whole
            + pixels[whole..]
                .iter()
                .take_while(|pixel| **pixel == self.color)
                .count()
    }
}

fn csv_reader() -> csv::ReaderBuilder {
    let mut builder = csv::ReaderBuilder::new();
    builder.flexible(true).trim(csv::Trim::All);
    builder
}

fn key([r, g, b]: [u8; 3]) -> u64 {
    u64::from(r) | u64::from(g) << 8 | u64::from(b) << 16
}

/// Returns the slot of a colour in the table, or the empty slot where it belongs.
fn slot(table: &[u64], key: u64) -> usize {
    let mask = table.len() - 1;
    // Fibonacci hashing: the upper bits of the product depend on all bits of the colour.
    let mut at = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
    while table[at] != EMPTY && table[at] & 0xff_ffff != key {
        at = (at + 1) & mask;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_core::sample::{Image, Size};

    fn parse(text: &str) -> Result<Palette, PaletteError> {
        Palette::from_rows(csv_reader().from_reader(text.as_bytes()))
    }

    fn error_text(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    /// A mask with runs of palette colours and other colours, row by row.
    fn mask(palette: &Palette, size: Size) -> Image {
        let mut image = Image::default();
        image.reset(size, 3, Depth::U8);
        let (pixels, _) = image.data.as_chunks_mut::<3>();
        for (i, pixel) in pixels.iter_mut().enumerate() {
            let run = i / (1 + i % 37);
            *pixel = match run % 5 {
                0 => [run as u8, 77, 3],
                _ => palette.colors[run % palette.classes()],
            };
        }
        image
    }

    #[test]
    fn classes_are_numbered_by_line_and_names_kept() {
        let palette = parse("name, r, g, b\nSky,128,128,128\nRoad, 128, 64, 128\n").unwrap();

        assert_eq!(palette.names(), ["Sky", "Road"]);
        assert_eq!(palette.class([128, 64, 128]), Some(1));
        assert_eq!(palette.class([128, 128, 128]), Some(0));
        assert_eq!(palette.class([0, 0, 0]), None);
    }

    #[test]
    fn a_byte_order_mark_and_windows_line_ends_do_no_harm() {
        let palette = parse("\u{feff}name,r,g,b\r\nSky,1,2,3\r\n").unwrap();

        assert_eq!(palette.class([1, 2, 3]), Some(0));
    }

    #[test]
    fn errors_name_the_line() {
        let header = "name,r,g,b\n";

        assert_eq!(
            error_text("Sky,1,2,3\n"),
            "the first line is \"Sky,1,2,3\"; it must be name,r,g,b"
        );
        assert_eq!(
            error_text(&format!("{header}Sky,1,2,3\nRoad,1,2,256\n")),
            "line 3: \"Road,1,2,256\" is not a name and three numbers from 0 to 255"
        );
        assert!(error_text(&format!("{header}Sky,1,2\n")).starts_with("line 2: "));
        assert!(error_text(&format!("{header}Sky,1,2,3,4\n")).starts_with("line 2: "));
        assert_eq!(
            error_text(&format!("{header}Sky,1,2,3\nRoad,4,5,6\nWall,1,2,3\n")),
            "line 4: the colour 1,2,3 is already used in line 2; give each class its own colour"
        );
        assert_eq!(
            error_text(header),
            "it has 0 classes; there must be 1 to 65535"
        );
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Palette::from_csv("no/such/palette.csv").unwrap_err();

        assert_eq!(
            error.to_string(),
            "cannot use the palette no/such/palette.csv"
        );
    }

    #[test]
    fn every_colour_of_the_largest_palette_is_found_and_no_other() {
        let color = |class: u32| [class as u8, (class >> 8) as u8, (class * 7) as u8];
        let mut text = String::from("name,r,g,b\n");
        for class in 0..MAX_CLASSES as u32 {
            let [r, g, b] = color(class);
            text += &format!("c,{r},{g},{b}\n");
        }

        let palette = parse(&text).unwrap();

        for class in 0..MAX_CLASSES as u32 {
            assert_eq!(palette.class(color(class)), Some(class as u16));
            let [r, g, b] = color(class);
            assert_eq!(palette.class([r, g, b ^ 1]), None);
        }
        assert!(error_text(&format!("{text}c,255,255,255\n")).starts_with("it has 65536 classes"));
    }

    #[test]
    fn indices_equal_a_search_for_every_pixel() {
        let palette = parse("name,r,g,b\na,0,0,0\nb,1,0,0\nc,0,1,0\nd,9,8,7\n").unwrap();
        for width in 1..70 {
            let image = mask(&palette, Size { height: 3, width });
            let mut found = vec![9u8; 5];

            let unknowns = palette.indices(&(&image).into(), &mut found, 255).unwrap();

            let (pixels, _) = image.data.as_chunks::<3>();
            let expected: Vec<u8> = pixels
                .iter()
                .map(|p| {
                    palette
                        .colors
                        .iter()
                        .position(|c| c == p)
                        .map_or(255, |at| at as u8)
                })
                .collect();
            assert_eq!(found, expected);
            let counted = expected.iter().filter(|&&class| class == 255).count();
            assert_eq!(unknowns, counted as u64);
        }
    }

    #[test]
    fn a_mask_without_colours_is_rejected() {
        let palette = parse("name,r,g,b\na,0,0,0\n").unwrap();
        let mut image = Image::default();
        image.reset(
            Size {
                height: 2,
                width: 2,
            },
            1,
            Depth::U8,
        );

        let result = palette.indices(&(&image).into(), &mut Vec::<u16>::new(), u16::MAX);

        assert!(matches!(
            result,
            Err(TransformError::Pixels { channels: 1, .. })
        ));
    }
}
