//! Resources of the machine that this process may use and has used.
//!
//! In a container, the machine's core count and memory are not those of the process: the affinity
//! mask and the cgroup limit them. A loader that starts a worker for each of 64 cores under a quota
//! of 4 is throttled for most of every period.
//!
//! Source: `cgroups(7)`, and `cpu.max`, `memory.max` in the kernel's "Control Group v2".

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io, thread};

/// Number of cores this process can keep busy, at least 1: the affinity mask of the
/// calling thread, and no more than the CPU quota of its cgroups, rounded up.
///
/// # Cost
///
/// Reads a few files under `/proc` and `/sys`; call it once, not per batch.
pub fn usable_cores() -> usize {
    let allowed = affinity_cores();
    let quota = cgroups().iter().filter_map(|c| c.cpu_quota_cores()).min();
    quota.map_or(allowed, |quota| allowed.min(quota)).max(1)
}

/// Numbers of the cores that the calling thread may run on; None where the platform does not report
/// them.
///
/// Source: `Cpus_allowed_list` in `proc_pid_status(5)`.
pub fn allowed_cores() -> Option<Vec<u32>> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let list = |line: &str| line.strip_prefix("Cpus_allowed_list:").map(cores_from_list);
    status.lines().find_map(list)?
}

/// Number of cores that the calling thread may run on, counting hardware threads of one core once;
/// None where the platform does not report them.
pub fn physical_cores() -> Option<usize> {
    let allowed = allowed_cores()?;
    let cores: BTreeSet<u32> = allowed.into_iter().map(first_thread).collect();
    Some(cores.len().max(1))
}

/// Runs `work` on at most `count` of the cores that the calling thread may use, different cores
/// before the second hardware threads of any. Threads that `work` starts inherit the limit. Runs
/// without a limit where the platform cannot set one.
pub fn on_cores<T>(count: usize, work: impl FnOnce() -> T) -> T {
    #[cfg(linux_system)]
    let _limit = CoreLimit::set(count);
    #[cfg(not(linux_system))]
    let _ = count;
    work()
}

/// Number of the first hardware thread of a core. The core itself where the platform does not
/// report it.
fn first_thread(core: u32) -> u32 {
    let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
    let list = fs::read_to_string(path).ok();
    let list = list.and_then(|list| cores_from_list(&list));
    list.and_then(|list| list.into_iter().min()).unwrap_or(core)
}

/// Sorts cores so that the first hardware threads of all cores come before the second ones.
/// `first_of` returns the first hardware thread of a core.
#[cfg(any(linux_system, test))]
fn spread(cores: &[u32], first_of: impl Fn(u32) -> u32) -> Vec<u32> {
    let mut seen: Vec<u32> = Vec::with_capacity(cores.len());
    let mut turns: Vec<(usize, u32)> = Vec::with_capacity(cores.len());
    for &core in cores {
        let first = first_of(core);
        let turn = seen.iter().filter(|&&other| other == first).count();
        seen.push(first);
        turns.push((turn, core));
    }
    turns.sort();
    turns.into_iter().map(|(_, core)| core).collect()
}

/// A limit of the calling thread's cores. Dropping it sets the cores of before.
#[cfg(linux_system)]
struct CoreLimit {
    before: libc::cpu_set_t,
}

#[cfg(linux_system)]
impl CoreLimit {
    /// Limits the calling thread to `count` cores, at least 1. None if that changes nothing or the
    /// system does not allow it.
    fn set(count: usize) -> Option<CoreLimit> {
        let allowed = spread(&allowed_cores()?, first_thread);
        let chosen = allowed
            .get(..count.max(1))
            .filter(|chosen| chosen.len() < allowed.len())?;
        let most = 8 * size_of::<libc::cpu_set_t>();
        if chosen.iter().any(|&core| core as usize >= most) {
            return None;
        }
        // SAFETY: `cpu_set_t` is an array of integers, for which all zeros is a valid value.
        let (mut before, mut set): (libc::cpu_set_t, libc::cpu_set_t) =
            unsafe { std::mem::zeroed() };
        // SAFETY: `before` is valid for writes of the given size and outlives the call.
        if unsafe { libc::sched_getaffinity(0, size_of_val(&before), &mut before) } != 0 {
            return None;
        }
        for &core in chosen {
            // SAFETY: the number is below the number of bits of the set.
            unsafe { libc::CPU_SET(core as usize, &mut set) };
        }
        // SAFETY: `set` is initialised, and the call only reads it. 0 is the calling thread.
        let failed = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) } != 0;
        (!failed).then_some(CoreLimit { before })
    }
}

