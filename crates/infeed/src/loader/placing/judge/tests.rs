use super::super::duel::{ROUND, ROUNDS};
use super::*;
use Placement::{Device, Host, Resize};

/// A run in which steps take so long with each placement.
struct Run {
    judge: Judge,
    turns: Vec<Placement>,
}

/// Ways of 224x224 floats: twice the bytes of two-byte ones, four times those of bytes.
fn way(placement: Placement) -> Way {
    let row_bytes = match placement {
        Host => 2000,
        Resize => 4000,
        _ => 1000,
    };
    Way {
        placement,
        row_bytes,
    }
}

impl Run {
    fn of(ways: &[Placement]) -> Run {
        Run {
            judge: Judge::new(ways.iter().map(|placement| way(*placement)).collect()),
            turns: Vec::new(),
        }
    }

    /// Of a pipeline that has no resize.
    fn of_two() -> Run {
        Run::of(&[Device, Host])
    }

    fn of_three() -> Run {
        Run::of(&[Device, Host, Resize])
    }

    /// Takes a turn, if what was found does not end the trial before.
    fn turn(&mut self, of: impl Fn(Placement, usize) -> Turn) {
        let placement = self.judge.placement();
        self.judge.observe(of(placement, self.turns.len()));
        self.turns.push(placement);
    }

    fn until_settled(&mut self, of: impl Fn(Placement, usize) -> Turn) -> Finding {
        let from = self.turns.len();
        while self.judge.finding().is_none() {
            let most = from + 2 * ROUND * ROUNDS;
            assert!(self.turns.len() < most, "it does not end");
            self.turn(&of);
        }
        self.judge.finding().expect("it has settled").clone()
    }

    /// Turns until it tries again, and those until it settled.
    fn again(&mut self, of: impl Fn(Placement, usize) -> Turn) -> Finding {
        while self.judge.finding().is_some() {
            self.turn(&of);
        }
        self.turns.clear();
        self.until_settled(of)
    }
}

fn turn(step_s: f64, wait: f64) -> Turn {
    Turn {
        step_s,
        wait,
        bus: None,
    }
}

/// Steps of a host and a device that take so long.
fn of(host_s: f64, device_s: f64, wait: f64) -> impl Fn(Placement, usize) -> Turn {
    of_all([host_s, device_s, f64::INFINITY], wait)
}

/// Steps that take so long with the host, the device, and the device with the resize.
fn of_all(steps_s: [f64; 3], wait: f64) -> impl Fn(Placement, usize) -> Turn {
    move |placement, _| {
        let step_s = steps_s[usize::from(work(placement))];
        assert!(step_s.is_finite(), "{placement:?} has no turn");
        turn(step_s, wait)
    }
}

/// Who was chosen, why before the first of the others, and the others.
fn told(finding: &Finding) -> (Placement, Option<Why>, Vec<Placement>) {
    let others = finding.others.iter().map(|other| other.placement);
    let why = finding.others.first().map(|other| other.why);
    (finding.choice, why, others.collect())
}

#[test]
fn the_shorter_steps_win_after_one_round_that_begins_and_ends_with_the_present() {
    let mut run = Run::of_two();

    let finding = run.until_settled(of(0.08, 0.1, 0.2));

    assert_eq!(run.turns, [Device, Host, Host, Device]);
    assert_eq!(told(&finding), (Host, Some(Why::Shorter), vec![Device]));
    assert!((finding.others[0].ratio - 1.25).abs() < 1e-9);
    assert!((finding.step_s - 0.08).abs() < 1e-9);
    assert_eq!(run.judge.placement(), Host);
    let text = finding.to_string();
    let line = "placement: host; its steps take 80.0 ms, those of device 1.25 times as long";
    assert_eq!(text, line);

    let finding = Run::of_two().until_settled(of(0.11, 0.1, 0.0));
    assert_eq!(told(&finding), (Device, Some(Why::Shorter), vec![Host]));
}

#[test]
fn a_host_that_limits_leaves_the_resize_to_the_device_too() {
    let mut run = Run::of_three();

    let finding = run.until_settled(of_all([0.13, 0.12, 0.08], 0.4));

    let turns = [Device, Host, Host, Device, Device, Resize, Resize, Device];
    assert_eq!(run.turns, turns);
    let others = vec![Device, Host];
    assert_eq!(told(&finding), (Resize, Some(Why::Shorter), others));
    let text = finding.to_string();
    let line = "placement: device-resize; its steps take 80.0 ms, those of device 1.50 times as long, \
                those of host 1.62 times as long";
    assert!(text.starts_with(line), "{text}");
    assert!(finding.untried.is_empty());
}

