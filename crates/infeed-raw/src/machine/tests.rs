use super::*;

#[test]
fn available_memory_is_read_from_its_line() {
    let text = "MemTotal:       24683892 kB\nMemAvailable:       2048 kB\nCached: 1 kB\n";

    assert_eq!(available_in(text), Some(2 << 20));
    assert_eq!(available_in("MemAvailable: many kB"), None);
    assert!(available_memory_bytes() <= memory_limit_bytes());
}

#[test]
fn a_cgroup_has_its_limit_less_used_memory_without_pages_of_files() {
    let root = std::env::temp_dir().join(format!("infeed-cgroup-{}", std::process::id()));
    let v2 = "anon 500\nfile 900\ninactive_file 300\nactive_file 100\nslab_reclaimable 50\n";
    let v1 = "inactive_file 7\ntotal_inactive_file 300\ntotal_active_file 100\ntotal_rss many\n";
    let cases = [
        (true, "memory.max", "memory.current", v2, 1450),
        (false, "memory.limit_in_bytes", "memory.usage_in_bytes", v1, 1400),
    ];
    for (is_v2, limit, usage, stat, left) in cases {
        let dir = root.join(limit);
        fs::create_dir_all(&dir).expect("a temporary folder");
        let write = |name: &str, text: &str| fs::write(dir.join(name), text).expect("writes");
        let group = Cgroup {
            dir: dir.clone(),
            is_v2,
        };
        write(limit, "2000\n");
        assert_eq!(group.available_memory_bytes(), None, "usage is unknown");
        write(usage, "1000\n");
        assert_eq!(group.available_memory_bytes(), Some(1000));
        write("memory.stat", stat);
        assert_eq!(group.available_memory_bytes(), Some(left));
        write(usage, "9000\n");
        assert_eq!(group.available_memory_bytes(), Some(0));
        write(limit, "max\n");
        assert_eq!(group.available_memory_bytes(), None);
    }
    fs::remove_dir_all(root).expect("ours");
}

#[test]
fn different_cores_precede_second_hardware_threads() {
    // Threads 0 and 4 share a core, as do 1 and 5.
    assert_eq!(spread(&[0, 1, 4, 5], |core| core % 4), [0, 1, 4, 5]);
    assert_eq!(spread(&[0, 1, 2, 3], |core| core / 2), [0, 2, 1, 3]);
    assert!(spread(&[], |core| core).is_empty());
}

#[cfg(linux_system)]
#[test]
fn work_on_one_core_and_its_threads_use_one_core() {
    let before = allowed_cores();

    let (own, started) = on_cores(1, || {
        let thread = thread::spawn(affinity_cores);
        (affinity_cores(), thread.join().expect("no panic"))
    });

    assert_eq!((own, started), (1, 1));
    assert_eq!(allowed_cores(), before);
    assert!(physical_cores().is_some_and(|cores| cores <= affinity_cores()));
}

#[test]
#[cfg(linux_system)]
#[cfg_attr(miri, ignore)]
fn never_preempt_affects_only_the_calling_thread() {
    let policy = || {
        // SAFETY: 0 is the calling thread.
        unsafe { libc::sched_getscheduler(0) }
    };
    let before = policy();

    let inside = std::thread::spawn(move || {
        never_preempt();
        policy()
    });

    assert_eq!(inside.join().expect("no panic"), libc::SCHED_BATCH);
    assert_eq!(policy(), before, "the other thread keeps its policy");
}

#[test]
fn busy_time_excludes_idle_and_disk_wait_time() {
    let stat = "cpu  10 20 30 4000 500 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n";

    assert_eq!(busy_from_stat(stat), Some((Duration::from_millis(730), 1)));
    for damaged in ["", "cpu0 1 2", "intr 5"] {
        assert_eq!(busy_from_stat(damaged), None);
    }
    let huge = format!("cpu {} {}", u64::MAX, u64::MAX);
    assert!(busy_from_stat(&huge).is_some(), "sums do not overflow");
}

#[test]
#[cfg(linux_system)]
#[cfg_attr(miri, ignore)]
fn a_file_whose_pages_were_dropped_reads_the_same() {
    let path = std::env::temp_dir().join(format!("infeed-pages-{}", std::process::id()));
    fs::write(&path, vec![7; 100_000]).expect("a temporary file");
    let file = File::open(&path).expect("the file exists");

    drop_pages(&file).expect("Linux has the call");

    let read = fs::read(&path).expect("the file exists");
    fs::remove_file(&path).expect("ours");
    assert_eq!(read, vec![7; 100_000]);
}

#[test]
fn core_lists_are_parsed_and_excessive_ranges_are_rejected() {
    assert_eq!(cores_from_list("0-2,8\n"), Some(vec![0, 1, 2, 8]));
    assert_eq!(cores_from_list(""), Some(Vec::new()));
    for wrong in ["0-4294967295", "x", "1-", "-1", "70000"] {
        assert_eq!(cores_from_list(wrong), None, "{wrong:?}");
    }
    let again = "0-60000,".repeat(1000);
    assert_eq!(cores_from_list(&again), None);
}

