//! Local files, opened for reading without waiting, and own files that are written.
//!
//! A dataset can contain links to devices and named pipes under any name. To open a named pipe waits
//! for its writer, and `/dev/zero` has no end. All code that opens a file of a dataset, or one that
//! the user names, calls this module, which opens regular files only.
//!
//! Files in folders that infeed manages are written through no link: a link that another program made
//! there would lead the write to a file elsewhere. Files that the user names are written through links.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::path::Path;

/// Bytes that a small text file may have: a pipeline file, names of classes, a palette, a token.
pub const MAX_TEXT_BYTES: u64 = 64 << 20;

/// Opens a regular file. Returns its length, too.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`] for a named pipe, a socket or a device, with its kind in the
/// message; [`io::ErrorKind::IsADirectory`] for a folder. Else the error of the system.
pub fn open(path: impl AsRef<Path>) -> io::Result<(File, u64)> {
    let path = path.as_ref();
    let file = open_at_once(path).map_err(|error| match std::fs::metadata(path) {
        // A socket cannot be opened.
        Ok(found) => not_regular(found.file_type()).unwrap_or(error),
        Err(_) => error,
    })?;
    // The path can lead to another file by now, so the opened file decides.
    let found = file.metadata()?;
    match not_regular(found.file_type()) {
        Some(error) => Err(error),
        None => {
            wait_for_bytes(&file)?;
            Ok((file, found.len()))
        }
    }
}

/// Reads a regular file of up to `most` bytes.
///
/// # Errors
///
/// Those of [`open`]; [`io::ErrorKind::FileTooLarge`] for a longer file, before any byte is read;
/// [`io::ErrorKind::OutOfMemory`].
pub fn read(path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    let (file, length) = open(path)?;
    read_up_to(file, length, most)
}

/// As [`read`], for text.
///
/// # Errors
///
/// Those of [`read`]; [`io::ErrorKind::InvalidData`] for bytes that are not UTF-8.
pub fn read_text(path: impl AsRef<Path>, most: u64) -> io::Result<String> {
    text(read(path, most)?)
}

/// As [`read`], for a path that the user passes to a command: also reads a pipe that the user
/// connects with the process, such as `/dev/stdin` or `<(command)` of a shell. Waits for its writer.
///
/// # Errors
///
/// Those of [`read`].
pub fn read_argument(path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    let is_connected = path == Path::new("/dev/stdin")
        || ["/dev/fd", "/proc/self/fd"]
            .iter()
            .any(|folder| path.parent() == Some(Path::new(folder)));
    match is_connected {
        true => read_up_to(File::open(path)?, 0, most),
        false => read(path, most),
    }
}

/// Returns the metadata of a regular file, without opening it.
///
/// # Errors
///
/// Those of [`open`].
pub fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    let found = std::fs::metadata(path)?;
    match not_regular(found.file_type()) {
        Some(error) => Err(error),
        None => Ok(found),
    }
}

/// Returns bytes as text.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidData`] for bytes that are not UTF-8.
pub fn text(bytes: Vec<u8>) -> io::Result<String> {
    let invalid = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text");
    String::from_utf8(bytes).map_err(invalid)
}

/// Reads an open file of a known length to its end, which may be later than its length.
///
/// # Errors
///
/// As [`read`].
pub fn read_up_to(file: File, length: u64, most: u64) -> io::Result<Vec<u8>> {
    if length > most {
        return Err(too_large(length, most));
    }
    let mut bytes = Vec::new();
    let first = usize::try_from(length).unwrap_or(usize::MAX);
    let enough = bytes.try_reserve_exact(first.saturating_add(1));
    enough.map_err(|_| out_of_memory(length))?;
    // Allocation failures of `read_to_end` are errors.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 {
        read if read > most => Err(too_large(read, most)),
        _ => Ok(bytes),
    }
}

/// Creates a file in a folder that infeed manages. Replaces a file or link of this name, and leaves
/// the target of the link.
///
/// # Errors
///
/// The error of the system.
pub fn create(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    // Readable, because some files are read again before they are complete.
    let create = || {
        File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
    };
    match create() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            std::fs::remove_file(path)?;
            create()
        }
        created => created,
    }
}

