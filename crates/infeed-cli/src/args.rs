//! Parses sizes, rates, shapes and ranges as users write them.

use std::ops::RangeInclusive;

use infeed_core::sample::Size;
use infeed_core::units::parse_bytes;

/// Share of an Ethernet's bits that carry batches. Of 1538 bytes on the wire for a full frame, TCP
/// carries 1448.
const PAYLOAD: f64 = 0.94;

/// Parses a network rate into bytes of batches per second. `10Gbit` or `10Gb` counts bits and loses
/// the share of headers, `1.1GB` is taken as it is.
pub(crate) fn network(text: &str) -> Result<f64, String> {
    let wrong = || "write a rate, such as 10Gbit, 900Mbit or 1.1GB".to_owned();
    let text = text.trim();
    let text = ["/s", "ps"]
        .iter()
        .find_map(|per| text.strip_suffix(per))
        .unwrap_or(text);
    let lower = text.to_ascii_lowercase();
    // A lower-case b is a bit, an upper-case B a byte, as in the tools of network adapters.
    let small = || lower.strip_suffix('b').filter(|_| text.ends_with('b'));
    let bits = lower.strip_suffix("bit").or_else(small);
    let rate = match bits {
        Some(number) => {
            let end = number
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .unwrap_or(number.len());
            let (number, unit) = number.split_at(end);
            let factor = match unit.trim() {
                "" => 1.0,
                "k" => 1e3,
                "m" => 1e6,
                "g" => 1e9,
                "t" => 1e12,
                _ => return Err(wrong()),
            };
            let number: f64 = number.parse().map_err(|_| wrong())?;
            number * factor / 8.0 * PAYLOAD
        }
        None => parse_bytes(text).map_err(|_| wrong())? as f64,
    };
    match rate >= 1.0 && rate.is_finite() {
        true => Ok(rate),
        false => Err(wrong()),
    }
}

/// Parses `WIDTHxHEIGHT` in pixels, each 1 to 16384.
pub(crate) fn size(text: &str) -> Result<Size, String> {
    let sides = text.split_once(['x', 'X']).and_then(|(width, height)| {
        Some(Size {
            height: height.trim().parse().ok()?,
            width: width.trim().parse().ok()?,
        })
    });
    match sides {
        Some(size)
            if [size.height, size.width]
                .iter()
                .all(|s| (1..=16_384).contains(s)) =>
        {
            Ok(size)
        }
        _ => Err("write WIDTHxHEIGHT, such as 500x375, with sides of 1 to 16384".to_owned()),
    }
}

/// Parses `92` or `90-95`, within 1 to 100.
pub(crate) fn quality(text: &str) -> Result<RangeInclusive<u8>, String> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    match (low.trim().parse::<u8>(), high.trim().parse::<u8>()) {
        (Ok(low), Ok(high)) if 1 <= low && low <= high && high <= 100 => Ok(low..=high),
        _ => Err("write one number or a range, such as 90-95, within 1 to 100".to_owned()),
    }
}

/// Parses the number of samples on a contact sheet, 1 to 1000. The limit exists because the sheet
/// is one image in memory.
pub(crate) fn sheet_samples(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=1000) => Ok(count),
        _ => Err("write a number from 1 to 1000".to_owned()),
    }
}

/// Parses a number of threads, 1 to 4096.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=4096) => Ok(count),
        _ => Err("write a number from 1 to 4096".to_owned()),
    }
}

/// Parses a size above 0, such as `64GiB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        0 => Err("write a size above 0, such as 64GiB".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Parses a number of samples of a batch, 1 to 1048576.
pub(crate) fn rows(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(rows @ 1..=1_048_576) => Ok(rows),
        _ => Err("write a number from 1 to 1048576".to_owned()),
    }
}

/// Parses a positive number of seconds, such as `10` or `0.5`.
pub(crate) fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err("write a number above 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_rate_is_in_bits_or_bytes() {
        assert_eq!(network("10Gbit"), Ok(1.175e9));
        assert_eq!(network("10 Gbit/s"), Ok(1.175e9));
        assert_eq!(network("900Mbps"), network("0.9gbit"));
        assert_eq!(network("10Gb/s"), network("10Gbit"));
        assert_eq!(network("1.1GBps"), Ok(1.1e9));
        assert_eq!(network("1.1GB/s"), Ok(1.1e9));
        assert_eq!(network("1GiB"), Ok(f64::from(1 << 30)));
        for wrong in ["", "fast", "0Gbit", "10Xbit", "-1GB", "Gbit"] {
            assert!(network(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn image_sizes_are_width_by_height() {
        assert_eq!(
            size("500x375"),
            Ok(Size {
                height: 375,
                width: 500
            })
        );
        for wrong in ["500", "500x", "x5", "0x10", "10x99999", "5x5x5"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn qualities_are_a_number_or_a_range() {
        assert_eq!(quality("92"), Ok(92..=92));
        assert_eq!(quality("90-95"), Ok(90..=95));
        for wrong in ["0", "101", "95-90", "a-b", ""] {
            assert!(quality(wrong).is_err(), "{wrong}");
        }
    }
}
