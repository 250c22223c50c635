//! Formats rates, times, shares and factors for the sentences of an explanation.

use infeed_core::units::non_finite_word;
pub(crate) use infeed_core::units::{format_bytes as bytes, format_seconds as time};

/// Formats bytes per second, such as `9.60 GB/s`.
pub(crate) fn per_s(count: f64) -> String {
    format!("{}/s", bytes(count))
}

/// Formats a share such as `38 %`, with one digit below 10 %.
pub(crate) fn percent(share: f64) -> String {
    match share < 0.1 {
        true => format!("{:.1} %", 100.0 * share),
        false => format!("{:.0} %", 100.0 * share),
    }
}

/// Formats a factor such as `1.92x`, with at most three digits.
pub(crate) fn factor(f: f64) -> String {
    match non_finite_word(f) {
        Some(word) => word,
        None if f < 9.995 => format!("{f:.2}x"),
        None if f < 99.95 => format!("{f:.1}x"),
        None => format!("{f:.0}x"),
    }
}

/// Formats a time in milliseconds, with three digits below a second.
pub(crate) fn milliseconds(seconds: f64) -> String {
    match seconds < 1.0 {
        true => format!("{} ms", significant(1e3 * seconds, 3)),
        false => format!("{:.0} ms", 1e3 * seconds),
    }
}

/// Formats a time in seconds, or in milliseconds below a second.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds >= 1.0 {
        true => format!("{seconds:.2} s"),
        false => milliseconds(seconds),
    }
}

/// Formats a number with up to `digits` significant digits, as `%g` of C: without trailing zeros,
/// and with an exponent if the number is very small or has more digits before the point.
pub(crate) fn significant(value: f64, digits: usize) -> String {
    let short = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let most = digits.max(1) as i32 - 1;
    let scientific = format!("{value:.*e}", most as usize);
    let parts = scientific.split_once('e');
    let Some((mantissa, Ok(exponent))) = parts.map(|(m, e)| (m, e.parse::<i32>())) else {
        // Infinity and NaN have no exponent.
        return scientific;
    };
    if (-4..=most).contains(&exponent) {
        let after_point = (most - exponent).max(0) as usize;
        return short(&format!("{value:.after_point$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", short(mantissa), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn significant_digits_are_those_of_c() {
        assert_eq!(significant(0.0, 3), "0");
        assert_eq!(significant(28.96, 4), "28.96");
        assert_eq!(significant(10.0, 3), "10");
        assert_eq!(significant(0.07012, 3), "0.0701");
        assert_eq!(significant(0.000_04, 3), "4e-05");
        assert_eq!(significant(999.6, 3), "1e+03");
        assert_eq!(significant(12_345.0, 4), "1.234e+04");
        assert_eq!(significant(f64::INFINITY, 3), "inf");
    }

    #[test]
    fn shares_and_times_have_the_digits_that_matter() {
        assert_eq!(
            [percent(0.0), percent(0.071), percent(0.38)],
            ["0.0 %", "7.1 %", "38 %"]
        );
        assert_eq!(milliseconds(0.0536), "53.6 ms");
        assert_eq!(milliseconds(1.2341), "1234 ms");
        assert_eq!([duration(1.756), duration(0.5)], ["1.76 s", "500 ms"]);
    }
}