#[test]
fn a_tie_of_host_and_device_is_none_with_what_beats_both() {
    let finding = Run::of_three().until_settled(of_all([0.1, 0.101, 0.05], 0.4));

    assert_eq!(finding.choice, Resize);
    assert!(finding.others.iter().all(|other| other.why == Why::Shorter));
}

#[test]
fn a_bus_that_limits_gets_the_fewest_bytes() {
    let full = |placement, _| {
        let step_s = [0.2, 0.1, 0.4][usize::from(work(placement))];
        Turn {
            bus: Some(1.0),
            ..turn(step_s, 0.8)
        }
    };
    let mut run = Run::of_three();

    let finding = run.until_settled(full);

    // Four times the bytes would take four times as long, so that is not tried.
    assert_eq!(run.turns, [Device, Host, Host, Device]);
    assert_eq!(told(&finding), (Device, Some(Why::Shorter), vec![Host]));
    assert_eq!(finding.untried, [(Resize, Untried::Bus)]);
    let text = finding.to_string();
    let end = "; device-resize was not tried, since the bus has no room for its bytes";
    assert!(text.ends_with(end), "{text}");

    // Where nobody knows how full it is, a turn shows it.
    let mut run = Run::of_three();
    let finding = run.until_settled(of_all([0.2, 0.1, 0.4], 0.8));
    assert_eq!(run.turns[4..], [Device, Resize]);
    assert_eq!(told(&finding).0, Device);
}

#[test]
fn a_bus_with_room_for_its_bytes_is_no_reason_against_a_resize() {
    let world = |bus: f64| {
        move |placement, _| Turn {
            bus: Some(bus),
            ..of_all([0.13, 0.12, 0.08], 0.4)(placement, 0)
        }
    };

    assert_eq!(Run::of_three().until_settled(world(0.2)).choice, Resize);
    assert_eq!(Run::of_three().until_settled(world(0.25)).choice, Device);
}

#[test]
fn a_device_that_limits_gets_the_least_work() {
    let mut run = Run::of_three();

    let finding = run.until_settled(of(0.08, 0.1, 0.3));

    // What leaves it still more has no turn.
    assert_eq!(run.turns, [Device, Host, Host, Device]);
    assert_eq!(told(&finding), (Host, Some(Why::Shorter), vec![Device]));
    assert_eq!(finding.untried, [(Resize, Untried::Beyond)]);
}

#[test]
fn a_loop_that_waits_for_nothing_has_the_host_do_the_work_and_no_turn_of_a_resize() {
    let mut run = Run::of_three();

    let finding = run.until_settled(of(0.101, 0.1, 0.0));

    assert_eq!(run.turns, [Device, Host, Host, Device]);
    assert_eq!(told(&finding), (Host, Some(Why::Spared), vec![Device]));
    assert_eq!(finding.untried, [(Resize, Untried::Idle)]);
    let text = finding.to_string();
    let end =
        "so the device is spared; device-resize was not tried, since nothing waits for the host";
    assert!(text.ends_with(end), "{text}");

    // Steps of the host are longer, and those of the device wait for nothing.
    let uneven = |placement, _| match placement {
        Host => turn(0.2, 0.4),
        _ => turn(0.1, 0.0),
    };
    let finding = Run::of_three().until_settled(uneven);
    assert_eq!(told(&finding), (Device, Some(Why::Shorter), vec![Host]));
    assert_eq!(finding.untried, [(Resize, Untried::Idle)]);
}

