//! Tests of the search with simulated pipelines.

use super::search::{LoopLimit, SearchFinding, WorkerSearch};
use crate::loader::window::StepWindow;
use infeed_core::random::mix;

/// A simulated pipeline and its consumer on a machine.
#[derive(Clone, Debug)]
struct SimulatedPipeline {
    cores: usize,
    /// CPU time of workers per batch, and blocked time of workers per batch.
    work_s: f64,
    blocked_s: f64,
    /// Minimum time of the storage per batch.
    read_s: f64,
    /// Duration of a step on idle cores, and the number of cores that it uses.
    step_s: f64,
    step_threads: f64,
    /// Relative slowdown of a step by each worker.
    spoils: f64,
    /// Relative noise of windows.
    noise: f64,
    windows: u64,
}

impl SimulatedPipeline {
    fn on(cores: usize) -> SimulatedPipeline {
        SimulatedPipeline {
            cores,
            work_s: 0.1,
            blocked_s: 0.0,
            read_s: 0.0,
            step_s: 0.0,
            step_threads: 0.0,
            spoils: 0.0,
            noise: 0.01,
            windows: 0,
        }
    }

    /// The window for `workers`, without noise.
    fn run(&self, workers: usize) -> StepWindow {
        let n = workers as f64;
        let cores = self.cores as f64;
        let own = self.step_s * (1.0 + self.spoils * n);
        // More workers than cores take turns on the cores.
        let made = ((self.work_s + self.blocked_s) / n).max(self.work_s / cores);
        let step = own.max(made).max(self.read_s).max(1e-4);
        let busy = (n * made / step).min(n);
        let own_cores = self.work_s / step;
        let step_cores = self.step_threads * own / step;
        StepWindow {
            step_s: step,
            wait_s: step - own,
            busy,
            starved: if self.read_s >= step { n - busy } else { 0.0 },
            cores: (own_cores + step_cores).min(cores),
            step_cores: step_cores.min(cores - own_cores.min(cores)),
            gap: 0.0,
            bus: None,
        }
    }

    /// A window with noise.
    fn window(&mut self, workers: usize, seed: u64) -> StepWindow {
        self.windows += 1;
        // The sum of four uniform numbers is close enough to normal.
        let draw = |n: u64| {
            let bits = mix(seed ^ mix(4 * self.windows + n)) >> 11;
            bits as f64 / (1_u64 << 53) as f64 - 0.5
        };
        let factor = 1.0 + self.noise * (0..4).map(draw).sum::<f64>() * 1.73;
        let mut window = self.run(workers);
        window.step_s *= factor;
        window.wait_s *= factor;
        window
    }

    /// The shortest step of all numbers of workers.
    fn best_s(&self, most: usize) -> f64 {
        let steps = (1..=most).map(|n| self.run(n).step_s);
        steps.fold(f64::INFINITY, f64::min)
    }
}

/// Runs until the search settles. Returns its result and the number of changes.
fn settle(
    search: &mut WorkerSearch,
    on: &mut SimulatedPipeline,
    seed: u64,
) -> (SearchFinding, usize) {
    let most = 2 * on.cores;
    let mut moves = 0;
    for _ in 0..200 {
        let workers = search.workers();
        assert!((1..=most).contains(&workers), "{workers} of {most}");
        search.observe(on.window(workers, seed));
        moves += usize::from(search.workers() != workers);
        if let Some(finding) = search.finding() {
            assert_eq!(finding.workers, search.workers());
            return (finding, moves);
        }
    }
    panic!("not settled after 200 windows: {search:?}");
}

fn settle_search(on: &SimulatedPipeline) -> (SearchFinding, usize) {
    settle(
        &mut WorkerSearch::new(on.cores, 2 * on.cores),
        &mut on.clone(),
        1,
    )
}

#[test]
fn all_cores_work_if_decoding_limits() {
    for cores in [1, 2, 16] {
        let (finding, moves) = settle_search(&SimulatedPipeline::on(cores));

        assert_eq!((finding.workers, moves), (cores, 0), "{finding:?}");
        assert_eq!(finding.limit, LoopLimit::Workers);
    }
}

#[test]
fn cores_are_released_if_the_step_limits() {
    for (cores, step_s, workers) in [(2, 0.2, 1), (16, 0.02, 6), (16, 1.0, 1)] {
        let on = SimulatedPipeline {
            step_s,
            ..SimulatedPipeline::on(cores)
        };

        let (finding, _) = settle_search(&on);

        assert_eq!(finding.workers, workers, "{finding:?}");
        assert_eq!(finding.limit, LoopLimit::Step);
        assert!(
            finding
                .to_string()
                .contains("the step is the limit (waits 0.0 %")
        );
    }
}

#[test]
fn workers_without_bytes_are_parked_if_reading_limits() {
    let on = SimulatedPipeline {
        read_s: 0.05,
        ..SimulatedPipeline::on(8)
    };

    let (finding, _) = settle_search(&on);

    assert_eq!((finding.workers, finding.limit), (3, LoopLimit::Reading));
}

