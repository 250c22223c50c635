//! Network threads of a process, shared by all buckets.
//!
//! A forked process starts its own threads. A bucket that was opened before the fork returns an
//! error in the child instead of waiting for threads that do not exist there.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::each_process::EachProcess;
use infeed_core::stop::Stop;

/// Threads that drive sockets and decrypt. The requesting threads collect the response bodies.
const THREADS: usize = 2;

/// Longest time between two checks of a stop request.
const CHECK: Duration = Duration::from_millis(100);

/// Network threads of one process.
#[derive(Debug)]
pub(super) struct NetworkThreads {
    id: u32,
    runtime: Result<Runtime, String>,
}

static EACH: EachProcess<NetworkThreads> = EachProcess::new();

impl NetworkThreads {
    /// Returns the threads of this process.
    pub(super) fn here() -> &'static NetworkThreads {
        EACH.here(NetworkThreads::new)
    }

    fn new() -> NetworkThreads {
        // A program may install another TLS provider first; it stays the default.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("infeed-net")
            .enable_all()
            .build();
        NetworkThreads {
            id: std::process::id(),
            runtime: runtime.map_err(|error| error.to_string()),
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Blocks this thread until `work` is done or the loader is closed.
    pub(super) fn wait<T>(&self, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let runtime = self.runtime.as_ref();
        let runtime = runtime
            .map_err(|error| io::Error::other(format!("cannot start network threads: {error}")))?;
        let stop = Stop::here();
        let work = async {
            tokio::select! {
                done = work => done,
                () = wait_for_stop(stop.as_ref()) => Err(stop_error()),
            }
        };
        // `Runtime::block_on` would panic on a thread of a runtime of the program.
        let _entered = runtime.enter();
        block_on(work, stop.as_ref().filter(|stop| stop.has_check()))
    }
}

/// Polls a future on this thread, and parks the thread between polls. Checks `stop` meanwhile.
fn block_on<T>(work: impl Future<Output = T>, stop: Option<&Stop>) -> T {
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
        match stop {
            Some(stop) => {
                thread::park_timeout(CHECK);
                stop.check();
            }
            None => thread::park(),
        }
    }
}

async fn wait_for_stop(stop: Option<&Stop>) {
    match stop {
        Some(stop) => stop.wait_for_request().await,
        None => std::future::pending().await,
    }
}

fn stop_error() -> io::Error {
    io::Error::new(
        io::ErrorKind::Interrupted,
        "it was interrupted, or its loader was closed",
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_waiting_thread_stops_when_its_loader_closes() {
        let stop = Stop::default();
        let waiting = std::thread::spawn({
            let stop = stop.clone();
            move || {
                stop.watch_here();
                NetworkThreads::here().wait(std::future::pending::<io::Result<()>>())
            }
        });

        stop.request();

        let error = waiting.join().expect("no panic").expect_err("nothing came");
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn a_waiting_thread_stops_when_its_check_does() {
        let checks = std::sync::atomic::AtomicU32::new(0);
        let stop = Stop::with_check(move || checks.fetch_add(1, Ordering::Relaxed) == 2);

        let waited = stop.during(|| {
            let pending = std::future::pending::<io::Result<()>>();
            NetworkThreads::here().wait(pending)
        });

        let error = waited.expect_err("nothing came");
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        assert!(stop.is_requested() && Stop::here().is_none());
    }

    #[test]
    fn a_process_has_one_set_of_threads() {
        assert!(std::ptr::eq(NetworkThreads::here(), NetworkThreads::here()));
        assert_eq!(NetworkThreads::here().id(), std::process::id());
    }
}
