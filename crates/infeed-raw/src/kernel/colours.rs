//! A palette as a kernel looks colours up: a hash table with open addressing, passed with the
//! launch.

use super::error::KernelError;
use super::operation::MAX_COLOURS;

/// Slots of the table, at least twice the number of colours.
pub(super) const SLOTS: usize = 512;

const _: () = assert!(2 * MAX_COLOURS <= SLOTS && SLOTS.is_power_of_two());

/// Fibonacci hashing: the upper bits of the product depend on all bits of the colour. The same
/// number is in `kernels/classes.c`.
const FACTOR: u32 = 0x9e37_79b1;

/// Colours and their classes, found by exact match.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Colours {
    /// One more than the colour, red in the lowest bits; 0 for an empty slot.
    slots: [u32; SLOTS],
    classes: [u8; SLOTS],
}

impl Colours {
    /// # Errors
    ///
    /// `Palette` if the numbers of classes and colours differ, or there are too many; `TwoClasses`
    /// if one colour has two.
    pub(super) fn of(colours: &[[u8; 3]], classes: &[u8]) -> Result<Colours, KernelError> {
        if colours.len() != classes.len() || colours.len() > MAX_COLOURS {
            return Err(KernelError::Palette {
                colours: colours.len(),
                classes: classes.len(),
            });
        }
        let mut table = Colours {
            slots: [0; SLOTS],
            classes: [0; SLOTS],
        };
        for (&colour, &class) in colours.iter().zip(classes) {
            let [r, g, b] = colour.map(u32::from);
            let key = r | g << 8 | b << 16;
            let mut at = (key.wrapping_mul(FACTOR) >> 23) as usize;
            // Terminates: there are fewer colours than slots.
            while table.slots[at] != 0 && table.slots[at] != key + 1 {
                at = (at + 1) % SLOTS;
            }
            if table.slots[at] != 0 && table.classes[at] != class {
                return Err(KernelError::TwoClasses {
                    colour,
                    first: table.classes[at],
                    second: class,
                });
            }
            table.slots[at] = key + 1;
            table.classes[at] = class;
        }
        Ok(table)
    }
}
