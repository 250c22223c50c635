//! Formats numbers for people: three digits and a suitable unit.

use crate::model::interval::Interval;
use infeed_core::units::{figures, format_factor, non_finite_word};

/// Formats a rate such as `312 samples/s`, or `no limit` if it is infinite.
pub(super) fn rate(per_s: f64) -> String {
    non_finite_word(per_s).unwrap_or_else(|| format!("{} samples/s", figures(per_s)))
}

/// Formats a rate such as `312/s`, for columns whose header has the unit.
pub(super) fn short_rate(per_s: f64) -> String {
    non_finite_word(per_s).unwrap_or_else(|| format!("{}/s", figures(per_s)))
}

/// Formats a cost with `write`, or `none` for 0.
pub(super) fn cost(value: f64, write: impl Fn(f64) -> String) -> String {
    match value == 0.0 {
        true => "none".to_owned(),
        false => write(value),
    }
}

/// Formats a factor such as `1.92x (1.80-2.05)`, without the ends if they equal the middle.
pub(super) fn factor_interval(i: Interval) -> String {
    let (low, high) = (format_factor(i.low), format_factor(i.high));
    let mid = format_factor(i.mid);
    if low == mid && high == mid {
        return mid;
    }
    format!("{mid} ({}-{})", bare(&low), bare(&high))
}

/// Formats an interval such as `312 (300 to 325)`, each number with `write`.
pub(super) fn interval(i: Interval, write: impl Fn(f64) -> String) -> String {
    let (low, mid, high) = (write(i.low), write(i.mid), write(i.high));
    if low == mid && high == mid {
        return mid;
    }
    format!("{mid} ({low} to {high})")
}

/// Formats a time such as `2026-11-21 05:27 UTC`.
pub(super) fn moment(s_since_1970: u64) -> String {
    let minute = s_since_1970 % 86_400 / 60;
    let (hour, minute) = (minute / 60, minute % 60);
    format!("{} {hour:02}:{minute:02} UTC", day(s_since_1970))
}

/// Formats a day in UTC such as `2026-11-21`.
///
/// Source: Howard Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`.
pub(super) fn day(s_since_1970: u64) -> String {
    // Days since 0000-03-01, so that the leap day is the last of a year.
    let shifted = s_since_1970 / 86_400 + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = (shifted_month + 2) % 12 + 1;
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day_of_month:02}")
}

fn bare(factor: &str) -> &str {
    factor.trim_end_matches('x')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_figures() {
        assert_eq!(rate(312.44), "312 samples/s");
        assert_eq!(rate(12_412.0), "12412 samples/s");
        assert_eq!(short_rate(4.0), "4/s");
    }

    #[test]
    fn nan_and_infinity_are_words() {
        assert_eq!(rate(f64::INFINITY), "no limit");
    }

    #[test]
    fn an_interval_without_spread_is_one_number() {
        let spread = Interval {
            low: 1.8,
            mid: 1.92,
            high: 2.051,
        };

        assert_eq!(factor_interval(spread), "1.92x (1.80-2.05)");
        assert_eq!(factor_interval(Interval::exact(1.0)), "1.00x");
        assert_eq!(interval(spread, figures), "1.92 (1.8 to 2.05)");
    }

    #[test]
    fn moments_are_dates_of_the_calendar() {
        assert_eq!(moment(0), "1970-01-01 00:00 UTC");
        assert_eq!(moment(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(moment(1_767_225_599), "2025-12-31 23:59 UTC");
    }
}
