use super::super::duel::{ROUND, ROUNDS};
use super::*;
use Placement::{Device, Host, Resize};

/// A simulated run with a step duration per placement.
struct Run {
    judge: Judge,
    turns: Vec<Placement>,
}

/// Relative bytes per row on the bus: the host sends 2-byte floats, the device gets bytes, and a
/// resize needs whole crops.
fn option(placement: Placement) -> PlacementOption {
    let row_bytes = match placement {
        Host => 2000,
        Resize => 4000,
        _ => 1000,
    };
    PlacementOption {
        placement,
        row_bytes,
    }
}

impl Run {
    fn of(options: &[Placement]) -> Run {
        Run {
            judge: Judge::new(options.iter().map(|placement| option(*placement)).collect()),
            turns: Vec::new(),
        }
    }

    /// A pipeline without a resize.
    fn of_two() -> Run {
        Run::of(&[Device, Host])
    }

    fn of_three() -> Run {
        Run::of(&[Device, Host, Resize])
    }

    /// Takes a turn, unless the trial has settled.
    fn turn(&mut self, of: impl Fn(Placement, usize) -> PlacementTurn) {
        let placement = self.judge.placement();
        self.judge.observe(of(placement, self.turns.len()));
        self.turns.push(placement);
    }

    fn until_settled(
        &mut self,
        of: impl Fn(Placement, usize) -> PlacementTurn,
    ) -> PlacementFinding {
        let from = self.turns.len();
        while self.judge.finding().is_none() {
            let most = from + 2 * ROUND * ROUNDS;
            assert!(self.turns.len() < most, "it does not end");
            self.turn(&of);
        }
        self.judge.finding().expect("it has settled").clone()
    }

    /// Takes turns until another trial begins, and until it settles.
    fn again(&mut self, of: impl Fn(Placement, usize) -> PlacementTurn) -> PlacementFinding {
        while self.judge.finding().is_some() {
            self.turn(&of);
        }
        self.turns.clear();
        self.until_settled(of)
    }
}

fn turn(step_s: f64, wait: f64) -> PlacementTurn {
    PlacementTurn {
        step_s,
        wait,
        bus: None,
    }
}

/// Turns with these step durations on host and device.
fn of(host_s: f64, device_s: f64, wait: f64) -> impl Fn(Placement, usize) -> PlacementTurn {
    of_all([host_s, device_s, f64::INFINITY], wait)
}

/// Turns with these step durations on host, device, and device with the resize.
fn of_all(steps_s: [f64; 3], wait: f64) -> impl Fn(Placement, usize) -> PlacementTurn {
    move |placement, _| {
        let step_s = steps_s[usize::from(work(placement))];
        assert!(step_s.is_finite(), "{placement:?} has no turn");
        turn(step_s, wait)
    }
}

/// The choice, the reason against the first of the others, and the others.
fn summary(finding: &PlacementFinding) -> (Placement, Option<PreferenceReason>, Vec<Placement>) {
    let others = finding.others.iter().map(|other| other.placement);
    let why = finding.others.first().map(|other| other.why);
    (finding.choice, why, others.collect())
}

#[test]
fn the_shorter_steps_win_after_one_round() {
    let mut run = Run::of_two();

    let finding = run.until_settled(of(0.08, 0.1, 0.2));

    assert_eq!(run.turns, [Device, Host, Host, Device]);
    assert_eq!(
        summary(&finding),
        (Host, Some(PreferenceReason::Shorter), vec![Device])
    );
    assert!((finding.others[0].ratio - 1.25).abs() < 1e-9);
    assert!((finding.step_s - 0.08).abs() < 1e-9);
    assert_eq!(run.judge.placement(), Host);
    let text = finding.to_string();
    let line = "placement: host; steps take 80.0 ms, device takes 1.25 times as long";
    assert_eq!(text, line);

    let finding = Run::of_two().until_settled(of(0.11, 0.1, 0.0));
    assert_eq!(
        summary(&finding),
        (Device, Some(PreferenceReason::Shorter), vec![Host])
    );
}

