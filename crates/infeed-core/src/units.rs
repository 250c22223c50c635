//! Sizes in bytes, written with units.

/// Parses a size: `2GiB`, `512 MB`, `1.5G` or plain bytes. `G` and `GiB` are 2^30 bytes, `GB` is
/// 10^9 bytes; K, M and T follow the same rule. Case does not matter.
///
/// # Errors
///
/// A message that shows how to write a size.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size; write 2GiB, 500MB or a number of bytes");
    let trimmed = text.trim();
    let end = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = number * factor as f64;
    if bytes >= u64::MAX as f64 {
        return Err(format!("{text:?} is above the limit of 2^64 bytes"));
    }
    Ok(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::parse_bytes;

    #[test]
    fn units_without_a_b_are_powers_of_1024() {
        for (text, bytes) in [
            ("4096", 4096),
            ("12 b", 12),
            ("1k", 1 << 10),
            ("1KiB", 1 << 10),
            ("1.5 MiB", 3 << 19),
            ("2G", 2 << 30),
            ("2GiB", 2 << 30),
            (" 2gib ", 2 << 30),
            ("1T", 1 << 40),
            ("1kb", 1_000),
            ("512 MB", 512_000_000),
            ("2GB", 2_000_000_000),
            ("1TB", 1_000_000_000_000),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn other_text_is_an_error_that_shows_how_to_write_a_size() {
        for text in ["", "GiB", "2 gigs", "1.2.3M", "-1", "1XB", "1e9", "much"] {
            let error = parse_bytes(text).expect_err(text);
            assert!(error.contains("write 2GiB"), "{error}");
        }
        let error = parse_bytes("999999999999T").expect_err("over the limit");
        assert!(error.contains("2^64"), "{error}");
    }
}
