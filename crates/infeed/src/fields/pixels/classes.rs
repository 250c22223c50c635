//! Class numbers of a mask's pixels, from colors or stored values, and handling of unknown pixels.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use crate::fields::failure::SampleError;
use infeed_codec::decode::PixelTable;
use infeed_codec::transform::{
    AcceptedPixels, ChannelValues, MaskContent, Palette, PixelView, Transform, TransformError,
};
use infeed_core::sample::Depth;

/// Marks values without a class in a [`ClassMap`].
const NO_CLASS: u16 = u16::MAX;

/// Mapping of a mask's pixels to class numbers.
#[derive(Clone, Debug)]
pub(crate) struct ClassMap {
    stored: StoredClasses,
    count: usize,
    accepted: AcceptedPixels,
    /// Transform that needs the mapping.
    transform: &'static str,
    /// Fill values that earlier transforms add to masks, with the transforms' names.
    fills: Vec<(&'static str, ChannelValues)>,
}

/// Content of the mask.
#[derive(Clone, Debug)]
enum StoredClasses {
    Colours(Arc<Palette>),
    /// Class of each value that the depth allows.
    Values(Arc<[u16]>),
}

impl ClassMap {
    /// Creates the mapping of a mask with pixels of `depth`.
    ///
    /// # Errors
    ///
    /// A palette that cannot be read, or a mask that does not contain `content`, as text.
    pub(crate) fn new(
        content: MaskContent<'_>,
        accepted: AcceptedPixels,
        transform: &Transform,
        before: &[Transform],
        depth: Depth,
    ) -> Result<ClassMap, TransformError> {
        let values = match depth {
            Depth::U8 => 1 << 8,
            Depth::U16 => 1 << 16,
        };
        let table = |classes: &mut dyn Iterator<Item = (usize, usize)>| {
            let mut table = vec![NO_CLASS; values];
            for (value, class) in classes {
                // A value beyond the depth cannot occur.
                if let Some(entry) = table.get_mut(value) {
                    *entry = class as u16;
                }
            }
            StoredClasses::Values(table.into())
        };
        let (stored, count) = match content {
            MaskContent::Palette(path) => {
                let palette = Palette::from_csv(path)?;
                let count = palette.classes();
                (StoredClasses::Colours(Arc::new(palette)), count)
            }
            MaskContent::Classes(count) => {
                let count = count as usize;
                (table(&mut (0..count).map(|class| (class, class))), count)
            }
            MaskContent::Values(values) => {
                let each = values.iter().enumerate();
                let mut each = each.map(|(class, &value)| (usize::from(value), class));
                (table(&mut each), values.len())
            }
        };
        let fills = before
            .iter()
            .filter_map(|of| Some((of.name(), of.mask_fill()?)));
        Ok(ClassMap {
            stored,
            count,
            accepted,
            transform: transform.name(),
            fills: fills.collect(),
        })
    }

    /// Returns the number of classes.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether the mask contains colors.
    pub(crate) fn takes_colours(&self) -> bool {
        matches!(self.stored, StoredClasses::Colours(_))
    }

    /// Writes the class of every pixel, row by row, and `none` for pixels of unknown class. Returns
    /// the number of unknown pixels. With a table, `mask` holds positions in it.
    ///
    /// # Errors
    ///
    /// `NoClass` if unknown pixels are not accepted; `Pixels` for a mask with other content.
    pub(crate) fn indices<T: Copy + TryFrom<u16>>(
        &self,
        mask: &PixelView<'_>,
        pixels: Option<&PixelTable>,
        out: &mut Vec<T>,
        none: T,
    ) -> Result<u64, SampleError> {
        let unknown = match (&self.stored, pixels) {
            (StoredClasses::Colours(palette), None) => palette
                .indices(mask, out, none)
                .map_err(SampleError::Transform)?,
            (StoredClasses::Values(table), None) => look_up(mask, table, out, none),
            (_, Some(pixels)) => {
                let classes = pixels.pixels().map(|pixel| self.class(stored_value(pixel)));
                look_up(mask, &classes.collect::<Vec<u16>>(), out, none)
            }
        };
        let strays = match self.accepted {
            AcceptedPixels::Everything => 0,
            AcceptedPixels::Nothing => unknown,
            AcceptedPixels::Value(_) if unknown == 0 => 0,
            AcceptedPixels::Value(accepted) => {
                let mut found = 0;
                each_pixel(mask, pixels, |[value, ..]| {
                    found += u64::from(value == accepted)
                });
                unknown - found
            }
        };
        match strays {
            0 => Ok(unknown),
            _ => Err(SampleError::Transform(self.no_class(mask, pixels))),
        }
    }

