//! Named machines and storages for planning, with the public source of every number.
//!
//! Vendors publish the best case; the overhead of file systems and protocols is not included.

use serde::Serialize;

/// A storage or a machine for planning. Missing values are taken from the current machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Profile {
    /// Name on the command line.
    pub name: &'static str,
    /// Description.
    pub about: &'static str,
    /// Storage, for a profile of a storage.
    pub storage: Option<StorageProfile>,
    /// Host to one device, while all devices copy.
    pub bus_bytes_per_s: Option<f64>,
    /// Memory of one device.
    pub device_bytes_per_s: Option<f64>,
    /// Number of devices; 0 for a profile of a storage.
    pub devices: u32,
    /// Compute capability of the devices.
    pub capability: Option<(u32, u32)>,
    /// Whether the storage holds objects: a loader reads many at once, and the page cache keeps
    /// none.
    pub objects: bool,
    /// Source of the numbers.
    pub source: &'static str,
}

/// Rates of a storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StorageProfile {
    /// Bytes per second of long reads.
    pub bytes_per_s: f64,
    /// Small requests per second, over all parallel ones.
    pub requests_per_s: f64,
    /// Duration of one small request without others.
    pub latency_s: f64,
}

/// Round trip within a data centre: J. Dean, "Designs, Lessons and Advice from Building Large
/// Distributed Systems", LADIS 2009, "Numbers Everyone Should Know".
const ROUND_TRIP_S: f64 = 500e-6;

/// Ethernet of a given line rate. A frame has at least 64 bytes, plus 8 before and 12 after it
/// (IEEE 802.3, 3.2.1, 4.4.2), and the answer to a request is at least one frame. The result is an
/// upper bound.
const fn ethernet(bits_per_s: f64) -> Option<StorageProfile> {
    Some(StorageProfile {
        bytes_per_s: bits_per_s / 8.0,
        requests_per_s: bits_per_s / 8.0 / 84.0,
        latency_s: ROUND_TRIP_S,
    })
}

/// PCI Express with a given rate in transfers per second and lane: from version 3.0, 128 of 130
/// bits are data (PCI Express Base Specification, 4.2.2).
const fn pcie(transfers_per_s: f64, lanes: f64) -> Option<f64> {
    Some(transfers_per_s * lanes * 128.0 / 130.0 / 8.0)
}

const ETHERNET_SOURCE: &str = "line rate of IEEE 802.3, no overhead taken off, and its smallest \
                               frames; round trip of 0.5 ms from Dean, LADIS 2009";

