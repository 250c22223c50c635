//! What each resource allows: capacity over demand, as arithmetic that a reader can follow. The
//! rate of a pipeline is the least of them.

use super::findings::{StageCost, Stall};
use super::interval::Interval;
use super::limit::{Limit, Resource};
use crate::source::PythonTime;

/// Two limits closer than this cannot be told apart.
pub(super) const TIE: f64 = 1.05;

/// How far a capacity computed from counters strays from one that was measured by itself: threads
/// that take turns on a core count each other's time as theirs.
pub(super) const COUNTED: f64 = 0.15;

/// The rate that each resource allows, in samples a second, and how it was come by.
#[derive(Clone, Debug, Default)]
pub(super) struct Capacities(Vec<Resource>);

impl Capacities {
    pub(super) fn add(&mut self, limit: Limit, rate: Interval, arithmetic: String) {
        self.0.push(Resource {
            limit,
            rate,
            arithmetic,
        });
        self.0.sort_by(|a, b| a.rate.mid.total_cmp(&b.rate.mid));
    }

    /// The same with another rate for one resource, where that is known; one that was no limit
    /// before may become one.
    pub(super) fn with(&self, limit: Limit, rate: Option<Interval>) -> Capacities {
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
        Capacities(others)
    }

    /// The same with the rate of the processor cores multiplied.
    pub(super) fn times_cores(&self, gain: Interval) -> Capacities {
        let cores = self.0.iter().find(|r| is_cores(r.limit));
        let rate = cores.map(|r| Interval {
            low: r.rate.mid * gain.low,
            mid: r.rate.mid * gain.mid,
            high: r.rate.mid * gain.high,
        });
        let limit = cores.map_or(Limit::Decode, |r| r.limit);
        self.with(limit, rate)
    }

    /// Takes out what a resource allows.
    pub(super) fn take(&mut self, limit: Limit) -> Option<Resource> {
        let at = self.0.iter().position(|resource| resource.limit == limit)?;
        Some(self.0.remove(at))
    }

    /// Takes out what the cores allow.
    pub(super) fn take_cores(&mut self) -> Option<Resource> {
        let at = self
            .0
            .iter()
            .position(|resource| is_cores(resource.limit))?;
        Some(self.0.remove(at))
    }

    /// All, the tightest first.
    pub(super) fn all(&self) -> &[Resource] {
        &self.0
    }

    pub(super) fn rate_of(&self, limit: Limit) -> Option<Interval> {
        let found = self.0.iter().find(|resource| resource.limit == limit);
        found.map(|resource| resource.rate)
    }

    fn cores(&self) -> Option<Interval> {
        let found = self.0.iter().find(|r| is_cores(r.limit));
        found.map(|resource| resource.rate)
    }

    /// The least of all.
    pub(super) fn least(&self) -> Interval {
        let least = |end: fn(&Interval) -> f64| {
            let ends = self.0.iter().map(|r| end(&r.rate));
            ends.fold(f64::INFINITY, f64::min)
        };
        Interval {
            low: least(|rate| rate.low),
            mid: least(|rate| rate.mid),
            high: least(|rate| rate.high),
        }
    }

    pub(super) fn limit(&self) -> Limit {
        self.0
            .first()
            .map_or(Limit::Step, |resource| resource.limit)
    }

    /// Splits the time the consumer waited: what is added to the time of a sample by one resource
    /// after the other, in the order step, device and copy, cores, wire, storage.
    ///
    /// Source: the differences of DS-Analyzer (Mohan et al., VLDB 2021), which runs the loader
    /// without preparation, and then without storage.
    pub(super) fn stall(&self, waited: f64) -> Stall {
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
        // Waiting that no resource accounts for is the preparation's: it is what delivers.
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
        Limit::Decode | Limit::Transform | Limit::Python | Limit::Feeders | Limit::Receive
    )
}

/// Decoding, what comes after it, or functions of the user's, in which threads may also sleep.
pub(super) fn costliest(stages: &[StageCost]) -> Limit {
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

/// What Python gives: one item at a time, as far as the items do not release its lock.
pub(super) fn in_python(python: PythonTime) -> Option<(Interval, String)> {
    let inside = python.inside.as_secs_f64();
    if python.items == 0 || inside <= 0.0 {
        return None;
    }
    let items = python.items as f64;
    let rate = items / inside;
    let text = format!(
        "1 item at a time / {:.2} ms in Python = {rate:.0} samples/s; threads waited {:.2} ms an \
         item for the interpreter's lock",
        1e3 * inside / items,
        1e3 * python.waited.as_secs_f64() / items,
    );
    Some((Interval::exact(rate).widen(COUNTED), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacities(rates: &[(Limit, f64)]) -> Capacities {
        let mut all = Capacities::default();
        for &(limit, rate) in rates {
            all.add(limit, Interval::exact(rate), String::new());
        }
        all
    }

    #[test]
    fn the_least_capacity_is_the_rate_and_names_the_limit() {
        let all = capacities(&[
            (Limit::Step, 500.0),
            (Limit::Decode, 300.0),
            (Limit::Storage, 400.0),
        ]);

        assert_eq!(all.limit(), Limit::Decode);
        assert_eq!(all.least(), Interval::exact(300.0));
        // Twice the cores' rate lets the storage limit.
        let faster = all.times_cores(Interval::exact(2.0));
        assert_eq!(
            (faster.limit(), faster.least().mid),
            (Limit::Storage, 400.0)
        );
    }

    #[test]
    fn waiting_is_split_by_what_each_resource_adds_to_the_time_of_a_sample() {
        // 1 ms of computing, 2 ms of preparing, 5 ms of reading: of 5 ms, 4 are waited.
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