    /// Returns the class of a stored value or colour.
    fn class(&self, value: [u16; 3]) -> u16 {
        match &self.stored {
            StoredClasses::Colours(palette) => palette
                .class(value.map(|channel| channel as u8))
                .unwrap_or(NO_CLASS),
            StoredClasses::Values(table) => table
                .get(usize::from(value[0]))
                .copied()
                .unwrap_or(NO_CLASS),
        }
    }

    /// Returns the error for pixels of unknown class that are not accepted.
    fn no_class(&self, mask: &PixelView<'_>, pixels: Option<&PixelTable>) -> TransformError {
        let mut strays: HashMap<[u16; 3], u64> = HashMap::new();
        each_pixel(mask, pixels, |value| {
            let is_accepted = self.accepted == AcceptedPixels::Value(value[0]);
            if self.class(value) == NO_CLASS && !is_accepted {
                *strays.entry(value).or_default() += 1;
            }
        });
        let pixels = (mask.height() * mask.width()).max(1) as f64;
        let all: u64 = strays.values().sum();
        // Among equally frequent values, take the smallest, so that the message is always the same.
        let most = strays
            .iter()
            .max_by_key(|&(value, &count)| (count, std::cmp::Reverse(value)));
        let (value, count) = most.map_or(([0; 3], 0), |(value, count)| (*value, *count));
        let share = |count: u64| 100.0 * count as f64 / pixels;
        let mut found = format!("{:.2} % of the pixels have no class", share(all));
        let is_only = strays.len() == 1;
        let _ = match is_only {
            true => write!(found, ": {}", self.value_text(value)),
            false => write!(
                found,
                ", most of them ({:.2} %): {}",
                share(count),
                self.value_text(value)
            ),
        };
        TransformError::NoClass {
            transform: self.transform,
            found,
            fix: self.fix(value, is_only),
        }
    }

    /// Describes a stored value or color.
    fn value_text(&self, [first, second, third]: [u16; 3]) -> String {
        match self.stored {
            StoredClasses::Colours(_) => format!("colour {first},{second},{third}"),
            StoredClasses::Values(_) => {
                format!("value {first}, but the classes are {}", self.classes_text())
            }
        }
    }

    /// Describes the stored values of the classes.
    fn classes_text(&self) -> String {
        let StoredClasses::Values(table) = &self.stored else {
            return String::new();
        };
        let known: Vec<usize> = (0..table.len())
            .filter(|&at| table[at] != NO_CLASS)
            .collect();
        match known[..] {
            [only] => only.to_string(),
            [first, .., last] if last - first + 1 == known.len() => format!("{first} to {last}"),
            [first, second] => format!("{first} and {second}"),
            _ => format!("{} values from {known:?}", known.len())
                .replace(" from [", ": ")
                .replace(']', ""),
        }
    }

