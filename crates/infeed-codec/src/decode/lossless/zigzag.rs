//! Positions of the nonzero coefficients of a block.

use infeed_raw::jpeg_coefficients::CoefficientBlock;
use infeed_raw::simd::ZIGZAG;

/// For each row of a block, and each mask of its nonzero coefficients, the mask in zigzag order.
static ROW_MASKS: [[u64; 256]; 8] = {
    let mut masks = [[0; 256]; 8];
    let mut at = 0;
    while at < 64 {
        let (row, column) = (ZIGZAG[at] as usize / 8, ZIGZAG[at] % 8);
        let mut mask = 0;
        while mask < 256 {
            if mask >> column & 1 == 1 {
                masks[row][mask] |= 1 << at;
            }
            mask += 1;
        }
        at += 1;
    }
    masks
};

/// Returns a mask of the coefficients that are not zero: bit *i* is the coefficient *i* in zigzag
/// order.
pub(super) fn zigzag_mask(block: &CoefficientBlock) -> u64 {
    let (rows, _) = block.as_chunks::<8>();
    let mut found = 0;
    for (row, masks) in rows.iter().zip(&ROW_MASKS) {
        if *row == [0; 8] {
            continue;
        }
        let mut mask = 0;
        for (column, &value) in row.iter().enumerate() {
            mask |= usize::from(value != 0) << column;
        }
        found |= masks[mask];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_coefficient_has_the_bit_of_its_position() {
        let mut block = [0; 64];
        let mut expected = 0;
        for at in (0..64).chain([3, 62]) {
            let value = &mut block[usize::from(ZIGZAG[at])];
            *value = if *value == 0 { -1 << (at % 16) } else { 0 };
            expected ^= 1 << at;
            assert_eq!(zigzag_mask(&block), expected, "{at}");
        }
    }
}
