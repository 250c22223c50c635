//! Measures a machine once (cores, memory, storage) and stores the result in a file; and lists
//! named machines for planning.
//!
//! Rates are bytes per second, times are seconds. This module writes only its own file.

mod memory;
mod probe_file;
mod profiles;
mod storage;

use std::fs;

use serde::{Deserialize, Serialize};

pub use memory::memory_bandwidth;
pub use probe_file::{Probe, VERSION};
pub use profiles::{PROFILES, Profile, StorageProfile, profile};
pub use storage::{READERS, Reads, Sequential, StorageRates, storage};

/// The machine as this process sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Machine {
    /// Processor model.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Memory this process may use.
    pub memory_bytes: u64,
    /// Operating system and architecture.
    pub system: String,
}

/// Returns the resources of this process. Reads a few small files.
pub fn machine() -> Machine {
    Machine {
        cpu: cpu_model().unwrap_or_else(|| "unknown processor".to_owned()),
        cores: infeed_raw::machine::usable_cores(),
        memory_bytes: infeed_raw::machine::memory_limit_bytes(),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
    }
}

/// Name of the processor, if `/proc/cpuinfo` has one: `model name` on x86, `Hardware` or `Model` on
/// some Arm kernels.
fn cpu_model() -> Option<String> {
    model_from(&fs::read_to_string("/proc/cpuinfo").ok()?)
}

fn model_from(cpuinfo: &str) -> Option<String> {
    ["model name", "Model", "Hardware"]
        .iter()
        .find_map(|wanted| {
            let values = cpuinfo.lines().filter_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == *wanted && !value.trim().is_empty()).then(|| value.trim().to_owned())
            });
            values.into_iter().next()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_named_as_the_kernel_names_it() {
        let x86 = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9654\n";
        let arm = "processor\t: 0\nBogoMIPS\t: 108.00\n\nModel\t\t: Raspberry Pi 5\n";

        assert_eq!(model_from(x86).as_deref(), Some("AMD EPYC 9654"));
        assert_eq!(model_from(arm).as_deref(), Some("Raspberry Pi 5"));
        assert_eq!(model_from("processor\t: 0\n"), None);
    }

    #[test]
    fn this_machine_has_a_core_and_memory() {
        let machine = machine();

        assert!(machine.cores >= 1);
        assert!(machine.memory_bytes > 1 << 20);
        assert!(!machine.cpu.is_empty() && machine.system.contains(' '));
    }
}