#[test]
#[cfg(linux_system)]
#[cfg_attr(miri, ignore)]
fn allowed_cores_are_cores_of_the_machine() {
    let allowed = allowed_cores().expect("Linux reports them");

    assert!((usable_cores()..=machine_cores()).contains(&allowed.len()));
}

#[test]
fn a_quota_is_rounded_up_to_whole_cores() {
    assert_eq!(quota_cores_from_max("150000 100000\n"), Some(2));
    assert_eq!(quota_cores_from_max("400000 100000\n"), Some(4));
    assert_eq!(quota_cores_from_max("1000 100000\n"), Some(1));
}

#[test]
fn a_missing_or_invalid_quota_is_no_limit() {
    for text in ["max 100000\n", "", "7", "1 0", "x y", "-1 100000"] {
        assert_eq!(quota_cores_from_max(text), None, "{text:?}");
    }
}

#[test]
fn status_lines_are_in_kibibytes() {
    let status = "Name:\tx\nVmHWM:\t    1234 kB\nVmRSS:\t99 kB\n";

    assert_eq!(status_bytes_from(status, "VmHWM:"), Some(1234 * 1024));
    assert_eq!(status_bytes_from(status, "VmSwap:"), None);
    assert_eq!(
        status_bytes_from("VmHWM: 99999999999999999999 kB", "VmHWM:"),
        None
    );
}

fn dirs(membership: &str, mountinfo: &str) -> Vec<String> {
    let found = cgroups_from(membership, mountinfo);
    found
        .iter()
        .map(|c| c.dir.to_string_lossy().trim_end_matches('/').to_owned())
        .collect()
}

#[test]
fn version_2_is_walked_from_the_process_up_to_the_mount() {
    let mounts = "25 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n\
                  26 24 0:27 / /proc rw - proc proc rw\n";

    assert_eq!(
        dirs("0::/user.slice/job\n", mounts),
        [
            "/sys/fs/cgroup/user.slice/job",
            "/sys/fs/cgroup/user.slice",
            "/sys/fs/cgroup"
        ]
    );
}

#[test]
fn version_1_uses_the_hierarchies_of_cpu_and_memory() {
    let mounts = "30 25 0:27 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                  31 25 0:28 / /cg/memory rw - cgroup cgroup rw,memory\n\
                  32 25 0:29 / /cg/freezer rw - cgroup cgroup rw,freezer\n";
    let membership = "4:freezer:/f\n3:memory:/m\n2:cpu,cpuacct:/c\n";

    assert_eq!(
        dirs(membership, mounts),
        [
            "/cg/cpu,cpuacct/c",
            "/cg/cpu,cpuacct",
            "/cg/memory/m",
            "/cg/memory"
        ]
    );
}

#[test]
fn a_container_whose_own_cgroup_is_the_mount_is_read_at_the_mount() {
    let mounts = "25 24 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";

    assert_eq!(
        dirs("0::/docker/abc/inner\n", mounts),
        ["/sys/fs/cgroup/inner", "/sys/fs/cgroup"]
    );
    assert_eq!(dirs("0::/elsewhere\n", mounts), ["/sys/fs/cgroup"]);
}

#[test]
fn damaged_proc_files_give_no_cgroups() {
    assert_eq!(cgroups_from("", ""), []);
    assert_eq!(
        cgroups_from("0:\n::\nx", "a - cgroup2\n - \n1 2 3 - cgroup2 c rw"),
        []
    );
}

#[test]
fn this_process_has_cores_memory_and_a_clock_that_runs() {
    let before = thread_cpu_time();
    let busy = (0..2_000_000u64).fold(1u64, |a, b| std::hint::black_box(a ^ b));
    std::hint::black_box(busy);

    assert!(thread_cpu_time() > before);
    assert!(process_cpu_time() >= thread_cpu_time());
    assert!(usable_cores() >= 1);
    assert!(memory_limit_bytes() > 1 << 20);
    assert!(peak_rss_bytes() >= resident_bytes() / 2);
    assert!(resident_bytes() > 1 << 16);
}

#[test]
fn sizes_of_caches_are_parsed() {
    assert_eq!(cache_size("32768K"), Some(32 << 20));
    assert_eq!(cache_size("96M"), Some(96 << 20));
    assert_eq!(cache_size("512"), Some(512));
    assert_eq!(cache_size("K"), None);
    assert_eq!(cache_size("18446744073709551615M"), None);
}

#[test]
fn session_and_time_follow_a_name_of_any_characters() {
    let stat = "7 (a) R (b) S 1 2 33 0 -1 4194304 100 0 0 0 5 6 7 8 20 0 1";

    assert_eq!(session_and_time(stat), Some((33, 26)));
    assert_eq!(session_and_time("7 (a) S 1 2"), None);
    assert_eq!(session_and_time(""), None);
}

#[cfg(linux_system)]
#[test]
fn the_session_of_this_process_has_used_time() {
    let session = session_cpu_time().expect("it is reported");

    assert!(session + Duration::from_millis(50) >= process_cpu_time());
}
