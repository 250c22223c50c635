//! NUMA nodes of devices, and threads that stay on them.
//!
//! On a machine with several nodes, memory of one node is slower to reach from the others, and a
//! device is attached to one of them. Copies to a device are fastest from memory of its node.
//! Memory is allocated on the node of the thread that touches it first.
//!
//! Source: `/sys/bus/pci/devices/*/numa_node` and `local_cpulist`, as in the kernel's
//! "ABI file testing/sysfs-bus-pci"; `sched_setaffinity(2)`.

use std::fs;
use std::path::Path;

use crate::machine::cores_from_list;

/// A NUMA node: cores with their memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Number of the node.
    pub number: u32,
    /// Total number of nodes.
    pub of: usize,
    /// Numbers of its cores.
    pub cores: Vec<u32>,
}

/// Returns the node of the device with a PCI address such as `0000:3b:00.0`; None on machines with
/// one node, or if the system does not report it.
pub fn node_of(bus: &str) -> Option<Node> {
    node_under(Path::new("/sys"), bus)
}

fn node_under(sys: &Path, bus: &str) -> Option<Node> {
    // The name becomes a part of a path.
    let is_name = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    if bus.is_empty() || bus.contains("..") || !bus.bytes().all(is_name) {
        return None;
    }
    let read = |path: std::path::PathBuf| fs::read_to_string(path).ok();
    let of = cores_from_list(&read(sys.join("devices/system/node/online"))?)?.len();
    if of < 2 {
        return None;
    }
    let device = sys.join("bus/pci/devices").join(bus);
    // The system reports -1 if the firmware does not name the node.
    let number = read(device.join("numa_node"))?.trim().parse().ok()?;
    let cores = cores_from_list(&read(device.join("local_cpulist"))?)?;
    (!cores.is_empty()).then_some(Node { number, of, cores })
}

/// Keeps the calling thread on some cores until it is dropped.
#[derive(Debug)]
pub struct CoreBinding {
    #[cfg(linux_system)]
    before: libc::cpu_set_t,
    /// The affinity belongs to one thread.
    _thread: std::marker::PhantomData<*const ()>,
}

/// Restricts the calling thread to those of these cores that it may use. Does nothing and returns
/// None if it may use none of them, or if the system has no such call.
pub fn bind(cores: &[u32]) -> Option<CoreBinding> {
    #[cfg(all(linux_system, not(miri)))]
    {
        let size = size_of::<libc::cpu_set_t>();
        // SAFETY: a set of bits, for which all zeros is a valid value.
        let (mut before, mut allowed): (libc::cpu_set_t, libc::cpu_set_t) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        // SAFETY: writes a set of `size` bytes; 0 is the calling thread.
        if unsafe { libc::sched_getaffinity(0, size, &raw mut before) } != 0 {
            return None;
        }
        let mut some = false;
        for &core in cores {
            let core = core as usize;
            // SAFETY: the number is that of a bit of the set, checked first.
            if core < 8 * size && unsafe { libc::CPU_ISSET(core, &before) } {
                some = true;
                // SAFETY: as above.
                unsafe { libc::CPU_SET(core, &mut allowed) };
            }
        }
        // SAFETY: reads a set of `size` bytes; 0 is the calling thread.
        if !some || unsafe { libc::sched_setaffinity(0, size, &raw const allowed) } != 0 {
            return None;
        }
        Some(CoreBinding {
            before,
            _thread: std::marker::PhantomData,
        })
    }
    #[cfg(not(all(linux_system, not(miri))))]
    {
        let _ = cores;
        None
    }
}

impl Drop for CoreBinding {
    fn drop(&mut self) {
        #[cfg(all(linux_system, not(miri)))]
        {
            let size = size_of::<libc::cpu_set_t>();
            // SAFETY: reads a set of `size` bytes, which the system returned; 0 is the calling
            // thread.
            unsafe { libc::sched_setaffinity(0, size, &raw const self.before) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(all(linux_system, not(miri)))]
    use crate::machine::allowed_cores;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A folder that is removed with its contents.
    struct Folder(std::path::PathBuf);

    impl Folder {
        fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A folder with the structure of `/sys`, with one device.
    fn sys(nodes: &str, node: &str, cores: &str) -> Folder {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let (process, made) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let name = format!("infeed-near-{process}-{made}");
        let sys = Folder(std::env::temp_dir().join(name));
        let (system, device) = (
            sys.path().join("devices/system/node"),
            sys.path().join("bus/pci/devices/0000:3b:00.0"),
        );
        fs::create_dir_all(&system).unwrap();
        fs::create_dir_all(&device).unwrap();
        fs::write(system.join("online"), nodes).unwrap();
        fs::write(device.join("numa_node"), node).unwrap();
        fs::write(device.join("local_cpulist"), cores).unwrap();
        sys
    }

    #[test]
    fn the_node_of_a_device_is_read_from_sysfs() {
        let sys = sys("0-1\n", "1\n", "4-6,9\n");

        let node = node_under(sys.path(), "0000:3b:00.0").unwrap();

        let (number, of) = (1, 2);
        let cores = vec![4, 5, 6, 9];
        assert_eq!(node, Node { number, of, cores });
        assert_eq!(node_under(sys.path(), "0000:5e:00.0"), None);
    }

    #[test]
    fn one_node_and_invalid_files_give_no_node() {
        for (nodes, node, cores) in [
            ("0\n", "0\n", "0-3\n"),
            ("0-1\n", "-1\n", "0-3\n"),
            ("0-1\n", "1\n", "\n"),
            ("0-1\n", "one\n", "0-3\n"),
            ("many\n", "1\n", "0-3\n"),
        ] {
            let sys = sys(nodes, node, cores);
            assert_eq!(
                node_under(sys.path(), "0000:3b:00.0"),
                None,
                "{nodes:?} {node:?}"
            );
        }
        let sys = sys("0-1\n", "1\n", "0-3\n");
        for bus in ["", "..", "0000:3b:00.0/../x", "/etc"] {
            assert_eq!(node_under(sys.path(), bus), None, "{bus:?}");
        }
    }

    #[cfg(all(linux_system, not(miri)))]
    #[test]
    fn a_thread_is_bound_to_allowed_cores_until_the_guard_is_dropped() {
        std::thread::spawn(|| {
            let before = allowed_cores().unwrap();
            let one = before[0];

            let bound = bind(&[one, 4000]).unwrap();
            assert_eq!(allowed_cores().unwrap(), [one]);
            assert!(bind(&[4000]).is_none(), "none of these cores exists");
            drop(bound);

            assert_eq!(allowed_cores().unwrap(), before);
        })
        .join()
        .unwrap();
    }
}
