"""Verdicts for given figures: each limit and its texts."""

from dataclasses import replace

import pytest

from infeed.watching.figures import (
    Ceiling,
    DurationSummary,
    Figures,
    LockShares,
    ProcessorLoad,
    Throughput,
)
from infeed.watching.report import WatchReport

IDLE = ProcessorLoad(
    usable=8, loop=0.5, loop_waiting=0, loop_stepping=0.6, threads=0, python=0,
    children=2, machine=2.6,
)  # fmt: skip


def verdict(measured: Figures):
    return WatchReport(measured).verdict


def times(mean_s: float, count: int = 100, error_s: float = 1e-5) -> DurationSummary:
    return DurationSummary(
        count, mean_s * count, mean_s, mean_s, 1.2 * mean_s, mean_s, error_s
    )


def figures(wait_s: float, step_s: float, **others) -> Figures:
    """A hundred batches of 32."""
    given = {
        "loader": "Made", "batches": 100, "samples": 3200, "epochs": 1,
        "first_batch_s": 0.5, "seam_s": 0.0, "wait": times(wait_s),
        "step": times(step_s), "alone": None, "lock": LockShares(0, 0, None, 0),
        "processor": IDLE,
    }  # fmt: skip
    return Figures(**given | others)


def alone(step_s: float, error_s: float = 1e-5) -> Ceiling:
    return Ceiling(times(step_s, 50, error_s), 0.5, True)


def test_rates_follow_from_the_times():
    found = figures(0.006, 0.010)

    assert found.rate == pytest.approx(32 / 0.016)
    assert found.step_rate == pytest.approx(3200)
    assert found.waiting == pytest.approx(0.375)


def test_waiting_with_idle_cores_suggests_workers():
    found = verdict(figures(0.006, 0.010))

    assert (found.limit, found.next_limit) == ("loader", "step")
    assert found.rate == pytest.approx(2000)
    assert found.next_rate == pytest.approx(3200)
    assert any("more workers" in line and "1.6" in line for line in found.advice), found
    assert not any("more workers" in line for line in found.not_worth)


def test_waiting_with_all_cores_busy_suggests_less_work():
    busy = replace(IDLE, children=7.5, machine=8)

    found = verdict(figures(0.006, 0.010, processor=busy))

    assert any("less work per sample" in line for line in found.advice)
    assert any("more workers: 8.0 of 8" in line for line in found.not_worth)


def test_without_sampling_no_core_is_reported_as_idle():
    found = figures(0.006, 0.010, processor=replace(IDLE, sampled=False), lock=None)

    assert any("if cores are idle" in line for line in verdict(found).advice)
    assert "processor:" not in str(WatchReport(found))


def test_a_busy_machine_gets_the_advice_to_measure_again():
    busy = replace(IDLE, machine=8)

    found = verdict(figures(0.006, 0.010, processor=busy))

    assert any("other programs" in line for line in found.advice)


def test_a_loader_that_works_between_steps_gets_the_advice_to_overlap():
    inline = replace(IDLE, children=0, loop=1.0, loop_waiting=1.0)

    found = verdict(figures(0.010, 0.010, processor=inline))

    assert any(
        "during the step" in line and "20 ms -> 10 ms" in line for line in found.advice
    )


def test_waiting_for_code_that_holds_the_lock_is_attributed_to_python():
    found = verdict(figures(0.006, 0.010, lock=LockShares(0.95, 0.3, None, 0)))

    assert found.limit == "python"
    assert any("more threads in Python" in line for line in found.not_worth)


def test_a_step_slowed_by_the_loader_is_interference():
    found = verdict(figures(0.0001, 0.013, alone=alone(0.010)))

    assert found.limit == "interference"
    assert "13 ms with the loader, 10 ms alone" in found.claim
    assert found.next_rate == pytest.approx(3200, rel=0.02)


def test_interference_through_the_lock_is_attributed_to_python():
    threads = replace(IDLE, threads=0.9, python=0.9, children=0)

    found = verdict(
        figures(
            0.0001,
            0.013,
            alone=alone(0.010),
            lock=LockShares(0, 0.9, 0.1, 0.005),
            processor=threads,
        )
    )

    assert found.limit == "python"
    assert "through Python's lock" in found.claim


def test_a_lock_that_the_step_itself_holds_is_not_blamed():
    threads = replace(IDLE, threads=0.9, python=0.9, loop_stepping=0.95)

    found = verdict(
        figures(
            0.0001,
            0.013,
            alone=alone(0.010),
            lock=LockShares(0, 0.95, 0.95, 0.005),
            processor=threads,
        )
    )

    assert found.limit == "interference"


def test_a_difference_within_the_noise_is_no_interference():
    found = figures(0.0001, 0.011, alone=alone(0.010, error_s=0.0005))

    assert found.slowdown == 0
    assert verdict(found).limit == "step"


def test_a_wait_of_a_few_percent_is_no_tie():
    found = verdict(figures(0.0003, 0.010))

    assert (found.limit, found.next_limit, found.tie) == ("step", None, False)
    assert "the step limits" in found.claim


def test_the_predicted_rate_is_capped_by_the_step():
    throughput = Throughput(9000.0, 45000, 5.0, 0.1, "infeed.Pipeline(...)")

    found = verdict(figures(0.006, 0.010, throughput=throughput))

    assert found.advice[0] == (
        "infeed: min(step 3200, infeed 9000) = 3200 samples/s, 1.60x, waiting 0 %"
    )


def test_a_slower_infeed_is_reported_as_slower():
    throughput = Throughput(1600.0, 8000, 5.0, 0.1, "infeed.Pipeline(...)")

    found = verdict(figures(0.006, 0.010, throughput=throughput))

    assert "= 1600 samples/s, 0.80x, waiting 50 %" in found.not_worth[0]


def test_the_text_names_claim_evidence_capacity_and_advice():
    text = str(WatchReport(figures(0.00601, 0.010)))

    lines = text.splitlines()
    assert lines[0] == "the loader limits this run: the loop waited 38 % of its time"
    capacity = "the loop: 32 / (6.01 ms wait + 10 ms step) = 1999 samples/s"
    assert f"  capacity   {capacity}" in lines
    for title in ("  evidence   ", "  try        ", "  not worth  "):
        assert title in text