#[test]
fn a_host_that_limits_leaves_the_resize_to_the_device_too() {
    let mut run = Run::of_three();

    let finding = run.until_settled(of_all([0.13, 0.12, 0.08], 0.4));

    let turns = [Device, Host, Host, Device, Device, Resize, Resize, Device];
    assert_eq!(run.turns, turns);
    let others = vec![Device, Host];
    assert_eq!(
        summary(&finding),
        (Resize, Some(PreferenceReason::Shorter), others)
    );
    let text = finding.to_string();
    let line = "placement: device-resize; steps take 80.0 ms, device takes 1.50 times as long, \
                host takes 1.62 times as long";
    assert!(text.starts_with(line), "{text}");
    assert!(finding.untried.is_empty());
}

#[test]
fn a_tie_of_two_placements_is_no_tie_with_a_better_third() {
    let finding = Run::of_three().until_settled(of_all([0.1, 0.1004, 0.05], 0.4));

    assert_eq!(finding.choice, Resize);
    assert!(
        finding
            .others
            .iter()
            .all(|other| other.why == PreferenceReason::Shorter)
    );
}

#[test]
fn a_bus_that_limits_gets_the_fewest_bytes() {
    let full = |placement, _| {
        let step_s = [0.2, 0.1, 0.4][usize::from(work(placement))];
        PlacementTurn {
            bus: Some(1.0),
            ..turn(step_s, 0.8)
        }
    };
    let mut run = Run::of_three();

    let finding = run.until_settled(full);

    // Four times the bytes would take four times as long, so the resize is not tried.
    assert_eq!(run.turns, [Device, Host, Host, Device]);
    assert_eq!(
        summary(&finding),
        (Device, Some(PreferenceReason::Shorter), vec![Host])
    );
    assert_eq!(finding.untried, [(Resize, NoTurnReason::Bus)]);
    let text = finding.to_string();
    let end = "; device-resize was not tried because the bus has no capacity for its bytes";
    assert!(text.ends_with(end), "{text}");

    // If the bus load is unknown, a turn finds out.
    let mut run = Run::of_three();
    let finding = run.until_settled(of_all([0.2, 0.1, 0.4], 0.8));
    assert_eq!(run.turns[4..], [Device, Resize]);
    assert_eq!(summary(&finding).0, Device);
}