#[test]
fn a_tie_of_loops_that_wait_goes_to_the_fewest_bytes() {
    let finding = Run::of_three().until_settled(of_all([0.099, 0.1, 0.101], 0.02));

    assert_eq!(finding.choice, Device);
    assert!(finding.others.iter().all(|other| other.why == Why::Fewer));
    let text = finding.to_string();
    let line = "placement: device; steps take 100.0 ms, as long as with host and device-resize, and \
                wait (2.0 % of the time), so the bus is spared";
    assert_eq!(text, line);

    // Who waited with one of them waited.
    let one = |placement, _| turn(0.1, if placement == Host { 0.3 } else { 0.0 });
    assert_eq!(Run::of_two().until_settled(one).choice, Device);

    let some = Run::of_three().until_settled(of_all([0.1, 0.1, 0.13], 0.02));
    let text = some.to_string();
    assert_eq!(told(&some), (Device, Some(Why::Fewer), vec![Host, Resize]));
    let end = "so the bus is spared, those of device-resize 1.30 times as long";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn where_only_the_resize_can_be_the_devices_it_is_tried_if_the_host_is_waited_for() {
    // Bytes stay bytes, so that the host sends fewer of them.
    let ways = || {
        let host = Way {
            row_bytes: 1000,
            ..way(Host)
        };
        Judge::new(vec![host, way(Resize)])
    };
    let run = || Run {
        judge: ways(),
        turns: Vec::new(),
    };
    let world = |host_s, wait| {
        move |placement, _| match placement {
            Host => turn(host_s, wait),
            _ => turn(0.1, wait),
        }
    };

    let mut idle = run();
    let finding = idle.until_settled(world(0.1, 0.0));
    assert_eq!(idle.turns, [Host]);
    assert_eq!(told(&finding), (Host, None, vec![]));
    let line = "placement: host; its steps take 100.0 ms; device-resize was not tried, since nothing \
                waits for the host";
    assert_eq!(finding.to_string(), line);

    let mut waits = run();
    let finding = waits.until_settled(world(0.2, 0.5));
    assert_eq!(waits.turns, [Host, Resize, Resize, Host]);
    assert_eq!(told(&finding), (Resize, Some(Why::Shorter), vec![Host]));

    let tie = run().until_settled(world(0.1, 0.5));
    assert_eq!(told(&tie), (Host, Some(Why::Fewer), vec![Resize]));
}

#[test]
fn a_placement_that_is_far_slower_has_one_turn() {
    let mut run = Run::of_three();

    let finding = run.until_settled(of_all([1.0, 0.1, 2.0], 0.9));

    assert_eq!(run.turns, [Device, Host, Device, Resize]);
    assert_eq!(
        told(&finding),
        (Device, Some(Why::Shorter), vec![Host, Resize])
    );
    assert!((finding.others[0].ratio - 10.0).abs() < 1e-9);
}

#[test]
fn drift_of_the_machine_is_no_difference() {
    let slower = |_, at| turn(0.1 * 1.02_f64.powi(i32::try_from(at).expect("few")), 0.0);
    let finding = Run::of_two().until_settled(slower);
    assert_eq!(told(&finding).1, Some(Why::Spared));

    let waits = |_, at| turn(0.1 * 1.02_f64.powi(i32::try_from(at).expect("few")), 0.1);
    let finding = Run::of_three().until_settled(waits);
    assert_eq!(finding.choice, Device);
    assert!(finding.others.iter().all(|other| other.why == Why::Fewer));
}

#[test]
fn noise_asks_for_more_rounds_and_a_disturbed_turn_does_not_decide() {
    // With each other's, turns differ by a tenth; the host's are a twentieth shorter.
    let noisy = |placement, at: usize| {
        let noise = [1.0, 1.1, 0.95, 1.0, 1.05, 0.97, 1.0, 1.04][at % 8];
        turn(if placement == Host { 0.095 } else { 0.1 } * noise, 0.0)
    };
    let mut run = Run::of_two();
    run.until_settled(noisy);
    assert!(run.turns.len() > ROUND);

    let disturbed = |placement, at| {
        let usual = if placement == Host { 0.09 } else { 0.1 };
        turn(if at == 1 { 2.0 * usual } else { usual }, 0.0)
    };
    assert_eq!(Run::of_two().until_settled(disturbed).choice, Host);
}

#[test]
fn the_same_times_lead_to_the_same_choice() {
    let steps = |placement, at: usize| {
        let noise = 1.0 + (crate::random::mix(at as u64) % 100) as f64 / 1e3;
        turn(if placement == Host { 0.1 } else { 0.102 } * noise, 0.02)
    };

    let runs: Vec<Finding> = (0..3)
        .map(|_| Run::of_three().until_settled(steps))
        .collect();

    assert!(runs.windows(2).all(|two| two[0] == two[1]));
}

#[test]
fn another_trial_begins_with_another_step_that_lasts_and_not_with_a_moment() {
    let mut run = Run::of_two();
    run.until_settled(of(0.1, 0.05, 0.0));
    let calm = of(0.1, 0.05, 0.0);
    let changed = of(0.2, 0.3, 0.0);

    for at in 0..192 {
        match at % 12 {
            0..3 | 11 => run.turn(&calm),
            _ => run.turn(&changed),
        }
        assert!(run.judge.finding().is_some(), "after {at}");
    }
    for _ in 0..LASTING {
        run.turn(&changed);
    }

    assert!(run.judge.finding().is_none());
    assert_eq!(run.judge.placement(), Device, "the present goes first");
    assert_eq!(run.until_settled(&changed).choice, Host);
}

#[test]
fn a_load_that_changes_is_followed_way_by_way_in_both_directions() {
    let mut run = Run::of_three();
    run.until_settled(of_all([0.13, 0.12, 0.08], 0.4));
    run.turn(of_all([0.13, 0.12, 0.08], 0.4));

    // The step takes longer than anything before it: all are as good, and the device has less to do.
    let finding = run.again(of_all([0.2, 0.2, 0.2], 0.0));
    let down = [Resize, Device, Device, Resize, Device, Host, Host, Device];
    assert_eq!(run.turns, down);
    assert_eq!(
        told(&finding),
        (Host, Some(Why::Spared), vec![Device, Resize])
    );
    let text = finding.to_string();
    let line = "placement: host; steps take 200.0 ms, as long as with device and device-resize, and do \
                not wait, so the device is spared";
    assert_eq!(text, line);
    run.turn(of_all([0.2, 0.2, 0.2], 0.0));

    // And a short step again.
    let finding = run.again(of_all([0.13, 0.12, 0.08], 0.4));
    let up = [Host, Device, Device, Host, Device, Resize, Resize, Device];
    assert_eq!(run.turns, up);
    assert_eq!(finding.choice, Resize);
}

#[test]
fn what_is_kept_in_another_trial_is_held_against_its_neighbour_alone() {
    let mut run = Run::of_three();
    run.until_settled(of_all([0.13, 0.12, 0.08], 0.4));
    run.turn(of_all([0.13, 0.12, 0.08], 0.4));

    let finding = run.again(of_all([f64::INFINITY, 0.24, 0.16], 0.4));

    assert_eq!(run.turns, [Resize, Device, Device, Resize]);
    assert_eq!(told(&finding), (Resize, Some(Why::Shorter), vec![Device]));
    assert_eq!(finding.untried, [(Host, Untried::Beyond)]);
}

#[test]
fn trials_that_change_nothing_become_rare() {
    let mut run = Run::of_two();
    run.until_settled(of(0.1, 0.05, 0.0));
    let mut waits = Vec::new();
    // Steps change for good whenever it has settled.
    for change in 1..6 {
        let steps = of(0.1 * f64::from(change), 0.05 * f64::from(change), 0.0);
        let next = of(
            0.1 * f64::from(2 * change),
            0.05 * f64::from(2 * change),
            0.0,
        );
        run.turn(&steps);
        let from = run.turns.len();
        while run.judge.finding().is_some() {
            run.turn(&next);
        }
        waits.push(run.turns.len() - from);
        run.until_settled(&next);
    }

    assert_eq!(waits, [10, 20, 40, 80, 80]);
}

#[test]
fn another_limit_is_a_reason_to_try_again() {
    let mut run = Run::of_two();
    run.until_settled(of(0.1, 0.05, 0.0));
    run.turn(of(0.1, 0.05, 0.0));

    for _ in 0..LASTING {
        run.turn(of(0.1, 0.05, 0.3));
    }

    assert!(run.judge.finding().is_none());
}

#[test]
fn a_way_that_is_refused_is_never_taken_again_and_the_trial_goes_on_without_it() {
    // While it has its turn.
    let world = of_all([0.13, 0.12, 0.08], 0.4);
    let mut run = Run::of_three();
    while run.judge.placement() != Resize {
        run.turn(&world);
    }
    assert!(run.judge.refuse(Resize));
    assert_eq!(run.judge.placement(), Device);
    let finding = run.until_settled(&world);
    assert_eq!(told(&finding), (Device, Some(Why::Shorter), vec![Host]));
    assert!(finding.untried.is_empty());
    run.turn(&world);
    let finding = run.again(of_all([0.3, 0.3, f64::INFINITY], 0.4));
    assert_eq!(finding.choice, Device);

    // After it was chosen.
    let mut run = Run::of_three();
    run.until_settled(&world);
    assert!(run.judge.refuse(Resize));
    assert_eq!((run.judge.finding(), run.judge.placement()), (None, Device));
    assert_eq!(run.until_settled(&world).choice, Device);

    // While it is the present one of another trial.
    let mut run = Run::of_three();
    run.until_settled(&world);
    run.turn(&world);
    while run.judge.finding().is_some() {
        run.turn(of_all([0.3, 0.3, 0.3], 0.4));
    }
    assert!(run.judge.refuse(Resize));
    assert_eq!(run.judge.placement(), Device);
    assert_eq!(run.until_settled(&world).choice, Device);
}

#[test]
fn the_only_way_that_is_left_is_refused_by_nobody_and_tried_no_more() {
    let mut run = Run::of(&[Host, Resize]);
    assert!(run.judge.refuse(Resize));
    let finding = run.until_settled(of(0.1, f64::INFINITY, 0.5));
    assert_eq!(told(&finding), (Host, None, vec![]));

    assert!(!run.judge.refuse(Host));
    for change in 1..40 {
        run.turn(of(0.1 * f64::from(change), f64::INFINITY, 0.5));
        assert!(run.judge.finding().is_some());
    }
}