/// Opens a file in a folder that infeed manages for writing. Does not follow a link, and does not
/// wait.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`] for a link, and for another file that is not regular. Else the
/// error of the system.
pub fn open_own(path: impl AsRef<Path>, options: &mut OpenOptions) -> io::Result<File> {
    let path = path.as_ref();
    let invalid = |what: &str| {
        let problem = format!("it is a {what}, and infeed writes regular files only; remove it");
        io::Error::new(io::ErrorKind::InvalidInput, problem)
    };
    let special = |found: FileType| match found {
        found if found.is_symlink() => Some(invalid("symbolic link")),
        found if found.is_file() || found.is_dir() => None,
        found => Some(invalid(special_kind(found))),
    };
    let file = options_of_own(options).open(path).map_err(|error| {
        let found = std::fs::symlink_metadata(path);
        let found = found.ok().and_then(|found| special(found.file_type()));
        found.unwrap_or(error)
    })?;
    // The path can lead to another file by now, so the opened file decides.
    match special(file.metadata()?.file_type()) {
        Some(error) => Err(error),
        None => Ok(file),
    }
}

/// Adds to options that a link is not followed, and that a named pipe is not waited for.
#[cfg(unix)]
fn options_of_own(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt as _;
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
}

#[cfg(windows)]
fn options_of_own(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::windows::fs::OpenOptionsExt as _;
    // FILE_FLAG_OPEN_REPARSE_POINT: opens a link, not its target.
    options.custom_flags(0x0020_0000)
}

/// Describes a file that is longer than a limit.
pub fn too_large(length: u64, most: u64) -> io::Error {
    let problem = format!("it has {length} bytes, and a file of this kind may have {most}");
    io::Error::new(io::ErrorKind::FileTooLarge, problem)
}

fn out_of_memory(length: u64) -> io::Error {
    let problem = format!("out of memory: cannot allocate {length} bytes");
    io::Error::new(io::ErrorKind::OutOfMemory, problem)
}

/// Returns the error of what is not a regular file.
fn not_regular(found: FileType) -> Option<io::Error> {
    use io::ErrorKind::{InvalidInput, IsADirectory};
    let (kind, what) = match found {
        found if found.is_file() => return None,
        found if found.is_dir() => (IsADirectory, "folder"),
        found => (InvalidInput, special_kind(found)),
    };
    let problem = format!("it is a {what}; only regular files are read");
    Some(io::Error::new(kind, problem))
}

/// Kind of a file that is neither regular nor a folder, as a noun.
#[cfg(unix)]
fn special_kind(found: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;
    match found {
        found if found.is_fifo() => "named pipe",
        found if found.is_socket() => "socket",
        found if found.is_char_device() || found.is_block_device() => "device",
        _ => "special file",
    }
}

#[cfg(not(unix))]
fn special_kind(_: FileType) -> &'static str {
    "special file"
}

/// Opens any file. Does not wait for the writer of a named pipe, and does not make a terminal the
/// one that controls the process.
#[cfg(unix)]
fn open_at_once(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    match opened {
        // Another process holds a lease of the file, which it gives up when the open waits.
        Err(error)
            if error.kind() == io::ErrorKind::WouldBlock
                && std::fs::metadata(path).is_ok_and(|found| found.is_file()) =>
        {
            File::open(path)
        }
        opened => opened,
    }
}

