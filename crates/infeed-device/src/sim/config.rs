//! Rates of a simulated device, and their text form.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use infeed_core::error::Error;
use infeed_core::random;

/// Rates and delays of a simulated device. The text form is `sim` or
/// `sim:bandwidth=2e9,latency=20us,kernel=4e9,jpeg=1e9,jitter=0.3,seed=1,memory=8e9`, in any order.
/// Omitted settings have their default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimConfig {
    /// Bytes per second over the bus, which carries one copy at a time.
    pub bandwidth_bytes_per_s: f64,
    /// Fixed time that every command takes in addition.
    pub latency: Duration,
    /// Bytes per second, read and written together, of a kernel or a copy on the device.
    pub kernel_bytes_per_s: f64,
    /// Pixels per second of JPEG decoding, after the files crossed the bus; None if the device
    /// cannot decode.
    pub jpeg_pixels_per_s: Option<f64>,
    /// Random variation: every command takes between `1 - jitter` and `1 + jitter` times as long; 0
    /// to 1.
    pub jitter: f64,
    /// Seed of the random delays.
    pub seed: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Whether rings wait on the host, as on a GPU ([`Device::is_slowed_by_waits`]). Has no text
    /// form.
    ///
    /// [`Device::is_slowed_by_waits`]: crate::Device::is_slowed_by_waits
    pub is_slowed_by_waits: bool,
}

impl Default for SimConfig {
    /// Returns round numbers in the range of a GPU on a slow bus, not those of a particular GPU.
    fn default() -> SimConfig {
        SimConfig {
            bandwidth_bytes_per_s: 10e9,
            latency: Duration::from_micros(10),
            kernel_bytes_per_s: 200e9,
            jpeg_pixels_per_s: Some(2e9),
            jitter: 0.0,
            seed: 0,
            memory_bytes: 16 << 30,
            is_slowed_by_waits: false,
        }
    }
}

impl SimConfig {
    /// Returns the nanoseconds of a stream's `command`-th command, which moves `bytes` at a rate.
    pub(super) fn duration_ns(
        &self,
        bytes: u64,
        bytes_per_s: f64,
        stream: usize,
        command: u64,
    ) -> u64 {
        let ns = self.latency.as_nanos() as f64 + bytes as f64 / bytes_per_s * 1e9;
        self.delayed_ns(ns, stream, command)
    }

    /// Applies the jitter to a time.
    pub(super) fn delayed_ns(&self, ns: f64, stream: usize, command: u64) -> u64 {
        let random = random::hash(&[self.seed, stream as u64, command]) as f64 / u64::MAX as f64;
        // The cast saturates: values that are too large give the maximum, and negative ones 0.
        (ns * (1.0 + self.jitter * (2.0 * random - 1.0))).round() as u64
    }
}

const KEYS: &str = "bandwidth, latency, kernel, jpeg, jitter, seed or memory";

impl FromStr for SimConfig {
    type Err = Error;

    fn from_str(text: &str) -> Result<SimConfig, Error> {
        let wrong = |part: &str, problem: &str| {
            Err(Error::config(
                format!("device {text:?}"),
                format!("`{part}` {problem}"),
            ))
        };
        let settings = match text.split_once(':') {
            None if text == "sim" => return Ok(SimConfig::default()),
            Some(("sim", settings)) => settings,
            _ => {
                return wrong(
                    text,
                    "is not a simulated device; write `sim` or `sim:key=value,…`",
                );
            }
        };
        let mut config = SimConfig::default();
        let mut seen = Vec::new();
        for setting in settings.split(',') {
            let Some((key, value)) = setting.split_once('=') else {
                return wrong(setting, &format!("is not key=value; the key is {KEYS}"));
            };
            if seen.contains(&key) {
                return wrong(key, "is given twice; remove one");
            }
            seen.push(key);
            let number = value.parse().ok().filter(|n: &f64| n.is_finite());
            let rate = number.filter(|&n| n > 0.0);
            match key {
                "bandwidth" | "kernel" => {
                    let Some(rate) = rate else {
                        return wrong(key, "takes bytes per second, above 0, such as 2e9");
                    };
                    match key {
                        "bandwidth" => config.bandwidth_bytes_per_s = rate,
                        _ => config.kernel_bytes_per_s = rate,
                    }
                }
                "jpeg" => match (value, rate) {
                    ("none", _) => config.jpeg_pixels_per_s = None,
                    (_, Some(rate)) => config.jpeg_pixels_per_s = Some(rate),
                    _ => return wrong(key, "takes pixels per second, such as 1e9, or `none`"),
                },
                "latency" => match duration(value) {
                    Some(latency) => config.latency = latency,
                    None => return wrong(key, "takes a time in ns, us, ms or s, such as 20us"),
                },
                "jitter" => match number.filter(|n| (0.0..=1.0).contains(n)) {
                    Some(jitter) => config.jitter = jitter,
                    None => return wrong(key, "takes a number from 0 to 1"),
                },
                "seed" => match value.parse() {
                    Ok(seed) => config.seed = seed,
                    Err(_) => return wrong(key, "takes a whole number from 0"),
                },
                "memory" => match rate.filter(|&n| n >= 1.0) {
                    Some(bytes) => config.memory_bytes = bytes as u64,
                    None => return wrong(key, "takes bytes, at least 1, such as 8e9"),
                },
                _ => return wrong(key, &format!("is not a setting; use {KEYS}")),
            }
        }
        Ok(config)
    }
}

/// Parses a time of at most one day.
fn duration(text: &str) -> Option<Duration> {
    let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (number, unit) = units
        .into_iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    let seconds: f64 = number.parse().ok()?;
    let seconds = seconds * unit;
    (0.0..=86_400.0)
        .contains(&seconds)
        .then(|| Duration::from_secs_f64(seconds))
}

impl fmt::Display for SimConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = SimConfig::default();
        let mut settings = Vec::new();
        if self.bandwidth_bytes_per_s != default.bandwidth_bytes_per_s {
            settings.push(format!("bandwidth={:e}", self.bandwidth_bytes_per_s));
        }
        if self.latency != default.latency {
            settings.push(format!("latency={}ns", self.latency.as_nanos()));
        }
        if self.kernel_bytes_per_s != default.kernel_bytes_per_s {
            settings.push(format!("kernel={:e}", self.kernel_bytes_per_s));
        }
        match self.jpeg_pixels_per_s {
            rate if rate == default.jpeg_pixels_per_s => {}
            Some(rate) => settings.push(format!("jpeg={rate:e}")),
            None => settings.push("jpeg=none".to_owned()),
        }
        if self.jitter != default.jitter {
            settings.push(format!("jitter={}", self.jitter));
        }
        if self.seed != default.seed {
            settings.push(format!("seed={}", self.seed));
        }
        if self.memory_bytes != default.memory_bytes {
            settings.push(format!("memory={:e}", self.memory_bytes as f64));
        }
        match settings.is_empty() {
            true => f.write_str("sim"),
            false => write!(f, "sim:{}", settings.join(",")),
        }
    }
}
