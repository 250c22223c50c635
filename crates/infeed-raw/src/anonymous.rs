//! Unnamed files for bytes that two processes share. They disappear when the last process closes
//! them or ends.

use std::ffi::CStr;
use std::fs::File;
use std::io;

/// Makes an empty file in memory that child processes do not inherit; `name` only appears in
/// `/proc`.
///
/// # Errors
///
/// The operating system's error.
#[cfg(linux_system)]
pub fn anonymous_file(name: &CStr) -> io::Result<File> {
    use std::os::fd::FromRawFd;

    // SAFETY: `name` is NUL-terminated, as its type guarantees, and is only read.
    let descriptor = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so the descriptor is open, and only this function has it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// Makes a file in the temporary folder and removes its name at once. For systems other than Linux.
#[cfg(not(linux_system))]
pub fn anonymous_file(name: &CStr) -> io::Result<File> {
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos());
    let name = name.to_string_lossy();
    let path = std::env::temp_dir().join(format!("{name}-{}-{nanos}", std::process::id()));
    let mut options = File::options();
    let file = options
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn an_anonymous_file_holds_bytes_and_its_clone_sees_them() {
        let file = anonymous_file(c"infeed-test").unwrap();
        let other = file.try_clone().unwrap();

        file.write_all_at(b"pixels", 10).unwrap();

        let mut read = [0; 6];
        other.read_exact_at(&mut read, 10).unwrap();
        assert_eq!(&read, b"pixels");
    }
}
