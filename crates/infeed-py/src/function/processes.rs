//! The processes of one function: each call takes one that is free. One that ends in a call is
//! replaced and the call made again, once.

use std::process::ExitStatus;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use infeed::batch::Column;
use infeed::function::{Draw, Failed, Running, Sink, Spent};
use infeed::stop::Stop;

use super::link::{End, Launch, Link};

/// How often a thread that waits for a free process looks whether it should still.
const LOOK: Duration = Duration::from_millis(50);

/// The processes of one function.
#[derive(Debug)]
pub(super) struct Processes {
    launch: Launch,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug)]
struct State {
    free: Vec<Link>,
    /// Processes that may still be started: those that ended.
    missing: usize,
}

/// A process ended in a call, and so did the one that was to make up for it.
#[derive(Debug, thiserror::Error)]
#[error(
    "the process that ran it ended ({}), and the one that tried again too ({})",
    status(.0), status(.1)
)]
struct Crashed(Option<ExitStatus>, Option<ExitStatus>);

/// A process ended before it could load the function.
#[derive(Debug, thiserror::Error)]
#[error("it ended ({}) before the function was loaded", status(.0))]
struct Unborn(Option<ExitStatus>);

fn status(status: &Option<ExitStatus>) -> String {
    status.map_or("unknown how".to_owned(), |status| status.to_string())
}

impl Processes {
    /// Starts `count` of them and waits until all have loaded the function.
    pub(super) fn start(launch: Launch, count: usize) -> Result<Processes, Failed> {
        let begun = (0..count).map(|_| Link::start(&launch));
        let begun: Result<Vec<Link>, _> = begun.collect();
        let mut free = begun.map_err(|error| Failed::Process(Arc::new(error)))?;
        free.iter_mut().try_for_each(ready)?;
        Ok(Processes {
            launch,
            state: Mutex::new(State { free, missing: 0 }),
            freed: Condvar::new(),
        })
    }

    /// A process that is free, or a new one where one ended.
    fn take(&self) -> Result<Link, Failed> {
        let mut state = self.lock();
        loop {
            while let Some(mut link) = state.free.pop() {
                // Ended while it was idle: by the system, or by hand.
                if !link.is_over() {
                    return Ok(link);
                }
                state.missing += 1;
            }
            if state.missing > 0 {
                state.missing -= 1;
                drop(state);
                return self.another();
            }
            if Stop::here().is_some_and(|stop| stop.is_wished()) {
                return Err(Failed::Closed);
            }
            let woken = self.freed.wait_timeout(state, LOOK);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A new process in place of one that ended.
    fn another(&self) -> Result<Link, Failed> {
        let started = Link::start(&self.launch).map_err(|error| Failed::Process(Arc::new(error)));
        let started = started.and_then(|mut link| ready(&mut link).map(|()| link));
        if started.is_err() {
            self.lost();
        }
        started
    }

    fn give_back(&self, link: Link) {
        self.lock().free.push(link);
        self.freed.notify_one();
    }

    fn lost(&self) {
        self.lock().missing += 1;
        self.freed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One try in one process, which is free again afterwards if it is still there.
    fn attempt(
        &self,
        mut link: Link,
        inputs: &[Column],
        draw: Draw,
        sink: &mut dyn Sink,
    ) -> Result<Result<Duration, Failed>, Option<ExitStatus>> {
        match link.call(inputs, draw, sink) {
            Err(End::Ended(status)) => Err(status),
            Err(End::Failed(Failed::Closed)) => {
                self.lost();
                Ok(Err(Failed::Closed))
            }
            Err(End::Failed(failed)) => {
                self.give_back(link);
                Ok(Err(failed))
            }
            Ok(elsewhere) => {
                self.give_back(link);
                Ok(Ok(elsewhere))
            }
        }
    }
}

/// Waits until a process has loaded the function.
fn ready(link: &mut Link) -> Result<(), Failed> {
    link.ready().map_err(|end| match end {
        End::Failed(failed) => failed,
        End::Ended(status) => Failed::Raised(Arc::new(Unborn(status))),
    })
}

impl Running for Processes {
    fn call(&self, inputs: &[Column], draw: Draw, sink: &mut dyn Sink) -> Result<Spent, Failed> {
        let asked = Instant::now();
        let link = self.take()?;
        let waited = asked.elapsed();
        let made = match self.attempt(link, inputs, draw, sink) {
            Ok(made) => made,
            Err(first) => {
                tracing::warn!(
                    "a process of a function ended ({}); its sample is tried again in another",
                    status(&first)
                );
                let link = self.another()?;
                self.attempt(link, inputs, draw, sink)
                    .unwrap_or_else(|second| {
                        self.lost();
                        Err(Failed::Raised(Arc::new(Crashed(first, second))))
                    })
            }
        };
        Ok(Spent {
            waited,
            elsewhere: made?,
        })
    }
}
