//! The rate that each resource allows: capacity divided by demand. The lowest of these rates is that
//! of a run, a placement, a share of decoding, or a number of feeders.

use super::interval::Interval;
use super::limit::{Limit, Resource};
use super::stages::{StageCost, Stall};
use infeed_core::units::format_seconds;
use infeed_source::PythonTime;

/// Relative error of a capacity that is computed from counters instead of measured alone. Threads
/// that take turns on a core count each other's time as their own.
pub(crate) const COUNTED: f64 = 0.15;

/// Spread of a bus rate or step time that the user gave.
pub(crate) const GIVEN: f64 = 0.02;

/// The rate that each resource allows, in samples per second, lowest first. With its arithmetic,
/// where a reader should follow it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Supply(Vec<Resource>);

/// Picks an end of an interval.
pub(crate) type End = fn(&Interval) -> f64;

impl Supply {
    pub(crate) fn add(&mut self, limit: Limit, rate: Interval, arithmetic: String) {
        self.0.push(Resource {
            limit,
            rate,
            arithmetic,
        });
        self.0.sort_by(|a, b| a.rate.mid.total_cmp(&b.rate.mid));
    }

    /// Adds a rate without arithmetic, unless it is no limit.
    pub(crate) fn add_rate(&mut self, limit: Limit, rate: Option<Interval>) {
        if let Some(rate) = rate.filter(|rate| rate.mid.is_finite()) {
            self.add(limit, rate, String::new());
        }
    }

    /// Returns a copy with these resources only.
    pub(crate) fn only(&self, limits: &[Limit]) -> Supply {
        let resources = self.0.iter();
        let resources = resources.filter(|resource| limits.contains(&resource.limit));
        Supply(resources.cloned().collect())
    }

    /// Returns a copy with another rate for one resource, if the rate is known. Adds the resource
    /// if it was not a limit before.
    pub(crate) fn with(&self, limit: Limit, rate: Option<Interval>) -> Supply {
        let mut others: Vec<Resource> = self.0.clone();
        if let Some(rate) = rate {
            let arithmetic = String::new();
            match others.iter_mut().find(|r| r.limit == limit) {
                Some(resource) => resource.rate = rate,
                None => others.push(Resource {
                    limit,
                    rate,
                    arithmetic,
                }),
            }
        }
        others.sort_by(|a, b| a.rate.mid.total_cmp(&b.rate.mid));
        Supply(others)
    }

    /// Returns a copy in which the rate of the processor cores is multiplied by `gain`. The memory
    /// bandwidth is no limit there, because the trial that measured the gain also used memory.
    pub(crate) fn times_cores(&self, gain: Interval) -> Supply {
        let cores = self.0.iter().find(|r| is_cores(r.limit));
        let rate = cores.map(|r| Interval {
            low: r.rate.mid * gain.low,
            mid: r.rate.mid * gain.mid,
            high: r.rate.mid * gain.high,
        });
        let limit = cores.map_or(Limit::Decode, |r| r.limit);
        let mut then = self.with(limit, rate);
        then.take(Limit::Memory);
        then
    }

    /// Removes a resource and returns it.
    pub(crate) fn take(&mut self, limit: Limit) -> Option<Resource> {
        let at = self.0.iter().position(|resource| resource.limit == limit)?;
        Some(self.0.remove(at))
    }

    /// Removes the resource of the processor cores and returns it.
    pub(crate) fn take_cores(&mut self) -> Option<Resource> {
        let at = self
            .0
            .iter()
            .position(|resource| is_cores(resource.limit))?;
        Some(self.0.remove(at))
    }

    /// Returns all resources, lowest rate first.
    pub(crate) fn all(&self) -> &[Resource] {
        &self.0
    }

    pub(crate) fn rate_of(&self, limit: Limit) -> Option<Interval> {
        let found = self.0.iter().find(|resource| resource.limit == limit);
        found.map(|resource| resource.rate)
    }

    fn cores(&self) -> Option<Interval> {
        let found = self.0.iter().find(|r| is_cores(r.limit));
        found.map(|resource| resource.rate)
    }

    /// Returns the lowest of a rate and the rates of all resources, with its limit.
    pub(crate) fn lower(&self, rate: f64, limit: Limit, end: End) -> (f64, Limit) {
        let lower = |(rate, limit), other: &Resource| match end(&other.rate) < rate {
            true => (end(&other.rate), other.limit),
            false => (rate, limit),
        };
        self.0.iter().fold((rate, limit), lower)
    }

    /// Returns the lowest rate.
    pub(crate) fn least(&self) -> Interval {
        let least = |end: End| {
            let ends = self.0.iter().map(|r| end(&r.rate));
            ends.fold(f64::INFINITY, f64::min)
        };
        Interval {
            low: least(|rate| rate.low),
            mid: least(|rate| rate.mid),
            high: least(|rate| rate.high),
        }
    }

    pub(crate) fn limit(&self) -> Limit {
        self.0
            .first()
            .map_or(Limit::Step, |resource| resource.limit)
    }

