//! Numbers in LEB128: seven bits per byte, the lowest first; the high bit marks all bytes but the
//! last.

pub(crate) fn write(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads a number of at most 32 bits from the start of `bytes`, and moves past it.
pub(super) fn read(bytes: &mut &[u8]) -> Option<usize> {
    let mut value = 0u64;
    for (at, &byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7F) << (7 * at);
        if byte < 0x80 {
            *bytes = &bytes[at + 1..];
            return usize::try_from(u32::try_from(value).ok()?).ok();
        }
    }
    None
}

/// Reads a length and returns this number of bytes.
pub(super) fn read_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = read(bytes)?;
    let (head, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(head)
}
