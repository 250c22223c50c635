//! Class numbers of a mask's pixels, from colors or stored values, and handling of unknown pixels.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use super::failure::SampleError;
use infeed_codec::transform::{
    Accepted, ChannelValues, MaskContent, Palette, PixelView, Transform, TransformError,
};
use infeed_core::sample::Depth;

/// Marks values without a class in a [`ClassMap`].
const NO_CLASS: u16 = u16::MAX;

/// Mapping of a mask's pixels to class numbers.
#[derive(Clone, Debug)]
pub(super) struct ClassMap {
    stored: StoredClasses,
    count: usize,
    accepted: Accepted,
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
    pub(super) fn new(
        content: MaskContent<'_>,
        accepted: Accepted,
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
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Whether the mask contains colors.
    pub(super) fn takes_colours(&self) -> bool {
        matches!(self.stored, StoredClasses::Colours(_))
    }

    /// Writes the class of every pixel, row by row, and `none` for pixels of unknown class. Returns
    /// the number of unknown pixels.
    ///
    /// # Errors
    ///
    /// `NoClass` if unknown pixels are not accepted; `Pixels` for a mask with other content.
    pub(super) fn indices<T: Copy + TryFrom<u16>>(
        &self,
        mask: &PixelView<'_>,
        out: &mut Vec<T>,
        none: T,
    ) -> Result<u64, SampleError> {
        let unknown = match &self.stored {
            StoredClasses::Colours(palette) => palette
                .indices(mask, out, none)
                .map_err(SampleError::Transform)?,
            StoredClasses::Values(table) => {
                let number = |&class: &u16| match class {
                    NO_CLASS => none,
                    class => T::try_from(class).unwrap_or(none),
                };
                let numbers: Vec<T> = table.iter().map(number).collect();
                let mut unknown = 0;
                out.clear();
                out.reserve(mask.height() * mask.width());
                each_row(mask, |value| {
                    unknown += u64::from(table[value] == NO_CLASS);
                    out.push(numbers[value]);
                });
                unknown
            }
        };
        let strays = match self.accepted {
            Accepted::Everything => 0,
            Accepted::Nothing => unknown,
            Accepted::Value(_) if unknown == 0 => 0,
            Accepted::Value(accepted) => {
                let mut found = 0;
                each_row(mask, |value| {
                    found += u64::from(value == usize::from(accepted));
                });
                unknown - found
            }
        };
        match strays {
            0 => Ok(unknown),
            _ => Err(SampleError::Transform(self.no_class(mask))),
        }
    }

    /// Returns the error for pixels of unknown class that are not accepted.
    fn no_class(&self, mask: &PixelView<'_>) -> TransformError {
        let mut strays: HashMap<[u16; 3], u64> = HashMap::new();
        match &self.stored {
            StoredClasses::Colours(palette) => {
                for y in 0..mask.height() {
                    for &color in mask.row(y).as_chunks::<3>().0 {
                        if palette.class(color).is_none() {
                            *strays.entry(color.map(u16::from)).or_default() += 1;
                        }
                    }
                }
            }
            StoredClasses::Values(table) => each_row(mask, |value| {
                let is_accepted = match self.accepted {
                    Accepted::Value(accepted) => value == usize::from(accepted),
                    _ => false,
                };
                if table[value] == NO_CLASS && !is_accepted {
                    *strays.entry([value as u16, 0, 0]).or_default() += 1;
                }
            }),
        }
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

/// Calls `call` with each value of a one-channel mask, row by row.
fn each_row(mask: &PixelView<'_>, mut call: impl FnMut(usize)) {
    for y in 0..mask.height() {
        let row = mask.row(y);
        match mask.depth() {
            Depth::U8 => row.iter().for_each(|&value| call(usize::from(value))),
            Depth::U16 => super::write::samples16(row).for_each(|value| call(usize::from(value))),
        }
    }
}
