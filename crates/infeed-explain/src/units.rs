//! Formats bytes and times for the sentences of an explanation.

/// Formats a number of bytes, such as `960.0 kB`.
pub(super) fn bytes(count: f64) -> String {
    match count {
        b if b < 1e3 => format!("{b:.0} B"),
        b if b < 1e6 => format!("{:.1} kB", b / 1e3),
        b if b < 1e9 => format!("{:.2} MB", b / 1e6),
        b => format!("{:.2} GB", b / 1e9),
    }
}

/// Formats bytes per second, such as `9.60 GB/s`.
pub(super) fn per_s(count: f64) -> String {
    format!("{}/s", bytes(count))
}

/// Formats a time in seconds, such as `1.02 ms`.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.1} µs", 1e6 * s),
        s if s < 1.0 => format!("{:.2} ms", 1e3 * s),
        s => format!("{s:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_the_unit_that_fits() {
        assert_eq!(bytes(17.0), "17 B");
        assert_eq!(bytes(960_000.0), "960.0 kB");
        assert_eq!(per_s(9.6e9), "9.60 GB/s");
        assert_eq!(per_s(2e5), "200.0 kB/s");
        assert_eq!(time(0.00102), "1.02 ms");
        assert_eq!(time(0.000_008_71), "8.7 µs");
    }
}
