//! What a test asks of the stand-in, through the environment.

use std::env;
use std::ffi::c_uint;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// What the environment says, read when the driver is initialised.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// `STANDIN_CARDS`: how many cards there are; 2 if it is not set.
    pub(crate) cards: usize,
    /// `STANDIN_MEMORY`: bytes of each; 1 GiB.
    pub(crate) memory_bytes: usize,
    /// `STANDIN_ENGINES`: engines for JPEGs of each; 1.
    pub(crate) engines: u32,
    /// `STANDIN_POOLS`: whether devices have memory pools; 1.
    pub(crate) pools: u32,
    /// `STANDIN_DELAY_US`: each command begins late by up to so long, at random; 0.
    pub(crate) delay: Duration,
    /// `STANDIN_VERSION`: of CUDA, as `cuDriverGetVersion` counts; 12080.
    pub(crate) version: i32,
    /// `STANDIN_FAIL`: calls that fail, as [`Failing::parse`] reads them.
    pub(crate) failing: Vec<Failing>,
    /// `STANDIN_REPORT`: where to write, as the process ends, what
    /// [`report`](super::report) tells.
    pub(crate) report: Option<PathBuf>,
    /// Whether misuse ends the process. Set for drivers of tests in the same program.
    pub(crate) is_strict: bool,
}

/// A call that returns a code in place of what it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failing {
    pub(crate) function: String,
    /// What it returns; with 0 it pretends to have done what it has not.
    pub(crate) code: c_uint,
    /// Which of the calls, from 1 on; 0 for all.
    pub(crate) nth: u64,
}

impl Failing {
    /// `function:code:nth`, several with commas between: `cuMemAlloc_v2:2:3` is the third allocation,
    /// which finds no memory.
    ///
    /// # Errors
    ///
    /// The part that cannot be read.
    pub(crate) fn parse(text: &str) -> Result<Vec<Failing>, String> {
        let one = |part: &str| {
            let mut words = part.trim().split(':');
            let found = (|| {
                Some(Failing {
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

impl Settings {
    /// # Errors
    ///
    /// The variable that cannot be read.
    pub(crate) fn of_environment() -> Result<Settings, String> {
        let failing = env::var("STANDIN_FAIL").unwrap_or_default();
        Ok(Settings {
            cards: number("STANDIN_CARDS", 2)?,
            memory_bytes: number("STANDIN_MEMORY", 1 << 30)?,
            engines: number("STANDIN_ENGINES", 1)?,
            pools: number("STANDIN_POOLS", 1)?,
            delay: Duration::from_micros(number("STANDIN_DELAY_US", 0)?),
            version: number("STANDIN_VERSION", 12_080)?,
            failing: Failing::parse(&failing).map_err(|part| format!("STANDIN_FAIL: {part}"))?,
            report: env::var_os("STANDIN_REPORT").map(PathBuf::from),
            is_strict: false,
        })
    }

    /// For the driver of a test in the same program: two devices without pools of memory.
    pub(crate) fn of_test() -> Settings {
        Settings {
            cards: 2,
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
    fn calls_that_fail_are_read_from_text() {
        let failing = Failing::parse("cuMemAlloc_v2:2:3, cuEventQuery:700:0").expect("two");

        let expected = [("cuMemAlloc_v2", 2, 3), ("cuEventQuery", 700, 0)];
        let expected = expected.map(|(function, code, nth)| Failing {
            function: function.to_owned(),
            code,
            nth,
        });
        assert_eq!(failing, expected);
        assert_eq!(Failing::parse(""), Ok(Vec::new()));
        for bad in ["cuInit", "cuInit:x:1", ":2:1"] {
            assert_eq!(Failing::parse(bad), Err(bad.to_owned()));
        }
    }
}