#[test]
fn a_step_that_needs_the_cores_gets_them() {
    let on = SimulatedPipeline {
        work_s: 0.03,
        step_s: 0.1,
        step_threads: 2.0,
        spoils: 0.2,
        ..SimulatedPipeline::on(2)
    };

    let (finding, _) = settle_search(&on);

    assert_eq!(finding.workers, 1, "{finding:?}");

    // Here one worker is too slow, and two cost less than waiting does.
    let on = SimulatedPipeline { work_s: 0.19, ..on };
    let (finding, _) = settle_search(&on);
    assert_eq!(finding.workers, 2, "{finding:?}");
}

#[test]
fn waiting_workers_may_outnumber_cores() {
    let on = SimulatedPipeline {
        work_s: 0.02,
        blocked_s: 0.1,
        ..SimulatedPipeline::on(4)
    };

    let (finding, _) = settle_search(&on);

    assert!(finding.workers > 6, "{finding:?}");
}

#[test]
fn noise_causes_no_lasting_move_and_none_once_settled() {
    for seed in 0..40 {
        let mut on = SimulatedPipeline {
            noise: 0.08,
            step_s: if seed % 2 == 0 { 0.04 } else { 0.2 },
            step_threads: 2.0,
            ..SimulatedPipeline::on(2)
        };
        let mut search = WorkerSearch::new(2, 4);
        let (finding, _) = settle(&mut search, &mut on, seed);
        assert!(on.run(finding.workers).step_s <= 1.05 * on.best_s(4));

        for _ in 0..1000 {
            search.observe(on.window(search.workers(), seed));
            assert_eq!(
                search.finding().map(|found| found.workers),
                Some(finding.workers)
            );
        }
    }
}

#[test]
fn a_lasting_change_begins_another_search_and_a_short_one_does_not() {
    let slow = SimulatedPipeline {
        step_s: 0.2,
        ..SimulatedPipeline::on(4)
    };
    let quick = SimulatedPipeline {
        step_s: 0.03,
        ..slow.clone()
    };
    let mut search = WorkerSearch::new(4, 8);
    let mut on = slow.clone();
    let (first, _) = settle(&mut search, &mut on, 1);
    assert_eq!(first.workers, 1);

    for _ in 0..5 {
        search.observe(quick.run(search.workers()));
        assert!(search.finding().is_some(), "it may be over soon");
    }
    search.observe(slow.run(search.workers()));
    for _ in 0..10 {
        search.observe(quick.run(search.workers()));
    }
    assert!(search.finding().is_none());
    let (second, _) = settle(&mut search, &mut quick.clone(), 1);
    assert_eq!(second.workers, 4, "{second:?}");

    for _ in 0..10 {
        search.observe(slow.run(search.workers()));
    }
    let (third, _) = settle(&mut search, &mut slow.clone(), 1);
    assert_eq!(third.workers, 1, "{third:?}");
}

#[test]
fn searches_become_rare_if_the_load_keeps_changing() {
    let mut search = WorkerSearch::new(2, 4);
    let mut on = SimulatedPipeline::on(2);
    let mut searches = 0;
    for round in 0..3000 {
        // Twelve windows of each load; two workers are right for both.
        on.work_s = if round / 12 % 2 == 0 { 0.1 } else { 0.2 };
        let settled = search.finding().is_some();
        search.observe(on.run(search.workers()));
        searches += usize::from(settled && search.finding().is_none());
    }

    assert!((1..20).contains(&searches), "{searches}");
}

#[test]
fn the_number_follows_a_change_of_cores() {
    let mut search = WorkerSearch::new(8, 16);
    let (finding, _) = settle(&mut search, &mut SimulatedPipeline::on(8), 1);
    assert_eq!(finding.workers, 8);

    search.set_cores(2);
    assert_eq!((search.workers(), search.finding()), (2, None));
    let (finding, _) = settle(&mut search, &mut SimulatedPipeline::on(2), 1);
    assert_eq!((finding.workers, finding.cores), (2, 2));

    search.set_cores(8);
    let (finding, _) = settle(&mut search, &mut SimulatedPipeline::on(8), 1);
    assert_eq!(finding.workers, 8);
}

#[test]
fn a_search_ends_soon_and_close_to_the_best_for_any_pipeline() {
    for seed in 0..400_u64 {
        let draw = |n: u64| (mix(seed << 8 | n) >> 11) as f64 / (1_u64 << 53) as f64;
        let cores = 1 + (draw(0) * 24.0) as usize;
        let on = SimulatedPipeline {
            work_s: 0.01 + draw(1),
            blocked_s: if draw(2) < 0.3 { draw(3) } else { 0.0 },
            read_s: if draw(4) < 0.3 { draw(5) / 4.0 } else { 0.0 },
            step_s: if draw(6) < 0.6 { draw(7) / 2.0 } else { 0.0 },
            noise: 0.02 * draw(8),
            ..SimulatedPipeline::on(cores)
        };
        let mut run = on.clone();

        let (finding, moves) = settle(&mut WorkerSearch::new(cores, 2 * cores), &mut run, seed);

        let (step, best) = (on.run(finding.workers).step_s, on.best_s(2 * cores));
        assert!(step <= 1.06 * best, "{step} of {best}: {finding:?} {on:?}");
        assert!(
            moves <= 130 && run.windows <= 150,
            "{moves} moves: {finding:?}"
        );
    }
}