    /// Suggests a fix for pixels with this value.
    fn fix(&self, value: [u16; 3], is_only: bool) -> String {
        let is_fill = |fill: &ChannelValues| {
            let fill = fill.as_slice();
            (0..3).all(|at| fill.get(at).or(fill.first()) == Some(&f64::from(value[at])))
        };
        let is_number =
            |fill: &ChannelValues| fill.as_slice().first() == Some(&f64::from(value[0]));
        let filled = self.fills.iter().find(|(_, fill)| match self.stored {
            StoredClasses::Colours(_) => is_fill(fill),
            StoredClasses::Values(_) => is_number(fill),
        });
        if let Some((name, _)) = filled {
            return format!(
                "{name} pads masks with this value: set another mask_fill, or accept pixels \
                 without a class with unknown=\"ignore\""
            );
        }
        let of_values = match &self.stored {
            StoredClasses::Colours(_) => {
                return "add the colour to the palette, or accept pixels without a class with \
                        unknown=\"ignore\""
                    .to_owned();
            }
            StoredClasses::Values(_) if self.count == 2 && is_only && value[0] == 255 => {
                "use values=(0, 255) if these are the two classes"
            }
            StoredClasses::Values(_) => "set the stored value of each class as values=(...)",
        };
        format!(
            "{of_values}, ignore_index={} if this value has no class, or unknown=\"ignore\" to \
             accept all pixels without a class",
            value[0]
        )
    }
}

/// Returns the value of a one-channel pixel, or the colour of one with three channels.
fn stored_value(pixel: &[u8]) -> [u16; 3] {
    match *pixel {
        [value] => [value.into(), 0, 0],
        [first, second] => [u16::from_ne_bytes([first, second]), 0, 0],
        [red, green, blue, ..] => [red, green, blue].map(u16::from),
        [] => [0; 3],
    }
}

/// Calls `call` with the stored value or colour of each pixel, row by row.
fn each_pixel(mask: &PixelView<'_>, pixels: Option<&PixelTable>, mut call: impl FnMut([u16; 3])) {
    let table: Option<Vec<[u16; 3]>> =
        pixels.map(|pixels| pixels.pixels().map(stored_value).collect());
    for y in 0..mask.height() {
        for pixel in mask.row(y).chunks_exact(mask.pixel_bytes()) {
            call(match &table {
                // Every position is in the table.
                Some(table) => table[usize::from(pixel[0])],
                None => stored_value(pixel),
            });
        }
    }
}

/// Writes the class of each value of a one-channel mask, and `none` for values without a class or
/// beyond the table. Returns the number of pixels with such values.
fn look_up<T: Copy + TryFrom<u16>>(
    mask: &PixelView<'_>,
    classes: &[u16],
    out: &mut Vec<T>,
    none: T,
) -> u64 {
    let number = |&class: &u16| match class {
        NO_CLASS => none,
        class => T::try_from(class).unwrap_or(none),
    };
    out.clear();
    if mask.depth() == Depth::U8 {
        let mut numbers = [none; 256];
        let mut is_unknown = [true; 256];
        for (value, class) in classes.iter().enumerate().take(256) {
            numbers[value] = number(class);
            is_unknown[value] = *class == NO_CLASS;
        }
        out.resize(mask.height() * mask.width(), none);
        let rows = out.chunks_exact_mut(mask.width().max(1));
        return (0..mask.height())
            .zip(rows)
            .map(|(y, to)| look_up_row(mask.row(y), &numbers, &is_unknown, to))
            .sum();
    }
    let mut unknown = 0;
    for y in 0..mask.height() {
        out.extend(samples16(mask.row(y)).map(|value| {
            let class = classes.get(usize::from(value)).unwrap_or(&NO_CLASS);
            unknown += u64::from(*class == NO_CLASS);
            number(class)
        }));
    }
    unknown
}

/// Looks up the values of a row. Masks consist of runs of one value, which are written in eights.
fn look_up_row<T: Copy>(
    values: &[u8],
    numbers: &[T; 256],
    is_unknown: &[bool; 256],
    out: &mut [T],
) -> u64 {
    let (eights, rest) = values.as_chunks::<8>();
    let (out_eights, out_rest) = out.as_chunks_mut::<8>();
    let mut run = [0; 8];
    let mut run_numbers = [numbers[0]; 8];
    let mut run_unknown = 8 * u64::from(is_unknown[0]);
    let mut unknown = 0;
    for (eight, to) in eights.iter().zip(out_eights) {
        if *eight == run {
            *to = run_numbers;
            unknown += run_unknown;
            continue;
        }
        *to = eight.map(|value| numbers[usize::from(value)]);
        unknown += eight
            .iter()
            .map(|&value| u64::from(is_unknown[usize::from(value)]))
            .sum::<u64>();
        run = [eight[7]; 8];
        run_numbers = [to[7]; 8];
        run_unknown = 8 * u64::from(is_unknown[usize::from(eight[7])]);
    }
    for (&value, to) in rest.iter().zip(out_rest) {
        *to = numbers[usize::from(value)];
        unknown += u64::from(is_unknown[usize::from(value)]);
    }
    unknown
}

pub(super) fn samples16(row: &[u8]) -> impl Iterator<Item = u16> + '_ {
    row.as_chunks::<2>()
        .0
        .iter()
        .map(|&bytes| u16::from_ne_bytes(bytes))
}