    /// Splits the time that the consumer waited by the time that each resource adds to a sample.
    /// The order is step, device and copy, cores, wire, storage.
    ///
    /// Source: the differences of DS-Analyzer (Mohan et al., VLDB 2021), which runs the loader
    /// without preparation and then without storage.
    pub(crate) fn stall(&self, waited: f64) -> Stall {
        let time = |rate: Option<Interval>| rate.map_or(0.0, |rate| 1.0 / rate.mid.max(1e-9));
        let step = time(self.rate_of(Limit::Step));
        let device = time(self.rate_of(Limit::Device));
        let decoder = time(self.rate_of(Limit::Decoder));
        let copy = step.max(device).max(decoder);
        let copy = copy.max(time(self.rate_of(Limit::Copy)));
        let memory = time(self.rate_of(Limit::Memory));
        let prep = copy.max(time(self.cores())).max(memory);
        let wire = prep.max(time(self.rate_of(Limit::Wire)));
        let fetch = wire.max(time(self.rate_of(Limit::Storage)));
        let (by_copy, by_prep) = (copy - step, prep - copy);
        let (by_wire, by_fetch) = (wire - prep, fetch - wire);
        let all = by_copy + by_prep + by_wire + by_fetch;
        // Preparation delivers the batches, so it gets the waiting that no resource accounts for.
        let share = |part: f64| if all > 0.0 { waited * part / all } else { 0.0 };
        Stall {
            fetch: share(by_fetch),
            prep: if all > 0.0 { share(by_prep) } else { waited },
            wire: share(by_wire),
            copy: share(by_copy),
            compute: 1.0 - waited,
        }
    }
}

fn is_cores(limit: Limit) -> bool {
    matches!(
        limit,
        Limit::Host
            | Limit::Decode
            | Limit::Transform
            | Limit::Python
            | Limit::Feeders
            | Limit::Receive
    )
}

/// Returns the limit of the workers by their most expensive part: decoding, transforms with
/// writing, or the user's Python functions. Python counts wall time, because its threads may sleep.
pub(crate) fn costliest(stages: &[StageCost]) -> Limit {
    let cpu = |name: &str| {
        let found = stages.iter().find(|stage| stage.name == name);
        found.map_or(0.0, |stage| stage.cpu_s)
    };
    let python = stages.iter().find(|stage| stage.name == "python");
    let python = python.map_or(0.0, |stage| stage.wall_s);
    if python > cpu("decode").max(cpu("transform") + cpu("write")) {
        Limit::Python
    } else if cpu("decode") >= cpu("transform") + cpu("write") {
        Limit::Decode
    } else {
        Limit::Transform
    }
}

/// Returns the rate that Python allows: one item at a time while items hold the interpreter lock.
pub(crate) fn in_python(python: PythonTime) -> Option<(Interval, String)> {
    let inside = python.inside.as_secs_f64();
    if python.items == 0 || inside <= 0.0 {
        return None;
    }
    let items = python.items as f64;
    let rate = items / inside;
    let text = format!(
        "1 item at a time / {} in Python = {rate:.0} samples/s; threads waited {} per item for the \
         interpreter's lock",
        format_seconds(inside / items),
        format_seconds(python.waited.as_secs_f64() / items),
    );
    Some((Interval::exact(rate).widen(COUNTED), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacities(rates: &[(Limit, f64)]) -> Supply {
        let mut all = Supply::default();
        for &(limit, rate) in rates {
            all.add(limit, Interval::exact(rate), String::new());
        }
        all
    }

    #[test]
    fn the_least_capacity_is_the_rate_and_names_the_limit() {
        let mut all = capacities(&[
            (Limit::Step, 500.0),
            (Limit::Decode, 300.0),
            (Limit::Storage, 400.0),
        ]);

        assert_eq!(all.limit(), Limit::Decode);
        assert_eq!(all.least(), Interval::exact(300.0));
        // Twice the cores' rate makes storage the limit.
        all.add(Limit::Memory, Interval::exact(1.0), String::new());
        let faster = all.times_cores(Interval::exact(2.0));
        assert_eq!(faster.rate_of(Limit::Memory), None);
        assert_eq!(
            (faster.limit(), faster.least().mid),
            (Limit::Storage, 400.0)
        );
    }

    #[test]
    fn waiting_is_split_by_the_time_each_resource_adds_to_a_sample() {
        // 1 ms of computing, 2 ms of preparing, 5 ms of reading: the consumer waits 4 of 5 ms.
        let all = capacities(&[
            (Limit::Step, 1000.0),
            (Limit::Decode, 500.0),
            (Limit::Storage, 200.0),
        ]);

        let stall = all.stall(0.8);

        assert!((stall.prep - 0.2).abs() < 1e-9, "{stall:?}");
        assert!((stall.fetch - 0.6).abs() < 1e-9, "{stall:?}");
        assert!((stall.compute - 0.2).abs() < 1e-9, "{stall:?}");
        assert_eq!(stall.copy, 0.0);
    }

    #[test]
    fn a_step_longer_than_everything_leaves_no_stall() {
        let all = capacities(&[(Limit::Step, 100.0), (Limit::Decode, 500.0)]);

        let stall = all.stall(0.0);

        assert_eq!(
            (all.limit(), stall.prep, stall.fetch),
            (Limit::Step, 0.0, 0.0)
        );
        assert_eq!(stall.compute, 1.0);
    }
}
