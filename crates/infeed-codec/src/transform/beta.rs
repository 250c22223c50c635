//! Random numbers from symmetric beta and Dirichlet distributions.
//!
//! Source: Jöhnk, "Erzeugung von betaverteilten und gammaverteilten Zufallszahlen" (1964), for
//! parameters up to 1/2; Ulrich's polar method for symmetric ones above, in Devroye, "Non-Uniform
//! Random Variate Generation" (1986), chapter IX.3. Dirichlet numbers are shares of gamma numbers,
//! after Marsaglia and Tsang, "A Simple Method for Generating Gamma Variables" (2000).

use super::Rng;

/// Draws a number from Beta(alpha, alpha) for a positive `alpha`.
pub(super) fn symmetric_beta(alpha: f64, rng: &mut Rng) -> f64 {
    // libm instead of std: the last bit of the platform's functions may differ.
    let log = |rng: &mut Rng| libm::log(1.0 - rng.uniform(0.0, 1.0));
    if alpha > 0.5 {
        let radius = (1.0 - libm::exp(log(rng) * 2.0 / (2.0 * alpha - 1.0))).max(0.0);
        let angle = std::f64::consts::TAU * rng.uniform(0.0, 1.0);
        return (0.5 + 0.5 * radius.sqrt() * libm::cos(angle)).clamp(0.0, 1.0);
    }
    // Computes with logarithms, because the powers of a small alpha underflow. In the worst case,
    // four of five pairs are accepted.
    loop {
        let (x, y) = (log(rng) / alpha, log(rng) / alpha);
        if libm::exp(x) + libm::exp(y) <= 1.0 {
            let larger = x.max(y);
            let (x, y) = (libm::exp(x - larger), libm::exp(y - larger));
            return x / (x + y);
        }
    }
}

/// Draws `count` positive numbers with the sum 1 from Dirichlet(alpha, .., alpha) for a positive
/// `alpha`.
pub(super) fn symmetric_dirichlet(alpha: f64, count: usize, rng: &mut Rng) -> Vec<f64> {
    let logarithms: Vec<f64> = (0..count).map(|_| gamma_logarithm(alpha, rng)).collect();
    let largest = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let parts: Vec<f64> = logarithms.iter().map(|v| libm::exp(v - largest)).collect();
    let sum: f64 = parts.iter().sum();
    parts.iter().map(|part| part / sum).collect()
}

/// Draws the logarithm of a number from Gamma(alpha), because the powers of a small alpha underflow.
fn gamma_logarithm(alpha: f64, rng: &mut Rng) -> f64 {
    let log = |rng: &mut Rng| libm::log(1.0 - rng.uniform(0.0, 1.0));
    // Below 1, a number from Gamma(alpha) is one from Gamma(alpha + 1) times a power.
    let (shape, power) = match alpha < 1.0 {
        true => (alpha + 1.0, log(rng) / alpha),
        false => (alpha, 0.0),
    };
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let radius = (-2.0 * log(rng)).sqrt();
        let x = radius * libm::cos(std::f64::consts::TAU * rng.uniform(0.0, 1.0));
        let root = 1.0 + c * x;
        let v = root * root * root;
        if v > 0.0 && log(rng) < 0.5 * x * x + d - d * v + d * libm::log(v) {
            return libm::log(d * v) + power;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 20_000;

    fn sorted_draws(alpha: f64) -> Vec<f64> {
        let draw = |n| symmetric_beta(alpha, &mut Rng::new(5, 0, n, 0));
        let mut all: Vec<f64> = (0..DRAWS as u64).map(draw).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    /// Compares the greatest distance to a distribution function with the 0.1 % point of the
    /// Kolmogorov distribution.
    fn fits(alpha: f64, distribution: impl Fn(f64) -> f64) {
        let distance = sorted_draws(alpha)
            .iter()
            .enumerate()
            .map(|(at, &x)| (distribution(x) - (at as f64 + 0.5) / DRAWS as f64).abs())
            .fold(0.0, f64::max);
        let limit = 1.95 / (DRAWS as f64).sqrt();
        assert!(distance < limit, "alpha {alpha}: {distance} over {limit}");
    }

    #[test]
    fn draws_follow_the_distributions_with_a_formula() {
        fits(0.5, |x| x.sqrt().asin() * std::f64::consts::FRAC_2_PI);
        fits(1.0, |x| x);
        fits(2.0, |x| x * x * (3.0 - 2.0 * x));
        fits(3.0, |x| x.powi(3) * (10.0 - 15.0 * x + 6.0 * x * x));
    }

    #[test]
    fn shares_have_the_sum_one_and_the_mean_and_variance_of_their_distribution() {
        for (alpha, count) in [(0.001, 3), (0.3, 2), (1.0, 3), (1.0, 1), (4.5, 5)] {
            let draw = |n| symmetric_dirichlet(alpha, count, &mut Rng::new(5, 0, n, 0));
            let (mut sum, mut squares) = (0.0, 0.0);
            for n in 0..DRAWS as u64 {
                let shares = draw(n);
                assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
                sum += shares[0];
                squares += shares[0] * shares[0];
            }
            let mean = sum / DRAWS as f64;
            let spread = squares / DRAWS as f64 - mean * mean;
            let share = 1.0 / count as f64;
            let variance = share * (1.0 - share) / (count as f64 * alpha + 1.0);
            let error = (variance / DRAWS as f64).sqrt();
            assert!((mean - share).abs() <= 4.0 * error, "alpha {alpha}: {mean}");
            assert!(
                (spread - variance).abs() <= 0.05 * variance,
                "alpha {alpha}: variance {spread}, expected {variance}"
            );
        }
    }

    #[test]
    fn mean_and_variance_are_right_for_other_parameters() {
        for alpha in [0.001, 0.1, 0.2, 0.4, 0.7, 8.0, 1000.0] {
            let all = sorted_draws(alpha);
            assert!(all.iter().all(|x| (0.0..=1.0).contains(x)), "alpha {alpha}");
            let mean = all.iter().sum::<f64>() / DRAWS as f64;
            let spread = all.iter().map(|x| (x - 0.5).powi(2)).sum::<f64>() / DRAWS as f64;
            let variance = 0.25 / (2.0 * alpha + 1.0);
            let error = (variance / DRAWS as f64).sqrt();
            assert!(
                (mean - 0.5).abs() < 4.0 * error,
                "alpha {alpha}: mean {mean}"
            );
            assert!(
                (spread / variance - 1.0).abs() < 0.05,
                "alpha {alpha}: variance {spread}, expected {variance}"
            );
        }
    }
}
