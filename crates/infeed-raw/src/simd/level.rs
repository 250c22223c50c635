//! Vector instructions of this processor.

use std::env;
use std::sync::OnceLock;

/// A set of vector instructions, in increasing order; results never depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Only instructions that every processor of the target has.
    Scalar,
    /// x86-64 with SSSE3 and SSE4.1.
    Sse41,
    /// x86-64 with AVX2 and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW and VL.
    Avx512,
    /// 64-bit Arm.
    Neon,
}

impl Level {
    /// Returns the best level of this processor, or the lower one that the environment variable
    /// `INFEED_SIMD` names (`scalar`, `sse`, `avx2`, `avx512`, `neon`). An unknown or unavailable
    /// name has no effect. Determined once per process.
    pub fn detect() -> Level {
        static DETECTED: OnceLock<Level> = OnceLock::new();
        *DETECTED.get_or_init(|| choose(env::var("INFEED_SIMD").ok().as_deref()))
    }

    /// Returns every level that this processor supports, lowest first.
    pub fn available() -> Vec<Level> {
        let all = [
            Level::Scalar,
            Level::Sse41,
            Level::Avx2,
            Level::Avx512,
            Level::Neon,
        ];
        all.into_iter()
            .filter(|level| level.is_available())
            .collect()
    }

    /// Whether this processor supports the level.
    pub fn is_available(self) -> bool {
        match self {
            Level::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Level::Sse41 => is_x86_feature_detected!("ssse3") && is_x86_feature_detected!("sse4.1"),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c"),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                Level::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(target_arch = "aarch64")]
            Level::Neon => true,
            #[allow(
                unreachable_patterns,
                reason = "the remaining levels depend on the target"
            )]
            _ => false,
        }
    }

    /// Name in `INFEED_SIMD` and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Level::Scalar => "scalar",
            Level::Sse41 => "sse",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
            Level::Neon => "neon",
        }
    }
}

fn choose(requested: Option<&str>) -> Level {
    let available = Level::available();
    let named = available
        .iter()
        .find(|level| Some(level.name()) == requested);
    named.or(available.last()).copied().unwrap_or(Level::Scalar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_can_lower_the_level_but_not_raise_it() {
        let best = *Level::available().last().unwrap();

        assert_eq!(choose(Some("scalar")), Level::Scalar);
        assert_eq!(choose(None), best);
        assert_eq!(choose(Some("avx9000")), best);
        let foreign = if cfg!(target_arch = "aarch64") {
            "avx2"
        } else {
            "neon"
        };
        assert_eq!(choose(Some(foreign)), best);
    }
}
