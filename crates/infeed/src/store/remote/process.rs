//! What a process has once for all buckets: threads that answer.
//!
//! A fork has threads of its own, and what was opened before it says so instead of waiting for
//! threads that are not there.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::runtime::{Builder, Runtime};

use super::each_process::EachProcess;
use crate::stop::Stop;

/// Threads that drive sockets and decrypt. Bodies are gathered on the threads that asked for them.
const THREADS: usize = 2;

/// The threads of one process.
#[derive(Debug)]
pub(super) struct Process {
    id: u32,
    runtime: Result<Runtime, String>,
}

static EACH: EachProcess<Process> = EachProcess::new();

impl Process {
    /// This process's own.
    pub(super) fn here() -> &'static Process {
        EACH.here(Process::new)
    }

    fn new() -> Process {
        // The first of several providers that a program may have stays the default.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("infeed-net")
            .enable_all()
            .build();
        Process {
            id: std::process::id(),
            runtime: runtime.map_err(|error| error.to_string()),
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Waits on this thread for what the process's threads bring, or until nobody wants it.
    pub(super) fn wait<T>(&self, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let runtime = self.runtime.as_ref();
        let runtime = runtime
            .map_err(|error| io::Error::other(format!("cannot start network threads: {error}")))?;
        let stop = Stop::here();
        let work = async {
            tokio::select! {
                done = work => done,
                () = wished(stop.as_ref()) => Err(stopped()),
            }
        };
        // Not `Runtime::block_on`, which panics on a thread of a program's own runtime.
        let _entered = runtime.enter();
        parked(work)
    }
}

/// Waits on this thread, asleep between what is to be done.
fn parked<T>(work: impl Future<Output = T>) -> T {
    struct Sleeper(Thread);
    impl Wake for Sleeper {
        fn wake(self: Arc<Sleeper>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Sleeper(thread::current())));
    let mut work = pin!(work);
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        thread::park();
    }
}

async fn wished(stop: Option<&Stop>) {
    match stop {
        Some(stop) => stop.wished().await,
        None => std::future::pending().await,
    }
}

fn stopped() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the loader was closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_gives_up_when_nobody_wants_it_any_more() {
        let stop = Stop::default();
        let waiting = std::thread::spawn({
            let stop = stop.clone();
            move || {
                stop.watch_here();
                Process::here().wait(std::future::pending::<io::Result<()>>())
            }
        });

        stop.wish();

        let error = waiting.join().expect("no panic").expect_err("nothing came");
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn a_process_has_one_state() {
        assert!(std::ptr::eq(Process::here(), Process::here()));
        assert_eq!(Process::here().id(), std::process::id());
    }
}
