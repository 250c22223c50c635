//! Class numbers of a mask's pixels: from colours or stored values, and what pixels of no class are.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use super::failure::SampleError;
use crate::sample::Depth;
use crate::transform::{
    Accepted, MaskContent, Palette, PixelView, Transform, TransformError, Values,
};

/// Stands for no class among the numbers of [`ClassMap`].
const NO_CLASS: u16 = u16::MAX;

/// How a mask's pixels become class numbers.
#[derive(Clone, Debug)]
pub(super) struct ClassMap {
    stored: Stored,
    count: usize,
    accepted: Accepted,
    /// The transform that asks for it.
    transform: &'static str,
    /// What transforms before it add to masks, with their names.
    fills: Vec<(&'static str, Values)>,
}

/// What the mask stores.
#[derive(Clone, Debug)]
enum Stored {
    Colours(Arc<Palette>),
    /// The class of each value that the depth can hold.
    Values(Arc<[u16]>),
}

impl ClassMap {
    /// The map of a mask with `channels` of `depth`.
    ///
    /// # Errors
    ///
    /// A palette that cannot be read, or a mask that does not store `content`, as text.
    pub(super) fn new(
        content: MaskContent<'_>,
        accepted: Accepted,
        transform: &Transform,
        before: &[&Transform],
        depth: Depth,
    ) -> Result<ClassMap, TransformError> {
        let values = match depth {
            Depth::U8 => 1 << 8,
            Depth::U16 => 1 << 16,
        };
        let table = |classes: &mut dyn Iterator<Item = (usize, usize)>| {
            let mut table = vec![NO_CLASS; values];
            for (value, class) in classes {
                // A value beyond the depth is in no mask.
                if let Some(entry) = table.get_mut(value) {
                    *entry = class as u16;
                }
            }
            Stored::Values(table.into())
        };
        let (stored, count) = match content {
            MaskContent::Palette(path) => {
                let palette = Palette::from_csv(path)?;
                let count = palette.classes();
                (Stored::Colours(Arc::new(palette)), count)
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

    /// Number of classes.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Whether the mask stores colours.
    pub(super) fn takes_colours(&self) -> bool {
        matches!(self.stored, Stored::Colours(_))
    }

    /// Writes the class of every pixel, row by row, and `none` for those of no class. Returns how
    /// many those are.
    ///
    /// # Errors
    ///
    /// `NoClass` if they are not accepted; `Pixels` for a mask that stores something else.
    pub(super) fn indices<T: Copy + TryFrom<u16>>(
        &self,
        mask: &PixelView<'_>,
        out: &mut Vec<T>,
        none: T,
    ) -> Result<u64, SampleError> {
        let unknown = match &self.stored {
            Stored::Colours(palette) => palette
                .indices(mask, out, none)
                .map_err(SampleError::Transform)?,
            Stored::Values(table) => {
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

    /// The error about the pixels of a mask that have no class and are not accepted.
    fn no_class(&self, mask: &PixelView<'_>) -> TransformError {
        let mut strays: HashMap<[u16; 3], u64> = HashMap::new();
        match &self.stored {
            Stored::Colours(palette) => {
                for y in 0..mask.height() {
                    for &color in mask.row(y).as_chunks::<3>().0 {
                        if palette.class(color).is_none() {
                            *strays.entry(color.map(u16::from)).or_default() += 1;
                        }
                    }
                }
            }
            Stored::Values(table) => each_row(mask, |value| {
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
        // Of several that are as frequent the least, so that the message is the same on every run.
        let most = strays
            .iter()
            .max_by_key(|&(value, &count)| (count, std::cmp::Reverse(value)));
        let (value, count) = most.map_or(([0; 3], 0), |(value, count)| (*value, *count));
        let share = |count: u64| 100.0 * count as f64 / pixels;
        let mut found = format!("{:.2} % of the pixels have no class", share(all));
        let is_only = strays.len() == 1;
        let _ = match is_only {
            true => write!(found, ": they are {}", self.value_text(value)),
            false => write!(
                found,
                ", most of them ({:.2} %) are {}",
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

    /// A stored value or colour in words.
    fn value_text(&self, [first, second, third]: [u16; 3]) -> String {
        match self.stored {
            Stored::Colours(_) => format!("of the colour {first},{second},{third}"),
            Stored::Values(_) => format!("{first} where the classes are {}", self.classes_text()),
        }
    }

    /// The stored values of the classes.
    fn classes_text(&self) -> String {
        let Stored::Values(table) = &self.stored else {
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

    /// What the user can do about pixels with this value.
    fn fix(&self, value: [u16; 3], is_only: bool) -> String {
        let is_fill = |fill: &Values| {
            let fill = fill.as_slice();
            (0..3).all(|at| fill.get(at).or(fill.first()) == Some(&f64::from(value[at])))
        };
        let is_number = |fill: &Values| fill.as_slice().first() == Some(&f64::from(value[0]));
        let filled = self.fills.iter().find(|(_, fill)| match self.stored {
            Stored::Colours(_) => is_fill(fill),
            Stored::Values(_) => is_number(fill),
        });
        if let Some((name, _)) = filled {
            return format!(
                "{name} pads masks with that value: choose another one (mask_fill), or accept \
                 pixels of no class with unknown=\"ignore\""
            );
        }
        let of_values = match &self.stored {
            Stored::Colours(_) => {
                return "add the colour to the palette, or accept pixels of no class with \
                        unknown=\"ignore\""
                    .to_owned();
            }
            Stored::Values(_) if self.count == 2 && is_only && value[0] == 255 => {
                "use values=(0, 255) if these are the two classes"
            }
            Stored::Values(_) => "give the stored value of each class as values=(...)",
        };
        format!(
            "{of_values}, ignore_index={} if this value has no class, or unknown=\"ignore\" to \
             accept all pixels of no class",
            value[0]
        )
    }
}

/// Calls with each value of a mask of one channel, row by row.
fn each_row(mask: &PixelView<'_>, mut call: impl FnMut(usize)) {
    for y in 0..mask.height() {
        let row = mask.row(y);
        match mask.depth() {
            Depth::U8 => row.iter().for_each(|&value| call(usize::from(value))),
            Depth::U16 => super::write::samples16(row).for_each(|value| call(usize::from(value))),
        }
    }
}