/// All profiles.
pub const PROFILES: &[Profile] = &[
    Profile {
        name: "hdd",
        about: "a hard disk of 7200 revolutions per minute",
        // A single arm serves requests one after another, so one takes 1 / 170 s.
        storage: Some(StorageProfile {
            bytes_per_s: 270e6,
            requests_per_s: 170.0,
            latency_s: 1.0 / 170.0,
        }),
        bus_bytes_per_s: None,
        device_bytes_per_s: None,
        devices: 0,
        capability: None,
        objects: false,
        source: "data sheet of the Seagate Exos X18, 18 TB: 270 MB/s on the outer tracks, 170 \
                 random reads of 4 KB per second at queue depth 16; latency is their inverse",
    },
    Profile {
        name: "sata-ssd",
        about: "a flash disk on SATA 6 Gb/s",
        storage: Some(StorageProfile {
            bytes_per_s: 560e6,
            requests_per_s: 98_000.0,
            latency_s: 1.0 / 13_000.0,
        }),
        bus_bytes_per_s: None,
        device_bytes_per_s: None,
        devices: 0,
        capability: None,
        objects: false,
        source: "data sheet of the Samsung 870 EVO: 560 MB/s, 98 000 random reads of 4 KB a \
                 second at queue depth 32, 13 000 at 1",
    },
    Profile {
        name: "nvme",
        about: "a flash disk on four lanes of PCIe 4.0",
        storage: Some(StorageProfile {
            bytes_per_s: 7_450e6,
            requests_per_s: 1_400_000.0,
            latency_s: 1.0 / 22_000.0,
        }),
        bus_bytes_per_s: None,
        device_bytes_per_s: None,
        devices: 0,
        capability: None,
        objects: false,
        source: "data sheet of the Samsung 990 PRO, 2 TB: 7450 MB/s, 1 400 000 random reads of \
                 4 KB a second at queue depth 32, 22 000 at 1",
    },
    Profile {
        name: "1gbe",
        about: "files over Ethernet of 1 Gb/s",
        storage: ethernet(1e9),
        bus_bytes_per_s: None,
        device_bytes_per_s: None,
        devices: 0,
        capability: None,
        objects: false,
        source: ETHERNET_SOURCE,
    },
    Profile {
        name: "10gbe",
        about: "files over Ethernet of 10 Gb/s",
        storage: ethernet(10e9),
        bus_bytes_per_s: None,
        device_bytes_per_s: None,
        devices: 0,
        capability: None,
        objects: false,
        source: ETHERNET_SOURCE,
    },
    Profile {
        name: "100gbe",
        about: "files over Ethernet of 100 Gb/s",
        storage: ethernet(100e9),
        bus_bytes_per_s: None,
        device_bytes_per_s: None,
        devices: 0,
        capability: None,
        objects: false,
        source: ETHERNET_SOURCE,
    },
    Profile {
        name: "nfs",
        about: "files of an NFS server over Ethernet of 10 Gb/s",
        // Two round trips for each file.
        storage: Some(StorageProfile {
            bytes_per_s: 10e9 / 8.0,
            requests_per_s: 10e9 / 8.0 / 168.0,
            latency_s: 2.0 * ROUND_TRIP_S,
        }),
        bus_bytes_per_s: None,
        device_bytes_per_s: None,
        devices: 0,
        capability: None,
        objects: false,
        source: "as 10gbe, with two round trips of 0.5 ms for each file: OPEN and READ of NFSv4 \
                 (RFC 7530); the disks of the server are not counted",
    },
    Profile {
        name: "s3",
        about: "objects of Amazon S3 over Ethernet of 10 Gb/s",
        storage: Some(StorageProfile {
            bytes_per_s: 10e9 / 8.0,
            requests_per_s: 5_500.0,
            latency_s: 0.15,
        }),
        bus_bytes_per_s: None,
        device_bytes_per_s: None,
        devices: 0,
        capability: None,
        objects: true,
        source: "Amazon S3 User Guide, \"Best practices design patterns: optimizing Amazon S3 \
                 performance\": at least 5500 GET requests a second for each prefix, 100 to 200 \
                 ms to the first byte; line rate of the instance's network of 10 Gb/s",
    },
    Profile {
        name: "gtx1080x4",
        about: "four GeForce GTX 1080 that share 32 lanes of PCIe 3.0",
        storage: None,
        bus_bytes_per_s: pcie(8e9, 8.0),
        device_bytes_per_s: Some(320e9),
        devices: 4,
        capability: Some((6, 1)),
        objects: false,
        source: "line rate of eight lanes of PCIe 3.0 each (four GPUs on a processor of 40 \
                 lanes), no overhead taken off; memory: NVIDIA's GTX 1080 specification, 10 Gb/s \
                 on 256 bits",
    },
    Profile {
        name: "h100x8",
        about: "eight H100 SXM, each on 16 lanes of PCIe 5.0",
        storage: None,
        bus_bytes_per_s: pcie(32e9, 16.0),
        device_bytes_per_s: Some(3.35e12),
        devices: 8,
        capability: Some((9, 0)),
        objects: false,
        source: "line rate of sixteen lanes of PCIe 5.0 each, no overhead taken off; memory: \
                 NVIDIA H100 data sheet, 3.35 TB/s",
    },
];

/// Returns the profile of a name.
pub fn profile(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_has_a_unique_name_numbers_and_a_source() {
        for known in PROFILES {
            assert_eq!(profile(known.name), Some(known));
            assert!(known.source.len() > 20, "{}", known.name);
            assert!(
                known.storage.is_some() != (known.devices > 0),
                "{}",
                known.name
            );
            assert_eq!(
                known.bus_bytes_per_s.is_some(),
                known.devices > 0,
                "{}",
                known.name
            );
        }
        assert_eq!(profile("floppy"), None);
    }

    #[test]
    fn every_planned_device_supports_the_kernels() {
        let text = infeed_raw::kernel::PTX.to_str().expect("text");
        let target = text
            .lines()
            .find_map(|line| line.strip_prefix(".target sm_"));
        let target: u32 = target
            .and_then(|t| t.trim().parse().ok())
            .expect("a target");

        for known in PROFILES.iter().filter(|known| known.devices > 0) {
            let (major, minor) = known.capability.expect("a device has one");
            // An older device would have to be described as for planning only.
            assert!(10 * major + minor >= target, "{}", known.name);
        }
    }

    #[test]
    fn line_rates_are_those_of_the_standards() {
        let bus = |name: &str| {
            profile(name)
                .and_then(|p| p.bus_bytes_per_s)
                .expect("a bus")
        };
        let disk = |name: &str| profile(name).and_then(|p| p.storage).expect("storage");

        // 7.877 and 63.015 GB/s, as tables of PCI Express round them.
        assert!((bus("gtx1080x4") - 7.877e9).abs() < 1e6);
        assert!((bus("h100x8") - 63.015e9).abs() < 1e6);
        assert_eq!(disk("10gbe").bytes_per_s, 1.25e9);
        // The 14.88 million frames of 10 Gb/s.
        assert!((disk("10gbe").requests_per_s - 14.88e6).abs() < 1e4);
    }
}
