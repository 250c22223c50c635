"""Feeders, which make batches on other machines; here in other processes."""

import urllib.request

import pytest
from conftest import wait_until
from feeding import TOKEN, feeding, wait_for_feeders
from test_examples import classification_pipeline

import infeed


@pytest.fixture
def feeder_process(classification, tmp_path):
    """A pipeline, and the address of a process that feeds it."""
    pipeline = classification_pipeline(classification)
    with feeding(pipeline, tmp_path) as (host, feeder):
        yield pipeline, host, feeder


def contents(loader, epochs: int) -> list[tuple[bytes, bytes]]:
    batches = [batch for _ in range(epochs) for batch in loader]
    return [(b["image"].tobytes(), b["label"].tobytes()) for b in batches]


def wait_for_loss(loader):
    """Waits until the loader has noticed that its feeder is gone.

    It may have received all batches of the epoch before.
    """
    wait_until(lambda: not loader.stats()["feeders"][0]["connected"])
    return loader.stats()["feeders"][0]


@pytest.mark.parametrize("local", ["help", "fallback"])
def test_batches_are_those_of_a_run_without_feeders(feeder_process, local):
    pipeline, host, _ = feeder_process
    with pipeline.open(workers=1) as loader:
        expected = contents(loader, 2)
    feeders = infeed.feeders.Feeders(
        [host], token=TOKEN, local=local, workers=1, deadline=30
    )

    with pipeline.open(workers=feeders) as loader:
        wait_for_feeders(loader)
        assert contents(loader, 2) == expected
        (reported,) = loader.stats()["feeders"]
        address = loader.serve_metrics()
        with urllib.request.urlopen(f"http://{address}/metrics") as answer:
            metrics = answer.read().decode()

    labels = f'{{loader="loader",feeder="0",host="{host}"}}'
    assert f"infeed_feeder_connected{labels} 1\n" in metrics
    assert f"infeed_feeder_redone_batches_total{labels} 0\n" in metrics
    made = metrics.partition(f"infeed_feeder_batches_total{labels} ")[2]
    assert int(made.partition("\n")[0]) >= reported["batches"]
    assert reported["host"] == host
    assert (reported["redone"], reported["corrupt"], reported["problem"]) == (
        0,
        0,
        None,
    )
    if local == "fallback":
        # With "help", a fast trainer may be done before the feeder has sent a batch.
        assert reported["batches"] > 0
        assert reported["bytes"] > 0


def test_a_running_loop_reports_its_feeders_and_the_wire(feeder_process):
    pipeline, host, _ = feeder_process
    feeders = infeed.feeders.Feeders([host], token=TOKEN, local="fallback", workers=1)

    with pipeline.open(workers=feeders) as loader:
        contents(loader, 2)
        (reported,) = loader.stats()["feeders"]
        explanation = loader.explain()

    found = explanation.to_dict()
    assert reported["receiving_s"] > 0
    assert reported["cpu_s"] > 0
    assert found["feeding"]["origin"] == "counted"
    assert [feeder["host"] for feeder in found["feeding"]["hosts"]] == [host]
    assert {"feeders", "wire", "receive"} <= {r["limit"] for r in found["resources"]}
    assert "remote" in str(explanation)


def test_a_killed_feeder_loses_no_batch(feeder_process):
    pipeline, host, feeder = feeder_process
    with pipeline.open(workers=1) as loader:
        expected = contents(loader, 2)
    feeders = infeed.feeders.Feeders([host], token=TOKEN, local="fallback", workers=1)

    with pipeline.open(workers=feeders) as loader:
        found = contents(loader, 1)
        feeder.kill()
        found += contents(loader, 1)
        reported = wait_for_loss(loader)

    assert found == expected
    assert not reported["connected"]
    assert reported["problem"]


def test_a_rejection_by_a_feeder_is_an_error_with_the_difference(feeder_process):
    pipeline, host, _ = feeder_process

    other = pipeline.shuffle(seed=9)
    with pytest.raises(
        infeed.errors.ConfigError, match="`seed` differs: 9 at the trainer"
    ):
        other.open(workers=infeed.feeders.Feeders([host], token=TOKEN))


def test_a_wrong_token_is_a_warning_and_the_run_goes_on(feeder_process, caplog):
    pipeline, host, _ = feeder_process
    with pipeline.open(workers=1) as loader:
        expected = contents(loader, 1)

    with pipeline.open(
        workers=infeed.feeders.Feeders([host], token=TOKEN[::-1])
    ) as loader:
        assert contents(loader, 1) == expected
        (reported,) = loader.stats()["feeders"]

    assert "token differs" in reported["problem"]
    assert f"{host}: the peer did not prove that it knows the token" in caplog.text


def test_encrypted_batches_are_those_of_a_run_without_feeders(feeder_process):
    pipeline, host, _ = feeder_process
    with pipeline.open(workers=1) as loader:
        expected = contents(loader, 2)
    feeders = infeed.feeders.Feeders(
        [host], token=TOKEN, local="fallback", deadline=30, encrypt=True
    )

    with pipeline.open(workers=feeders) as loader:
        wait_for_feeders(loader)
        assert contents(loader, 2) == expected
        (reported,) = loader.stats()["feeders"]

    assert reported["batches"] > 0
    assert reported["problem"] is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hosts": "a:1"}, "hosts must be a list"),
        ({"hosts": []}, "hosts is empty"),
        ({"hosts": ["a:1", "b"]}, "hosts must be all \"host:port\".*got 'b'"),
        ({"hosts": [":7077"]}, "hosts must be all"),
        ({"hosts": ["a:1"], "local": "never"}, "local must be"),
        ({"hosts": ["a:1"], "workers": 0}, "workers must be"),
        ({"hosts": ["a:1"], "deadline": 0}, "deadline must be"),
        ({"hosts": ["a:1"], "encrypt": "yes"}, "encrypt must be"),
        ({"hosts": ["a:1"], "token": b"bytes"}, "token must be a text"),
    ],
)
def test_invalid_arguments_raise(wrong, message):
    with pytest.raises(infeed.errors.ConfigError, match=message):
        infeed.feeders.Feeders(**wrong)


def test_a_token_is_in_no_representation():
    feeders = infeed.feeders.Feeders(["a:1"], token=TOKEN)

    assert TOKEN not in repr(feeders)
    assert "a:1" in repr(feeders)
