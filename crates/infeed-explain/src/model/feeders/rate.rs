//! Computes the rate with a number of feeders. This machine's cores receive first and make batches
//! with the rest, feeders make as much as wire and receiving carry, and bus, device and step bound
//! the sum.

use super::FeederCount;
use crate::model::interval::Interval;
use crate::model::limit::Limit;
use crate::model::supply::{End, Supply};

/// Maximum number of feeders that is computed.
const MAX_FEEDERS: u32 = 1024;

/// Share of the step's rate at which the step counts as fed.
const ENOUGH_SHARE: f64 = 0.99;

/// Available rates, in samples per second unless the name says otherwise.
#[derive(Clone, Debug)]
pub(crate) struct FeedingModel {
    /// Rate of this machine's workers while nothing else uses their cores.
    pub(crate) own: f64,
    /// Name of that limit.
    pub(crate) own_limit: Limit,
    /// Other bounds of batches made here, which do not bound feeders: storage, memory.
    pub(crate) here: Supply,
    /// Whether own cores make batches next to feeders.
    pub(crate) helps: bool,
    /// Number of cores that the workers keep busy, and the number that exists.
    pub(crate) workers: f64,
    pub(crate) cores: f64,
    /// Processor time to receive a sample, in seconds.
    pub(crate) receive_s: f64,
    /// Rate of one feeder.
    pub(crate) feeder: Interval,
    /// Rate of one connection.
    pub(crate) connection: Option<f64>,
    /// Rate of all connections together.
    pub(crate) wire: Option<Interval>,
    /// Bounds of everything that is delivered: bus, device, step.
    pub(crate) ceilings: Supply,
}

/// Samples per second by origin.
#[derive(Clone, Copy, Debug, PartialEq)]
struct FeedRates {
    own: f64,
    from_feeders: f64,
    limit: Limit,
}

impl FeedRates {
    fn rate(self) -> f64 {
        self.own + self.from_feeders
    }
}

impl FeedingModel {
    /// Returns the resources that bound the batches of feeders: the network and receiving.
    fn arriving(&self) -> Supply {
        let mut supply = Supply::default();
        supply.add_rate(Limit::Wire, self.wire);
        let received = Interval::exact(self.cores / self.receive_s);
        supply.add_rate(Limit::Receive, Some(received));
        supply
    }

    /// Returns the rates of cores and feeders before bus, device and step bound them. `end` picks
    /// an end of each interval.
    fn unbounded_rates(&self, feeders: u32, end: End) -> FeedRates {
        let one = end(&self.feeder).min(self.connection.unwrap_or(f64::INFINITY));
        let made = f64::from(feeders) * one;
        let (mut from_feeders, mut limit) = self.arriving().lower(made, Limit::Feeders, end);
        if feeders == 0 {
            (from_feeders, limit) = (0.0, self.own_limit);
        } else if !self.helps {
            return FeedRates {
                own: 0.0,
                from_feeders,
                limit,
            };
        }
        // Receiving takes idle cores first, and then those of the workers.
        let left = (self.cores - from_feeders * self.receive_s) / self.workers.max(1e-9);
        let own = self.own * left.clamp(0.0, 1.0);
        let (own, own_limit) = self.here.lower(own, limit, end);
        FeedRates {
            own,
            from_feeders,
            // With feeders, the limit stays with them, because the user can add feeders.
            limit: if feeders == 0 { own_limit } else { limit },
        }
    }

    fn flow(&self, feeders: u32, end: End) -> FeedRates {
        let made = self.unbounded_rates(feeders, end);
        let (rate, limit) = self.ceilings.lower(made.rate(), made.limit, end);
        if rate >= made.rate() {
            return made;
        }
        // The next free maker takes the next batch, so both rates fall by the same factor.
        let part = rate / made.rate();
        FeedRates {
            own: made.own * part,
            from_feeders: made.from_feeders * part,
            limit,
        }
    }

    /// Returns the rate with this number of feeders.
    pub(crate) fn with(&self, feeders: u32) -> FeederCount {
        let flow = self.flow(feeders, |rate| rate.mid);
        let rate = Interval {
            low: self.flow(feeders, |rate| rate.low).rate().min(flow.rate()),
            mid: flow.rate(),
            high: self.flow(feeders, |rate| rate.high).rate().max(flow.rate()),
        };
        // This machine's part is in both rates, so its spread cancels.
        let now = self.flow(0, |rate| rate.mid).rate();
        FeederCount {
            feeders,
            rate,
            gain: match feeders {
                0 => Interval::exact(1.0),
                _ => rate.map(|rate| if now > 0.0 { rate / now } else { f64::INFINITY }),
            },
            own: flow.own,
            from_feeders: flow.from_feeders,
            receive_cores: flow.from_feeders * self.receive_s,
            limit: flow.limit,
            arithmetic: String::new(),
        }
    }

    /// Returns the smallest number of feeders at which `holds` is true.
    fn fewest(&self, holds: impl Fn(&FeederCount) -> bool) -> Option<u32> {
        (0..=MAX_FEEDERS).find(|&feeders| holds(&self.with(feeders)))
    }

    /// Returns the smallest number of feeders that feeds a step of `step` samples per second.
    pub(crate) fn enough(&self, step: f64) -> Option<u32> {
        self.fewest(|count| count.rate.mid >= ENOUGH_SHARE * step)
    }

    /// Returns the smallest number at which another resource than batch-making cores is the limit.
    pub(crate) fn saturation_point(&self) -> Option<u32> {
        let within = |limit| self.here.rate_of(limit).is_some();
        self.fewest(|count| match count.feeders {
            0 => count.limit != self.own_limit && !within(count.limit),
            _ => count.limit != Limit::Feeders,
        })
    }

    /// Returns the rates for 0, 1, 2, 4 and so on feeders until another resource is the limit, and
    /// for the `wanted` numbers.
    pub(crate) fn counts(&self, wanted: &[u32]) -> Vec<FeederCount> {
        let last = self.saturation_point().unwrap_or(MAX_FEEDERS);
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
