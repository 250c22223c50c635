//! Settings of the fake driver, which tests pass through environment variables.

use std::env;
use std::ffi::c_uint;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Settings of the environment, read when the driver is initialised.
#[derive(Clone, Debug)]
pub(crate) struct FakeSettings {
    /// `FAKE_CUDA_GPUS`: number of GPUs; 2 by default.
    pub(crate) gpus: usize,
    /// `FAKE_CUDA_MEMORY`: bytes of memory of each GPU; 1 GiB by default.
    pub(crate) memory_bytes: usize,
    /// `FAKE_CUDA_ENGINES`: number of JPEG engines of each GPU; 1 by default.
    pub(crate) engines: u32,
    /// `FAKE_CUDA_POOLS`: whether devices have memory pools; 1 by default.
    pub(crate) pools: u32,
    /// `FAKE_CUDA_DELAY_US`: largest random delay before each command; 0 by default.
    pub(crate) delay: Duration,
    /// `FAKE_CUDA_VERSION`: CUDA version, as `cuDriverGetVersion` counts; 12080 by default.
    pub(crate) version: i32,
    /// `FAKE_CUDA_FAIL`: calls that fail, as [`FailingCall::parse`] reads them.
    pub(crate) failing: Vec<FailingCall>,
    /// `FAKE_CUDA_REPORT`: path of the [`report`](super::report) that is written when the process
    /// ends.
    pub(crate) report: Option<PathBuf>,
    /// Whether misuse ends the process. Set for drivers of tests in the same program.
    pub(crate) is_strict: bool,
}

/// A call that returns a code instead of taking effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailingCall {
    pub(crate) function: String,
    /// The code that it returns; with 0 it reports success without having any effect.
    pub(crate) code: c_uint,
    /// Number of the failing call, from 1; 0 for all.
    pub(crate) nth: u64,
}

impl FailingCall {
    /// Parses `function:code:nth`, separated by commas: `cuMemAlloc_v2:2:3` makes the third
    /// allocation report that no memory is left.
    ///
    /// # Errors
    ///
    /// The part that cannot be parsed.
    pub(crate) fn parse(text: &str) -> Result<Vec<FailingCall>, String> {
        let one = |part: &str| {
            let mut words = part.trim().split(':');
            let found = (|| {
                Some(FailingCall {
                    function: words.next().filter(|name| !name.is_empty())?.to_owned(),
                    code: words.next()?.parse().ok()?,
                    nth: words.next()?.parse().ok()?,
                })
            })();
            found.ok_or_else(|| part.to_owned())
        };
        text.split(',')
            .filter(|part| !part.trim().is_empty())
            .map(one)
            .collect()
    }
}

impl FakeSettings {
    /// # Errors
    ///
    /// The variable that cannot be parsed.
    pub(crate) fn of_environment() -> Result<FakeSettings, String> {
        let failing = env::var("FAKE_CUDA_FAIL").unwrap_or_default();
        Ok(FakeSettings {
            gpus: number("FAKE_CUDA_GPUS", 2)?,
            memory_bytes: number("FAKE_CUDA_MEMORY", 1 << 30)?,
            engines: number("FAKE_CUDA_ENGINES", 1)?,
            pools: number("FAKE_CUDA_POOLS", 1)?,
            delay: Duration::from_micros(number("FAKE_CUDA_DELAY_US", 0)?),
            version: number("FAKE_CUDA_VERSION", 12_080)?,
            failing: FailingCall::parse(&failing)
                .map_err(|part| format!("FAKE_CUDA_FAIL: {part}"))?,
            report: env::var_os("FAKE_CUDA_REPORT").map(PathBuf::from),
            is_strict: false,
        })
    }

    /// Settings of a test in the same program: two devices without memory pools.
    pub(crate) fn of_test() -> FakeSettings {
        FakeSettings {
            gpus: 2,
            memory_bytes: 1 << 30,
            engines: 1,
            pools: 0,
            delay: Duration::ZERO,
            version: 12_080,
            failing: Vec::new(),
            report: None,
            is_strict: true,
        }
    }
}

fn number<T: FromStr>(name: &str, unset: T) -> Result<T, String> {
    match env::var(name) {
        Ok(text) => text.parse().map_err(|_| format!("{name}: {text}")),
        Err(_) => Ok(unset),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_calls_are_parsed_from_text() {
        let failing = FailingCall::parse("cuMemAlloc_v2:2:3, cuEventQuery:700:0").expect("two");

        let expected = [("cuMemAlloc_v2", 2, 3), ("cuEventQuery", 700, 0)];
        let expected = expected.map(|(function, code, nth)| FailingCall {
            function: function.to_owned(),
            code,
            nth,
        });
        assert_eq!(failing, expected);
        assert_eq!(FailingCall::parse(""), Ok(Vec::new()));
        for bad in ["cuInit", "cuInit:x:1", ":2:1"] {
            assert_eq!(FailingCall::parse(bad), Err(bad.to_owned()));
        }
    }
}