#[cfg(not(unix))]
fn open_at_once(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Makes reads of a file wait for bytes again: file systems with slow storage behind them return an
/// error otherwise.
#[cfg(unix)]
fn wait_for_bytes(file: &File) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    // SAFETY: the descriptor is open as long as `file` is. The call changes no memory, and only the
    // flags of this open file, which no other code has.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, 0) };
    match done {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn wait_for_bytes(_: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::process::Command;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    /// A folder that is removed at the end.
    struct TestFolder(PathBuf);

    impl TestFolder {
        fn new(name: &str) -> TestFolder {
            let path = std::env::temp_dir().join(format!("infeed-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            TestFolder(path)
        }
    }

    impl Drop for TestFolder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Returns the result of `call`, which must not wait.
    fn at_once<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, receiver) = channel();
        thread::spawn(move || sender.send(call()));
        let waited = Duration::from_secs(60);
        receiver.recv_timeout(waited).expect("it does not wait")
    }

    #[test]
    fn a_path_to_no_regular_file_is_an_error_with_its_kind() {
        let folder = TestFolder::new("special");
        let at = |name: &str| folder.0.join(name);
        let made = Command::new("mkfifo").arg(at("pipe")).status().unwrap();
        assert!(made.success());
        let _listener = UnixListener::bind(at("socket")).unwrap();
        for (name, target) in [("zero", "/dev/zero"), ("to-pipe", "pipe"), ("here", ".")] {
            std::os::unix::fs::symlink(target, at(name)).unwrap();
        }
        for (name, kind) in [
            ("pipe", "named pipe"),
            ("to-pipe", "named pipe"),
            ("socket", "socket"),
            ("zero", "device"),
            ("here", "folder"),
        ] {
            let path = at(name);
            let error = at_once(move || read(&path, 10).unwrap_err());

            let expected = format!("it is a {kind}; only regular files are read");
            assert_eq!(error.to_string(), expected, "{name}");
        }
        assert_eq!(
            read(at("gone"), 1).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }

    #[test]
    fn a_file_is_read_up_to_a_limit_that_is_checked_first() {
        let folder = TestFolder::new("limit");
        let path = folder.0.join("file");
        std::fs::write(&path, "abc").unwrap();
        assert_eq!(read(&path, 3).unwrap(), b"abc");
        assert_eq!(read_text(&path, 3).unwrap(), "abc");
        let error = read(&path, 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(error.to_string().contains("3 bytes"), "{error}");
        std::fs::write(&path, b"\xFF").unwrap();
        assert_eq!(
            read_text(&path, 3).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );

        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(200 << 30)
            .unwrap();

        let error = at_once(move || read(&path, MAX_TEXT_BYTES).unwrap_err());
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn own_files_are_not_written_through_links_or_pipes() {
        let folder = TestFolder::new("own");
        let at = |name: &str| folder.0.join(name);
        std::fs::write(at("elsewhere"), "precious").unwrap();
        let made = Command::new("mkfifo").arg(at("pipe")).status().unwrap();
        assert!(made.success());
        for name in ["made", "appended"] {
            std::os::unix::fs::symlink("elsewhere", at(name)).unwrap();
        }

        std::io::Write::write_all(&mut create(at("made")).unwrap(), b"new").unwrap();
        std::io::Write::write_all(&mut create(at("made")).unwrap(), b"newer").unwrap();

        assert_eq!(std::fs::read(at("made")).unwrap(), b"newer");
        for (name, kind) in [("appended", "symbolic link"), ("pipe", "named pipe")] {
            for append in [true, false] {
                let path = at(name);
                let mut options = File::options();
                let options = options.append(append).write(true).create(append);
                let mut options = options.clone();
                let error = at_once(move || open_own(path, &mut options).unwrap_err());
                assert!(error.to_string().contains(kind), "{error}");
            }
        }
        assert_eq!(std::fs::read(at("elsewhere")).unwrap(), b"precious");
        let mut options = File::options();
        let file = open_own(at("new"), options.create(true).append(true)).unwrap();
        std::io::Write::write_all(&mut &file, b"line").unwrap();
        assert_eq!(std::fs::read(at("new")).unwrap(), b"line");
    }

    #[test]
    fn files_without_a_length_are_read_to_their_end() {
        assert!(
            !read("/proc/self/status", MAX_TEXT_BYTES)
                .unwrap()
                .is_empty()
        );
        assert_eq!(
            read("/proc/self/status", 5).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
    }

    #[test]
    fn reads_of_an_opened_file_wait() {
        let (file, _) = open("/proc/self/status").unwrap();
        use std::os::fd::AsRawFd as _;
        // SAFETY: the descriptor is open, and the call changes nothing.
        let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
        assert_eq!(flags & libc::O_NONBLOCK, 0);
    }
}
