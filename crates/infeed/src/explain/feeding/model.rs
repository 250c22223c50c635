//! The rate with so many feeders: what this machine's cores make beside receiving, what feeders make
//! as far as wire and receiving carry it, and no more than bus, device and step take.

use super::FeederCount;
use crate::explain::interval::Interval;
use crate::explain::limit::Limit;

/// Most feeders that are looked at.
pub(super) const MOST: u32 = 1024;

/// A step is fed at this share of what it takes.
const FED: f64 = 0.99;

/// What there is, in samples a second unless the name says otherwise.
#[derive(Clone, Debug)]
pub(in crate::explain) struct Supply {
    /// What this machine's workers make while nothing else wants their cores.
    pub(in crate::explain) own: f64,
    /// What that is called where it limits.
    pub(in crate::explain) own_limit: Limit,
    /// What else bounds what is made here, and nothing that comes from elsewhere: storage, memory.
    pub(in crate::explain) here: Vec<(Limit, Interval)>,
    /// Whether own cores make batches beside feeders.
    pub(in crate::explain) helps: bool,
    /// Cores that the workers keep busy, of those that there are.
    pub(in crate::explain) workers: f64,
    pub(in crate::explain) cores: f64,
    /// Processor time for receiving a sample.
    pub(in crate::explain) receive_s: f64,
    /// What one feeder makes.
    pub(in crate::explain) feeder: Interval,
    /// What one connection carries.
    pub(in crate::explain) connection: Option<f64>,
    /// What all of them carry together.
    pub(in crate::explain) wire: Option<Interval>,
    /// What bounds all that is delivered: bus, device, step.
    pub(in crate::explain) ceilings: Vec<(Limit, Interval)>,
}

/// Samples a second, by where they come from.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Flow {
    own: f64,
    fed: f64,
    limit: Limit,
}

impl Flow {
    fn rate(self) -> f64 {
        self.own + self.fed
    }
}

type End = fn(&Interval) -> f64;

impl Supply {
    /// What cores and feeders could make, before what takes it: at one end of what is known.
    fn made(&self, feeders: u32, end: End) -> Flow {
        let one = end(&self.feeder).min(self.connection.unwrap_or(f64::INFINITY));
        let mut fed = f64::from(feeders) * one;
        let mut limit = Limit::Feeders;
        if let Some(wire) = self.wire.as_ref().map(end).filter(|wire| *wire < fed) {
            (fed, limit) = (wire, Limit::Wire);
        }
        let taken_in = self.cores / self.receive_s;
        if taken_in < fed {
            (fed, limit) = (taken_in, Limit::Receive);
        }
        if feeders == 0 {
            (fed, limit) = (0.0, self.own_limit);
        } else if !self.helps {
            return Flow {
                own: 0.0,
                fed,
                limit,
            };
        }
        // Receiving takes cores that are idle first, and then those of the workers.
        let left = (self.cores - fed * self.receive_s) / self.workers.max(1e-9);
        let mut own = self.own * left.clamp(0.0, 1.0);
        for (what, rate) in &self.here {
            if end(rate) < own {
                own = end(rate);
                // With feeders there is more where these are: of them there can be more.
                limit = if feeders == 0 { *what } else { limit };
            }
        }
        Flow { own, fed, limit }
    }

    fn flow(&self, feeders: u32, end: End) -> Flow {
        let mut flow = self.made(feeders, end);
        for (limit, rate) in &self.ceilings {
            let rate = end(rate);
            if rate < flow.rate() {
                // Whoever is free makes the next batch, so both make less by the same part.
                let part = rate / flow.rate();
                flow = Flow {
                    own: flow.own * part,
                    fed: flow.fed * part,
                    limit: *limit,
                };
            }
        }
        flow
    }

    /// What so many feeders give.
    pub(in crate::explain) fn with(&self, feeders: u32) -> FeederCount {
        let flow = self.flow(feeders, |rate| rate.mid);
        let rate = Interval {
            low: self.flow(feeders, |rate| rate.low).rate().min(flow.rate()),
            mid: flow.rate(),
            high: self.flow(feeders, |rate| rate.high).rate().max(flow.rate()),
        };
        // This machine's part is on both sides, and its spread cancels.
        let now = self.flow(0, |rate| rate.mid).rate();
        FeederCount {
            feeders,
            rate,
            gain: match feeders {
                0 => Interval::exact(1.0),
                _ => rate.map(|rate| if now > 0.0 { rate / now } else { f64::INFINITY }),
            },
            own: flow.own,
            fed: flow.fed,
            receive_cores: flow.fed * self.receive_s,
            limit: flow.limit,
            arithmetic: String::new(),
        }
    }

    /// The fewest feeders with which something holds of what they give.
    fn fewest(&self, holds: impl Fn(&FeederCount) -> bool) -> Option<u32> {
        (0..=MOST).find(|&feeders| holds(&self.with(feeders)))
    }

    /// The fewest that keep a step fed which takes so many samples a second.
    pub(in crate::explain) fn enough(&self, step: f64) -> Option<u32> {
        self.fewest(|count| count.rate.mid >= FED * step)
    }

    /// The fewest with which something else than cores that make batches limits.
    pub(in crate::explain) fn saturated(&self) -> Option<u32> {
        let within = |limit| self.here.iter().any(|(what, _)| *what == limit);
        self.fewest(|count| match count.feeders {
            0 => count.limit != self.own_limit && !within(count.limit),
            _ => count.limit != Limit::Feeders,
        })
    }

    /// None, and then twice as many each time until something else limits; those that are wanted
    /// besides.
    pub(in crate::explain) fn counts(&self, wanted: &[u32]) -> Vec<FeederCount> {
        let last = self.saturated().unwrap_or(MOST);
        let mut numbers: Vec<u32> = vec![0];
        let mut next = 1;
        while next < last {
            numbers.push(next);
            next *= 2;
        }
        numbers.push(last);
        numbers.extend_from_slice(wanted);
        numbers.sort_unstable();
        numbers.dedup();
        numbers
            .into_iter()
            .map(|number| self.with(number))
            .collect()
    }
}