#[cfg(linux_system)]
impl Drop for CoreLimit {
    fn drop(&mut self) {
        // SAFETY: as in `set`. The thread had these cores before, so the call does not fail.
        unsafe { libc::sched_setaffinity(0, size_of_val(&self.before), &self.before) };
    }
}

/// Number of cores of this machine that are online, including those this process may not use; at
/// least 1.
pub fn machine_cores() -> usize {
    let online = fs::read_to_string("/sys/devices/system/cpu/online");
    let online = online.ok().and_then(|list| cores_from_list(&list));
    online.map_or_else(other_cores, |cores| cores.len()).max(1)
}

/// Parses a list of numbers and ranges: `0-3,8`. None for anything else.
pub fn cores_from_list(list: &str) -> Option<Vec<u32>> {
    let mut cores = Vec::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last >= MAX_CORES {
            return None;
        }
        cores.extend(first..=last);
        if cores.len() > MAX_CORES as usize {
            return None;
        }
    }
    Some(cores)
}

/// Upper limit of cores, above what Linux supports (`NR_CPUS` is 8192 at most).
const MAX_CORES: u32 = 1 << 16;

/// Bytes of memory this process can use: the machine's, and no more than the limit of any of its
/// cgroups. `u64::MAX` if the platform does not report it.
///
/// # Cost
///
/// As [`usable_cores`].
pub fn memory_limit_bytes() -> u64 {
    let limit = cgroups()
        .iter()
        .filter_map(|c| c.memory_limit_bytes())
        .min();
    limit.unwrap_or(u64::MAX).min(physical_memory_bytes())
}

/// Bytes of memory that are available without swapping: those that the system reports, and no more
/// than any of this process's cgroups has left. Pages of files count as available.
///
/// # Cost
///
/// As [`usable_cores`].
pub fn available_memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let system = available_in(&text).unwrap_or_else(physical_memory_bytes);
    let groups = cgroups();
    let left = groups.iter().filter_map(Cgroup::available_memory_bytes);
    left.fold(system.min(memory_limit_bytes()), u64::min)
}

/// Bytes of address space that this process may still use: `ulimit -v`, less what it uses. Without a
/// limit, the largest number.
pub fn address_space_left_bytes() -> u64 {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let used = status_bytes("VmSize:").unwrap_or(0);
    address_space_limit_in(&limits).map_or(u64::MAX, |limit| limit.saturating_sub(used))
}