#[test]
fn a_resize_is_tried_if_the_bus_has_capacity() {
    let world = |bus: f64| {
        move |placement, _| PlacementTurn {
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

    // A placement with even more work for the device has no turn.
    assert_eq!(run.turns, [Device, Host, Host, Device]);
    assert_eq!(
        summary(&finding),
        (Host, Some(PreferenceReason::Shorter), vec![Device])
    );
    assert_eq!(finding.untried, [(Resize, NoTurnReason::Beyond)]);
}

#[test]
fn without_waiting_the_fewest_bytes_are_sent_and_no_resize_is_tried() {
    let mut run = Run::of_three();

    // The kernel takes 0.04 % of a step.
    let finding = run.until_settled(of(0.1, 0.10004, 0.0));

    assert_eq!(run.turns, [Device, Host, Host, Device]);
    assert_eq!(
        summary(&finding),
        (Device, Some(PreferenceReason::Fewer), vec![Host])
    );
    assert_eq!(finding.untried, [(Resize, NoTurnReason::Idle)]);
    let text = finding.to_string();
    let end = "so the placement with fewer bytes on the bus is used; device-resize was not tried \
               because nothing waits for the host";
    assert!(text.ends_with(end), "{text}");

    // The host's steps are longer, and the device's steps wait for nothing.
    let uneven = |placement, _| match placement {
        Host => turn(0.2, 0.4),
        _ => turn(0.1, 0.0),
    };
    let finding = Run::of_three().until_settled(uneven);
    assert_eq!(
        summary(&finding),
        (Device, Some(PreferenceReason::Shorter), vec![Host])
    );
    assert_eq!(finding.untried, [(Resize, NoTurnReason::Idle)]);
}

#[test]
fn a_tie_goes_to_the_fewest_bytes() {
    let finding = Run::of_three().until_settled(of_all([0.0996, 0.1, 0.1004], 0.02));

    assert_eq!(finding.choice, Device);
    assert!(
        finding
            .others
            .iter()
            .all(|other| other.why == PreferenceReason::Fewer)
    );
    let text = finding.to_string();
    let line = "placement: device; steps take 100.0 ms, as long as with host and device-resize, so \
                the placement with fewer bytes on the bus is used";
    assert_eq!(text, line);

    // A kernel of 1 % of a step is no tie.
    assert_eq!(
        Run::of_two().until_settled(of(0.0099, 0.01, 0.0)).choice,
        Host
    );

    let some = Run::of_three().until_settled(of_all([0.1, 0.1, 0.13], 0.02));
    let text = some.to_string();
    assert_eq!(
        summary(&some),
        (Device, Some(PreferenceReason::Fewer), vec![Host, Resize])
    );
    let end = "so the placement with fewer bytes on the bus is used, device-resize takes 1.30 \
               times as long";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn a_resize_as_the_only_option_is_tried_if_the_run_waits_for_the_host() {
    // Bytes stay bytes, so the host sends fewer of them.
    let options = || {
        let host = PlacementOption {
            row_bytes: 1000,
            ..option(Host)
        };
        Judge::new(vec![host, option(Resize)])
    };
    let run = || Run {
        judge: options(),
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
    assert_eq!(summary(&finding), (Host, None, vec![]));
    let line = "placement: host; steps take 100.0 ms; device-resize was not tried because nothing \
                waits for the host";
    assert_eq!(finding.to_string(), line);

    let mut waits = run();
    let finding = waits.until_settled(world(0.2, 0.5));
    assert_eq!(waits.turns, [Host, Resize, Resize, Host]);
    assert_eq!(
        summary(&finding),
        (Resize, Some(PreferenceReason::Shorter), vec![Host])
    );

    let tie = run().until_settled(world(0.1, 0.5));
    assert_eq!(
        summary(&tie),
        (Host, Some(PreferenceReason::Fewer), vec![Resize])
    );
}

#[test]
fn a_placement_that_is_far_slower_has_one_turn() {
    let mut run = Run::of_three();

    let finding = run.until_settled(of_all([1.0, 0.1, 2.0], 0.9));

    assert_eq!(run.turns, [Device, Host, Device, Resize]);
    assert_eq!(
        summary(&finding),
        (Device, Some(PreferenceReason::Shorter), vec![Host, Resize])
    );
    assert!((finding.others[0].ratio - 10.0).abs() < 1e-9);
}

#[test]
fn drift_of_the_machine_is_no_difference() {
    let slower = |_, at| turn(0.1 * 1.02_f64.powi(i32::try_from(at).expect("few")), 0.0);
    let finding = Run::of_two().until_settled(slower);
    assert_eq!(summary(&finding).1, Some(PreferenceReason::Fewer));

    let waits = |_, at| turn(0.1 * 1.02_f64.powi(i32::try_from(at).expect("few")), 0.1);
    let finding = Run::of_three().until_settled(waits);
    assert_eq!(finding.choice, Device);
    assert!(
        finding
            .others
            .iter()
            .all(|other| other.why == PreferenceReason::Fewer)
    );
}

#[test]
fn noise_asks_for_more_rounds_and_a_disturbed_turn_does_not_decide() {
    // Turns differ by up to a tenth; the host's steps are a twentieth shorter.
    let noisy = |placement, at: usize| {
        let noise = [1.0, 1.1, 0.95, 1.0, 1.05, 0.97, 1.0, 1.04][at % 8];
        turn(if placement == Host { 0.095 } else { 0.1 } * noise, 0.0)
    };
    let mut run = Run::of_two();
    assert_eq!(run.until_settled(noisy).choice, Host);
    assert!(run.turns.len() > ROUND);

    // Without a difference, noise does not choose the placement that sends more bytes.
    let even = |_, at: usize| turn([0.1, 0.102, 0.099, 0.1, 0.101, 0.0985][at % 6], 0.0);
    assert_eq!(Run::of_two().until_settled(even).choice, Device);

    let disturbed = |placement, at| {
        let usual = if placement == Host { 0.09 } else { 0.1 };
        turn(if at == 1 { 2.0 * usual } else { usual }, 0.0)
    };
    assert_eq!(Run::of_two().until_settled(disturbed).choice, Host);
}

#[test]
fn the_same_times_lead_to_the_same_choice() {
    let steps = |placement, at: usize| {
        let noise = 1.0 + (infeed_core::random::mix(at as u64) % 100) as f64 / 1e3;
        turn(if placement == Host { 0.1 } else { 0.102 } * noise, 0.02)
    };

    let runs: Vec<PlacementFinding> = (0..3)
        .map(|_| Run::of_three().until_settled(steps))
        .collect();

    assert!(runs.windows(2).all(|two| two[0] == two[1]));
}

#[test]
fn another_trial_begins_after_a_lasting_change_and_not_after_a_short_one() {
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
fn the_choice_follows_a_changing_load_in_both_directions() {
    let mut run = Run::of_three();
    run.until_settled(of_all([0.13, 0.12, 0.08], 0.4));
    run.turn(of_all([0.13, 0.12, 0.08], 0.4));

    // The device limits now, and every kernel makes its step longer.
    let limited = of_all([0.2, 0.21, 0.25], 0.0);
    let finding = run.again(&limited);
    let down = [Resize, Device, Device, Resize, Device, Host, Host, Device];
    assert_eq!(run.turns, down);
    assert_eq!(
        summary(&finding),
        (Host, Some(PreferenceReason::Shorter), vec![Device, Resize])
    );
    run.turn(&limited);

    // A short step again.
    let finding = run.again(of_all([0.13, 0.12, 0.08], 0.4));
    let up = [Host, Device, Device, Host, Device, Resize, Resize, Device];
    assert_eq!(run.turns, up);
    assert_eq!(finding.choice, Resize);
}

#[test]
fn a_later_trial_compares_the_choice_only_with_its_neighbour() {
    let mut run = Run::of_three();
    run.until_settled(of_all([0.13, 0.12, 0.08], 0.4));
    run.turn(of_all([0.13, 0.12, 0.08], 0.4));

    let finding = run.again(of_all([f64::INFINITY, 0.24, 0.16], 0.4));

    assert_eq!(run.turns, [Resize, Device, Device, Resize]);
    assert_eq!(
        summary(&finding),
        (Resize, Some(PreferenceReason::Shorter), vec![Device])
    );
    assert_eq!(finding.untried, [(Host, NoTurnReason::Beyond)]);
}

#[test]
fn trials_that_change_nothing_become_rare() {
    let mut run = Run::of_two();
    run.until_settled(of(0.1, 0.05, 0.0));
    let mut waits = Vec::new();
    // Steps change permanently each time the choice has settled.
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
fn a_removed_placement_is_never_tried_again() {
    // During its turn.
    let world = of_all([0.13, 0.12, 0.08], 0.4);
    let mut run = Run::of_three();
    while run.judge.placement() != Resize {
        run.turn(&world);
    }
    assert!(run.judge.refuse(Resize));
    assert_eq!(run.judge.placement(), Device);
    let finding = run.until_settled(&world);
    assert_eq!(
        summary(&finding),
        (Device, Some(PreferenceReason::Shorter), vec![Host])
    );
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

    // As the current placement of another trial.
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
fn the_last_placement_cannot_be_removed() {
    let mut run = Run::of(&[Host, Resize]);
    assert!(run.judge.refuse(Resize));
    let finding = run.until_settled(of(0.1, f64::INFINITY, 0.5));
    assert_eq!(summary(&finding), (Host, None, vec![]));

    assert!(!run.judge.refuse(Host));
    for change in 1..40 {
        run.turn(of(0.1 * f64::from(change), f64::INFINITY, 0.5));
        assert!(run.judge.finding().is_some());
    }
}
