//! How busy a card is meanwhile, as those know it who watch `nvidia-smi`: a cross-check beside what the
//! ring measures, and no more. A card counts as busy while any kernel runs, however small.

use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use infeed_raw::nvml;
use serde::{Deserialize, Serialize};

use super::Any;

/// Time between two looks: the card's own counting is not finer.
const EVERY: Duration = Duration::from_millis(200);

/// Looks that are kept at most; beyond, every second one goes and half as many are made.
const KEPT: usize = 2048;

/// What was seen of a card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Utilisation {
    /// Share of the time in which a kernel ran, 0 to 1, on average.
    pub busy: f64,
    /// Every look, in the order of time.
    pub looks: Vec<Look>,
}

/// One look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// Since watching began.
    pub at_s: f64,
    /// Share of the time just before in which a kernel ran, 0 to 1.
    pub busy: f64,
}

/// Looks at a card five times a second, on a thread of its own, until it ends.
#[derive(Debug)]
pub struct Watch {
    /// Dropped to end it.
    end: SyncSender<()>,
    thread: JoinHandle<Vec<Look>>,
}

impl Watch {
    /// Begins to watch a device; None where nobody tells how busy it is, as for a simulated device.
    pub fn over(device: &Any) -> Option<Watch> {
        match device {
            Any::Cuda(cuda) => {
                let card = nvml::Card::at(&cuda.card().bus)?;
                Watch::asking(EVERY, move || card.utilisation().map(|found| found.busy))
            }
            Any::Sim(_) => None,
        }
    }

    /// Asks once at first, to see whether there is an answer.
    fn asking(every: Duration, ask: impl Fn() -> Option<f64> + Send + 'static) -> Option<Watch> {
        ask()?;
        let (end, ended) = mpsc::sync_channel::<()>(0);
        let begun = Instant::now();
        let look = move || {
            let mut looks: Vec<Look> = Vec::new();
            let mut every = every;
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let Some(busy) = ask() else { break };
                let at_s = begun.elapsed().as_secs_f64();
                looks.push(Look { at_s, busy });
                if looks.len() == KEPT {
                    let mut odd = false;
                    looks.retain(|_| {
                        odd = !odd;
                        odd
                    });
                    every *= 2;
                }
            }
            looks
        };
        let thread = thread::Builder::new().name("infeed-busy".to_owned());
        let thread = thread.spawn(look).ok()?;
        Some(Watch { end, thread })
    }

    /// Ends watching; None if it was too short for a look.
    pub fn end(self) -> Option<Utilisation> {
        drop(self.end);
        let looks = self.thread.join().ok()?;
        let sum: f64 = looks.iter().map(|look| look.busy).sum();
        (!looks.is_empty()).then(|| Utilisation {
            busy: sum / looks.len() as f64,
            looks,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn looks_are_made_until_the_end_and_their_mean_is_told() {
        // The watcher tells of each look, so that nothing here waits for a time.
        let (tell, told) = mpsc::channel();
        let shares = Mutex::new([0.5, 1.0, 0.0].into_iter().cycle());
        let ask = move || {
            let _ = tell.send(());
            shares.lock().expect("nobody panics").next()
        };

        let watch = Watch::asking(Duration::from_millis(1), ask).expect("it answers");
        // The first was asked to see whether there is an answer.
        for _ in 0..4 {
            told.recv().expect("it looks");
        }
        let found = watch.end().expect("it looked");

        assert!(found.looks.len() >= 2, "{found:?}");
        assert_eq!(found.looks[0].busy, 1.0);
        assert_eq!(found.looks[1].busy, 0.0);
        assert!(found.looks[0].at_s < found.looks[1].at_s);
        let sum: f64 = found.looks.iter().map(|look| look.busy).sum();
        assert_eq!(found.busy, sum / found.looks.len() as f64);
    }

    #[test]
    fn a_card_that_does_not_tell_is_not_watched() {
        assert!(Watch::asking(EVERY, || None).is_none());
        let sim = Any::open("sim").expect("every machine has one");
        assert!(Watch::over(&sim).is_none());
    }

    #[test]
    fn a_watch_that_ends_at_once_saw_nothing() {
        let watch = Watch::asking(Duration::from_secs(3600), || Some(1.0)).expect("it answers");

        assert_eq!(watch.end(), None);
    }
}