/// Parses the line `Max address space  819200000  unlimited  bytes` of `/proc/self/limits`.
fn address_space_limit_in(limits: &str) -> Option<u64> {
    let mut lines = limits.lines();
    let line = lines.find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Parses the line `MemAvailable:  23456789 kB` of `/proc/meminfo`.
fn available_in(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Identifies the memory that [`memory_limit_bytes`] limits: two processes with the same text share
/// one limit. Distinguishes a cgroup from others of the same name in other containers.
///
/// # Cost
///
/// As [`usable_cores`].
pub fn memory_domain() -> String {
    let groups = cgroups().into_iter();
    let limited = groups.filter_map(|group| Some((group.memory_limit_bytes()?, group)));
    let physical = physical_memory_bytes();
    // Of cgroups with the same limit, the outermost, which comes last, has the most processes.
    let least = limited
        .filter(|(bytes, _)| *bytes < physical)
        .reduce(|least, next| if next.0 <= least.0 { next } else { least });
    match least {
        Some((_, group)) => format!("cgroup {}", identity(&group.dir)),
        None => "machine".to_owned(),
    }
}

#[cfg(unix)]
fn identity(dir: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    match fs::metadata(dir) {
        Ok(found) => format!("{}:{}", found.dev(), found.ino()),
        Err(_) => dir.display().to_string(),
    }
}

#[cfg(not(unix))]
fn identity(dir: &Path) -> String {
    dir.display().to_string()
}

/// CPU time the calling thread has used; zero if the platform does not report it.
///
/// # Cost
///
/// One system call, about 0.2 microseconds.
pub fn thread_cpu_time() -> Duration {
    #[cfg(unix)]
    return clock(libc::CLOCK_THREAD_CPUTIME_ID);
    #[cfg(not(unix))]
    return Duration::ZERO;
}

/// Keeps the calling thread from preempting others when it wakes up (`SCHED_BATCH`); its share of
/// the processor stays the same. No-op on other systems.
///
/// Background threads wake up because the consumer took a batch. Without this, they take the
/// consumer's core at that moment, and if all cores are busy the consumer waits for a time slice.
pub fn never_preempt() {
    #[cfg(linux_system)]
    {
        // SAFETY: an all-zero `sched_param` is a valid one; its only field is an integer.
        let param: libc::sched_param = unsafe { std::mem::zeroed() };
        // SAFETY: 0 is the calling thread, and `param` outlives the call, which only reads it. A
        // failed call changes nothing.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &param) };
    }
}

/// CPU time all threads of this process have used; zero if the platform does not report it.
pub fn process_cpu_time() -> Duration {
    #[cfg(unix)]
    return clock(libc::CLOCK_PROCESS_CPUTIME_ID);
    #[cfg(not(unix))]
    return Duration::ZERO;
}

/// CPU time of all processes of this machine, if the platform reports it and no quota or affinity
/// mask restricts this process to a part of the cores.
///
/// Source: `proc_stat(5)`; counted in hundredths of a second.
pub fn machine_cpu_time() -> Option<Duration> {
    let (busy, cores) = busy_from_stat(&fs::read_to_string("/proc/stat").ok()?)?;
    (usable_cores() >= cores).then_some(busy)
}

/// Parses `/proc/stat`: user, nice, system, irq and softirq time of all cores, and their number.
fn busy_from_stat(stat: &str) -> Option<(Duration, usize)> {
    let mut fields = stat.lines().next()?.split_ascii_whitespace();
    (fields.next()? == "cpu").then_some(())?;
    let fields: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    let ticks = [0, 1, 2, 5, 6].iter().filter_map(|&at| fields.get(at));
    let ticks = ticks.fold(0_u64, |sum, ticks| sum.saturating_add(*ticks));
    let lines = stat.lines().skip(1);
    let cores = lines.take_while(|line| line.starts_with("cpu")).count();
    Some((Duration::from_millis(ticks.saturating_mul(10)), cores))
}

/// Peak resident memory of this process in bytes; 0 if the platform does not report it.
pub fn peak_rss_bytes() -> u64 {
    // On Linux, the maximum of `getrusage` survives `exec`: a process started by a large one would
    // report its parent's.
    status_bytes("VmHWM:").unwrap_or_else(rusage_peak_bytes)
}

/// Resident memory of this process now, in bytes. The peak if only the peak is known (macOS); 0 if
/// neither is.
pub fn resident_bytes() -> u64 {
    status_bytes("VmRSS:").unwrap_or_else(rusage_peak_bytes)
}

/// Bytes of the last-level cache of a core; 0 if the platform does not report them. In a virtual
/// machine, others may use a part of it.
///
/// Source: `/sys/devices/system/cpu/cpu*/cache` in the kernel's "ABI/testing/sysfs-devices-system-cpu".
pub fn last_level_cache_bytes() -> u64 {
    let Ok(levels) = fs::read_dir("/sys/devices/system/cpu/cpu0/cache") else {
        return 0;
    };
    let sizes = levels.flatten().filter_map(|level| {
        let text = fs::read_to_string(level.path().join("size")).ok()?;
        cache_size(text.trim())
    });
    sizes.max().unwrap_or(0)
}

/// Parses the size of a cache, such as `32768K` or `96M`.
fn cache_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(['K', 'M']);
    let unit = match text.strip_prefix(digits)? {
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => 1,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// CPU time that the session of this process has used: the processes that one login shell or job
/// started, and their ended children. None if the platform does not report it.
///
/// # Cost
///
/// Reads a file for each process of the machine.
pub fn session_cpu_time() -> Option<Duration> {
    let own = session_and_time(&fs::read_to_string("/proc/self/stat").ok()?)?.0;
    let mut ticks = 0_u64;
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        // Other entries have no such file, and a process may have ended.
        if let Ok(stat) = fs::read_to_string(entry.path().join("stat"))
            && let Some((session, used)) = session_and_time(&stat)
            && session == own
        {
            ticks = ticks.saturating_add(used);
        }
    }
    Some(Duration::from_millis(ticks.saturating_mul(10)))
}

/// Parses `/proc/PID/stat`: the session, and user and system time with those of ended children, in
/// hundredths of a second.
///
/// Source: `proc_pid_stat(5)`.
fn session_and_time(stat: &str) -> Option<(u64, u64)> {
    // The name in parentheses may contain any characters.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let times = [number(11)?, number(12)?, number(13)?, number(14)?];
    let used = times.into_iter().fold(0, u64::saturating_add);
    Some((number(3)?, used))
}

/// Drops the system's cached pages of an open file, so that the next read comes from storage. Dirty
/// or mapped pages stay, and so do caches of a host or of the disk. Changes no data, and needs only
/// read permission.
///
/// # Errors
///
/// The operating system's error, or `Unsupported` if the system has no such call.
pub fn drop_pages(file: &File) -> io::Result<()> {
    #[cfg(linux_system)]
    {
        use std::os::fd::AsRawFd;
        // SAFETY: the descriptor is open for as long as `file` is borrowed, and the call takes no
        // pointers; an offset and length of 0 mean the whole file.
        match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
    #[cfg(not(linux_system))]
    {
        let _ = file;
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(unix)]
fn clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec that outlives the call.
    if unsafe { libc::clock_gettime(id, &mut time) } != 0 {
        return Duration::ZERO;
    }
    Duration::new(
        time.tv_sec.max(0) as u64,
        time.tv_nsec.clamp(0, 999_999_999) as u32,
    )
}

#[cfg(unix)]
fn rusage_peak_bytes() -> u64 {
    // SAFETY: `rusage` has only integers, for which all zeros is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid rusage that outlives the call.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) } != 0 {
        return 0;
    }
    let unit = if cfg!(target_vendor = "apple") {
        1
    } else {
        1024
    };
    (usage.ru_maxrss.max(0) as u64).saturating_mul(unit)
}

#[cfg(not(unix))]
fn rusage_peak_bytes() -> u64 {
    0
}

#[cfg(unix)]
fn physical_memory_bytes() -> u64 {
    // SAFETY: only returns two numbers, for names that exist on every unix.
    let (pages, page) = unsafe {
        (
            libc::sysconf(libc::_SC_PHYS_PAGES),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    match (u64::try_from(pages), u64::try_from(page)) {
        (Ok(pages), Ok(page)) if pages > 0 => pages.saturating_mul(page),
        _ => u64::MAX,
    }
}

#[cfg(not(unix))]
fn physical_memory_bytes() -> u64 {
    u64::MAX
}

#[cfg(linux_system)]
fn affinity_cores() -> usize {
    // SAFETY: `cpu_set_t` is an array of integers, for which all zeros is a valid value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is valid for writes of the given size and outlives the call.
    let failed = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) } != 0;
    if failed {
        // The machine has more cores than the fixed set has bits.
        return other_cores();
    }
    // SAFETY: counts the bits of an initialised set.
    usize::try_from(unsafe { libc::CPU_COUNT(&set) }).unwrap_or(1)
}

#[cfg(not(linux_system))]
fn affinity_cores() -> usize {
    other_cores()
}

fn other_cores() -> usize {
    thread::available_parallelism().map_or(1, |n| n.get())
}

/// Reads a line of `/proc/self/status`, in bytes.
fn status_bytes(name: &str) -> Option<u64> {
    status_bytes_from(&fs::read_to_string("/proc/self/status").ok()?, name)
}

fn status_bytes_from(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// A directory of the cgroup tree that this process is in, and its version.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cgroup {
    dir: PathBuf,
    is_v2: bool,
}

impl Cgroup {
    fn cpu_quota_cores(&self) -> Option<usize> {
        let read = |name| fs::read_to_string(self.dir.join(name)).ok();
        if self.is_v2 {
            return quota_cores_from_max(&read("cpu.max")?);
        }
        quota_cores_from(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?)
    }

    fn memory_limit_bytes(&self) -> Option<u64> {
        let name = if self.is_v2 {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        // "max" is not a number, so it means no limit; version 1 writes a huge number instead.
        self.number(name)
    }

    /// Bytes of the limit that no process of the cgroup uses. None without a limit.
    fn available_memory_bytes(&self) -> Option<u64> {
        let limit = self.memory_limit_bytes()?;
        let used = self.number(match self.is_v2 {
            true => "memory.current",
            false => "memory.usage_in_bytes",
        })?;
        let stat = fs::read_to_string(self.dir.join("memory.stat")).unwrap_or_default();
        let used = used.saturating_sub(reclaimable_in(&stat, self.is_v2));
        Some(limit.saturating_sub(used))
    }

    fn number(&self, file: &str) -> Option<u64> {
        let text = fs::read_to_string(self.dir.join(file)).ok()?;
        text.trim().parse().ok()
    }
}

/// Bytes that the system can take back from a cgroup without swapping: pages of files, and caches
/// of the kernel. The lines of `memory.stat` are `name bytes`; version 1 counts the cgroups below
/// in lines of a separate name.
fn reclaimable_in(stat: &str, is_v2: bool) -> u64 {
    let names: &[&str] = match is_v2 {
        true => &["inactive_file", "active_file", "slab_reclaimable"],
        false => &["total_inactive_file", "total_active_file"],
    };
    let bytes = stat.lines().filter_map(|line| {
        let (name, bytes) = line.split_once(' ')?;
        names.contains(&name).then(|| bytes.trim().parse().ok())?
    });
    bytes.fold(0, u64::saturating_add)
}

/// Lists the cgroups that limit this process: its own and all ancestors.
fn cgroups() -> Vec<Cgroup> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    cgroups_from(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"))
}

/// Parses the lines `id:controllers:path` of `/proc/self/cgroup` and the mounts of
/// `/proc/self/mountinfo`. Returns the directories to read, from the process's own upwards.
fn cgroups_from(membership: &str, mountinfo: &str) -> Vec<Cgroup> {
    let mut found = Vec::new();
    for mount in mountinfo.lines().filter_map(CgroupMount::from_line) {
        for line in membership.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
                continue;
            };
            let is_same_tree = match mount.is_v2 {
                true => controllers.is_empty(),
                false => controllers.split(',').any(|c| {
                    matches!(c, "cpu" | "memory") && mount.options.split(',').any(|o| o == c)
                }),
            };
            if is_same_tree {
                found.extend(mount.levels(path));
            }
        }
    }
    found
}

/// A mounted cgroup hierarchy; `root` is the cgroup that is visible at `point`.
struct CgroupMount<'a> {
    root: &'a str,
    point: &'a str,
    options: &'a str,
    is_v2: bool,
}

