//! Sizes and times with units, as users write and read them.

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

/// Formats bytes such as `1.2 GB`, with powers of 1000 like disks and networks.
pub fn format_bytes(count: f64) -> String {
    if let Some(word) = non_finite_word(count) {
        return word;
    }
    let mut value = count;
    let mut unit = "B";
    for next in ["kB", "MB", "GB", "TB", "PB"] {
        // A value that would round to 1000 of one unit is 1 of the next.
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    match unit {
        "B" => format!("{value:.0} B"),
        _ => format!("{} {unit}", figures(value)),
    }
}

/// Formats bytes per second such as `9.6 GB/s`.
pub fn format_bytes_per_s(count: f64) -> String {
    format!("{}/s", format_bytes(count))
}

/// Formats a time such as `6.4 ms`, `42 s` or `3.4 h`.
pub fn format_seconds(s: f64) -> String {
    if let Some(word) = non_finite_word(s) {
        return word;
    }
    let (value, unit) = match s.abs() {
        0.0 => return "0".to_owned(),
        a if a < 1e-6 => (s * 1e9, "ns"),
        a if a < 1e-3 => (s * 1e6, "µs"),
        a if a < 1.0 => (s * 1e3, "ms"),
        a if a < 120.0 => (s, "s"),
        a if a < 7200.0 => (s / 60.0, "min"),
        _ => (s / 3600.0, "h"),
    };
    format!("{} {unit}", figures(value))
}

/// Formats a share such as `38 %`. Below 1 % it has one more digit, to separate small from 0.
pub fn format_percent(share: f64) -> String {
    match share * 100.0 {
        p if !p.is_finite() => "unknown".to_owned(),
        p if p != 0.0 && p.abs() < 0.95 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

/// Formats a factor such as `1.92x`, with at most three digits.
pub fn format_factor(f: f64) -> String {
    match non_finite_word(f) {
        Some(word) => word,
        None if f < 9.995 => format!("{f:.2}x"),
        None if f < 99.95 => format!("{f:.1}x"),
        None => format!("{f:.0}x"),
    }
}

/// Formats a number with at most three digits, without trailing zeros: `6.4`, `42`, `312`, `12400`.
pub fn figures(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = match value.abs() {
        a if a < 0.0995 => 3,
        a if a < 9.995 => 2,
        a if a < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Returns the word for NaN or infinity. None for finite numbers.
pub fn non_finite_word(value: f64) -> Option<String> {
    if value.is_nan() {
        return Some("unknown".to_owned());
    }
    value.is_infinite().then(|| "no limit".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_figures_and_the_unit_that_fits() {
        assert_eq!(figures(12_412.0), "12412");
        assert_eq!(format_seconds(0.0064), "6.4 ms");
        assert_eq!(format_seconds(0.000_087_3), "87.3 µs");
        assert_eq!(format_seconds(6e-8), "60 ns");
        assert_eq!(format_seconds(42.0), "42 s");
        assert_eq!(format_seconds(12_240.0), "3.4 h");
        assert_eq!(format_seconds(f64::NAN), "unknown");
        assert_eq!(format_bytes(1_240_000_000.0), "1.24 GB");
        assert_eq!(format_bytes(999_600.0), "1 MB");
        assert_eq!(format_bytes(17.0), "17 B");
        assert_eq!(format_bytes(f64::INFINITY), "no limit");
        assert_eq!(format_bytes_per_s(9.6e9), "9.6 GB/s");
        assert_eq!(format_factor(1.0), "1.00x");
        assert_eq!(format_factor(f64::INFINITY), "no limit");
    }

    #[test]
    fn small_shares_differ_from_zero() {
        let shares = [0.0, 0.004, 0.375, f64::NAN].map(format_percent);
        assert_eq!(shares, ["0 %", "0.4 %", "38 %", "unknown"]);
    }

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
