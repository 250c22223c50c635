//! The argument of every kernel, a struct passed by value: the structs of `kernels/rows.h` in Rust.

use super::colours::Colours;

/// Divides numbers below 2^31 by a divisor that is known before the launch, with a product and a
/// shift. A device would need twenty instructions for each division.
///
/// Source: Granlund and Montgomery, "Division by invariant integers using multiplication", 1994.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Divider {
    by: u32,
    factor: u32,
    shift: u32,
}

impl Divider {
    /// Returns the divider for a divisor below 2^31. 0, which is passed if nothing is divided,
    /// counts as 1.
    ///
    /// Let `l` be the logarithm of the divisor, rounded up, and `factor` be `2^(31+l) / divisor`,
    /// rounded up. Rounding makes the factor too large by less than 1, which changes the quotient
    /// of a number below 2^31 by less than the distance to the next integer. The factor fits 32
    /// bits, since the divisor is more than `2^(l-1)`.
    pub(super) fn of(by: usize) -> Divider {
        let by = u32::try_from(by).unwrap_or(u32::MAX).clamp(1, 1 << 31);
        let shift = 31 + by.next_power_of_two().trailing_zeros();
        let factor = (1_u64 << shift).div_ceil(u64::from(by));
        Divider {
            by,
            factor: factor as u32,
            shift,
        }
    }

    /// Returns the quotient, as the kernels compute it.
    #[cfg(all(test, not(miri)))]
    pub(super) fn divide(self, n: u32) -> u32 {
        ((u64::from(n) * u64::from(self.factor)) >> self.shift) as u32
    }
}

/// Rows to read and rows to write: `struct rows`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelRows {
    /// Address of the first byte.
    pub(super) input: u64,
    /// Address of the first element.
    pub(super) output: u64,
    /// Address of the table; 0 without a table.
    pub(super) table: u64,
    /// Bytes from row to row of the input, without views.
    pub(super) input_row: u64,
    /// Bytes from row to row of the output.
    pub(super) output_row: u64,
    pub(super) height: u32,
    pub(super) width: u32,
    /// Bytes of a pixel of the input.
    pub(super) pixel: u32,
    /// Number of items that the threads of a row divide: elements of the output or, if a thread
    /// writes to all planes, pixels.
    pub(super) count: u32,
    /// Divides by the blocks of a row.
    pub(super) blocks: Divider,
    /// Divides by the elements (or pixels) of a line.
    pub(super) line: Divider,
    /// Divides by the elements of a pixel, or by the pixels of a plane.
    pub(super) group: Divider,
    pub(super) unused: u32,
}

/// `struct expand`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Expand {
    pub(super) rows: KernelRows,
    pub(super) scale: [f32; 4],
    pub(super) bias: [f32; 4],
}

/// `struct classes`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Classes {
    pub(super) rows: KernelRows,
    pub(super) colours: Colours,
    pub(super) unknown: u32,
    pub(super) unused: u32,
}

/// `struct widen`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Widen {
    pub(super) rows: KernelRows,
    pub(super) unknown: u64,
}

// The same sizes as in the assertions of `kernels/*.c`. Kernels accept at most 4096 bytes.
const _: () = assert!(size_of::<KernelRows>() == 96);
const _: () = assert!(size_of::<Expand>() == 128);
const _: () = assert!(size_of::<Classes>() == 2664);
const _: () = assert!(size_of::<Widen>() == 104);

/// Argument that can be passed as words.
///
/// # Safety
///
/// The type has no gaps and is a multiple of 8 bytes long.
pub(super) unsafe trait Argument: Copy {
    fn words(&self) -> Vec<u64> {
        let mut words = vec![0_u64; size_of::<Self>() / 8];
        // SAFETY: every byte of `self` is initialised, since the type has no gaps; the vector is
        // new and has the same number of bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(
                std::ptr::from_ref(self).cast::<u8>(),
                words.as_mut_ptr().cast::<u8>(),
                size_of::<Self>(),
            );
        }
        words
    }
}

// SAFETY: the members' 5 * 8 + 4 * 4 + 9 * 4 + 4 bytes are the 96 bytes asserted above.
unsafe impl Argument for KernelRows {}
// SAFETY: 96 + 4 * 4 + 4 * 4 are the 128 bytes asserted above.
unsafe impl Argument for Expand {}
// SAFETY: 96 + 512 * 4 + 512 + 4 + 4 are the 2664 bytes asserted above.
unsafe impl Argument for Classes {}
// SAFETY: 96 + 8 are the 104 bytes asserted above.
unsafe impl Argument for Widen {}