impl<'a> CgroupMount<'a> {
    /// `36 35 0:30 ROOT POINT rw,... - TYPE SOURCE OPTIONS`, as in `proc_pid_mountinfo(5)`.
    fn from_line(line: &'a str) -> Option<CgroupMount<'a>> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let mut right = right.split(' ');
        let is_v2 = match right.next()? {
            "cgroup2" => true,
            "cgroup" => false,
            _ => return None,
        };
        Some(CgroupMount {
            root: left.next()?,
            point: left.next()?,
            options: right.nth(1).unwrap_or(""),
            is_v2,
        })
    }

    /// Returns the directory of cgroup `path` and all directories above it, up to the mount.
    fn levels(&self, path: &str) -> Vec<Cgroup> {
        let point = Path::new(self.point);
        // A container that sees the host's path but mounts its own cgroup as the root has no
        // directory for the path; its limits are then those at the mount.
        let inside = Path::new(path)
            .strip_prefix(self.root)
            .unwrap_or(Path::new(""));
        let dirs = inside.ancestors().map(|part| point.join(part));
        let levels = dirs.map(|dir| Cgroup {
            dir,
            is_v2: self.is_v2,
        });
        levels.collect()
    }
}

/// Parses `cpu.max`: `QUOTA PERIOD` in microseconds or `max PERIOD`.
fn quota_cores_from_max(text: &str) -> Option<usize> {
    let (quota, period) = text.trim().split_once(' ')?;
    quota_cores_from(quota, period)
}

/// Returns the number of cores that a quota can occupy, rounded up: 1.5 cores keep two workers busy
/// three quarters of the time, while one worker would leave a third of the quota unused. None
/// without a quota ("max", or -1 in version 1).
fn quota_cores_from(quota_us: &str, period_us: &str) -> Option<usize> {
    let quota: u64 = quota_us.trim().parse().ok()?;
    let period: u64 = period_us.trim().parse().ok().filter(|&period| period > 0)?;
    usize::try_from(quota.div_ceil(period)).ok()
}
