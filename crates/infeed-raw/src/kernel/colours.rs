//! A palette as a kernel looks colours up: open addressing in a table that travels with the
//! launch.

use super::{KernelError, MAX_COLOURS};

/// Places of the table, at least twice the colours.
pub(super) const PLACES: usize = 512;

const _: () = assert!(2 * MAX_COLOURS <= PLACES && PLACES.is_power_of_two());

/// Fibonacci hashing: the upper bits of the product depend on all bits of the colour. The same
/// number is in `kernels/classes.c`.
const FACTOR: u32 = 0x9e37_79b1;

/// Colours and their classes, found by exact match.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Colours {
    /// One more than the colour, red in the lowest bits; 0 where there is none.
    positions: [u32; PLACES],
    classes: [u8; PLACES],
}

impl Colours {
    /// # Errors
    ///
    /// `Palette` if there is not a class for every colour, or too many; `TwoClasses` if one colour
    /// has two.
    pub(super) fn of(colours: &[[u8; 3]], classes: &[u8]) -> Result<Colours, KernelError> {
        if colours.len() != classes.len() || colours.len() > MAX_COLOURS {
            return Err(KernelError::Palette {
                colours: colours.len(),
                classes: classes.len(),
            });
        }
        let mut table = Colours {
            positions: [0; PLACES],
            classes: [0; PLACES],
        };
        for (&colour, &class) in colours.iter().zip(classes) {
            let [r, g, b] = colour.map(u32::from);
            let key = r | g << 8 | b << 16;
            let mut at = (key.wrapping_mul(FACTOR) >> 23) as usize;
            // Ends: fewer colours than places.
            while table.positions[at] != 0 && table.positions[at] != key + 1 {
                at = (at + 1) % PLACES;
            }
            if table.positions[at] != 0 && table.classes[at] != class {
                return Err(KernelError::TwoClasses {
                    colour,
                    first: table.classes[at],
                    second: class,
                });
            }
            table.positions[at] = key + 1;
            table.classes[at] = class;
        }
        Ok(table)
    }
}
