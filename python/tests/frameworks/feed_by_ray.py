"""A cluster of three nodes in processes of this machine, and results of trainers on it.

`test_ray_feeders` runs it with a folder of photographs and a seed; it prints JSON at
the end.
"""

import gc
import hashlib
import json
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

import ray
from ray.cluster_utils import Cluster

import infeed
import infeed.ray
from infeed import sources
from infeed import transforms as T

# Folder with the module of a function. Only processes that add it to their path find
# the module.
SENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sent")

SIZE = {"object_store_memory": 100_000_000, "num_cpus": 1}

# Far longer than any step takes.
GENEROUS_S = 90

# A separate driver: the trainer that is started again.
AGAIN = """
import json, sys
import ray, infeed.ray
from feed_by_ray import Trainer, pipeline

photos, address, state = sys.argv[1:]
ray.init(address=address, log_to_driver=False)
feeders = infeed.ray.Feeders(num=1, name="lasting", local="fallback", workers=1)
trainer = Trainer(pipeline(photos), feeders)
trainer.loader.load_state_dict(json.loads(state))
trainer.until(lambda each: each[0]["batches"] > 2)
trainer.finish()
feeders.close()
print(json.dumps(trainer.report()))
"""

# A separate driver: a trainer with a function, with or without its module.
WITH_FUNCTION = """
import json, sys
import ray, infeed.ray
import feed_by_ray
from feed_by_ray import SENT, Trainer, pipeline

photos, address, reported = sys.argv[1:]
sys.path.append(SENT)
import feeder_steps

feed_by_ray.collect_messages()
env = None if reported else {"working_dir": SENT}
ray.init(address=address, log_to_driver=False, runtime_env=env)
made = pipeline(photos).python(feeder_steps.add_noise)
feeders = infeed.ray.Feeders(num=1, local="help" if reported else "fallback", workers=1)
trainer = Trainer(made, feeders)
if reported:
    trainer.until(lambda _: feed_by_ray.lines(reported))
else:
    trainer.until(feed_by_ray.all_feed)
trainer.finish()
print(json.dumps(trainer.report(reported=feed_by_ray.lines(reported))))
"""


def pipeline(photos, seed=3):
    """The pipeline of all trainers in this file."""
    made = infeed.Pipeline(sources.Folder(photos)).shuffle(seed=seed).decode()
    made = made.transform(T.RandomResizedCrop(48), T.RandomHorizontalFlip())
    return made.batch(6, drop_last=True)


class Trainer:
    """A loader with the batches that it delivered."""

    def __init__(self, made, feeders, **options):
        begun = time.monotonic()
        self.loader = made.open(workers=feeders, **options)
        self.opened_s = time.monotonic() - begun
        self.batches = (batch for _ in iter(int, 1) for batch in self.loader)
        self.found, self.in_time = [], True

    def step(self):
        """Takes the next batch; stores its records, and a hash of its bytes."""
        batch = next(self.batches)
        data = b"".join(batch[name].tobytes() for name in ("image", "label"))
        records = [number for number, _ in batch.records]
        self.found.append((records, hashlib.sha256(data).hexdigest()))

    def feeders(self):
        return self.loader.stats()["feeders"]

    def until(self, what):
        """Takes steps until a condition on the feeders' counters holds."""
        begun = time.monotonic()
        while not what(self.feeders()):
            if time.monotonic() - begun > GENEROUS_S:
                self.in_time = False
                return
            self.step()
            time.sleep(0.02)

    def finish(self):
        """Continues to the end of an epoch."""
        while self.loader.state_dict()["position"] or not self.found:
            self.step()
        self.last = self.feeders()
        self.loader.close()

    def report(self, **more):
        own = {"found": self.found, "in_time": self.in_time, "feeders": self.last}
        return own | {"opened_s": self.opened_s} | more


def all_feed(each):
    return all(feeder["batches"] > 1 for feeder in each)


def kill_nodes(made, cluster, nodes, count, dice):
    """A run that loses some nodes at a step, after all nodes feed it."""
    local = dice.choice(["help", "fallback"])
    trainer = Trainer(made, infeed.ray.Feeders(num=3, local=local, workers=1))
    trainer.until(all_feed)
    for _ in range(dice.randrange(8)):
        trainer.step()
    victims, nodes[:] = nodes[:count], nodes[count:]
    threads = [
        threading.Thread(target=cluster.remove_node, args=(node, False))
        for node in victims
    ]
    for thread in threads:
        thread.start()
    pause, begun = 0.0, time.monotonic()
    gone = {node.node_id for node in victims}

    def all_lost():
        lost = {f["node"] for f in trainer.feeders() if f["lost"]}
        return lost >= gone

    for after in range(10**6):
        last = time.monotonic()
        trainer.step()
        pause = max(pause, time.monotonic() - last)
        if after > 40 and (all_lost() or time.monotonic() - begun > GENEROUS_S):
            break
        time.sleep(0.02)
    lost = all_lost()
    trainer.finish()
    for thread in threads:
        thread.join()
    nodes += [cluster.add_node(**SIZE) for _ in victims]
    return trainer.report(pause_s=pause, seen=lost, local=local)


def restart_feeder(made):
    """A feeder whose process is killed: Ray restarts it, and the trainer finds it."""
    with infeed.ray.Feeders(num=1, local="fallback", workers=1) as feeders:
        trainer = Trainer(made, feeders)
        trainer.until(all_feed)
        (first,) = trainer.feeders()
        process = feeders._actor(0).__ray_call__.remote(lambda _: os.getpid())
        os.kill(ray.get(process), signal.SIGKILL)

        def back(each):
            connected = each[0]["lost"] and each[0]["connected"]
            return connected and each[0]["batches"] > first["batches"] + 2

        trainer.until(back)
        trainer.finish()
    return trainer.report()


def several(photos):
    """More pipelines than a feeder serves at a time, next to one that stays.

    Reports the seeds of the pipelines that the feeder serves after each trainer. Its
    addresses do not tell them apart: a new pipeline can receive the port of a dropped
    one.
    """
    made = {seed: pipeline(photos, seed) for seed in [3, *range(10, 20)]}
    with infeed.ray.Feeders(num=1, local="fallback", workers=1) as feeders:

        def served_seeds():
            keys = feeders._actor(0).__ray_call__.remote(lambda own: list(own._served))
            descriptions = [description for description, _ in ray.get(keys)]
            return [seed for seed in made if made[seed]._json() in descriptions]

        def feed(seed):
            passing = Trainer(made[seed], feeders)
            passing.until(all_feed)
            passing.loader.close()
            stays.step()
            return passing.in_time, seed, served_seeds()

        stays = Trainer(made[3], feeders)
        stays.until(all_feed)
        passed = [feed(seed) for seed in range(10, 20)]
        dropped = sorted(made.keys() - served_seeds())
        again = feed(dropped[0])
        stays.finish()
    return stays.report(passed=passed, dropped=dropped, again=again)


@ray.remote(num_cpus=0)
def rank(photos, feeders, number):
    """One of two trainers, in a separate process."""
    trainer = Trainer(pipeline(photos), feeders, rank=number, world_size=2)
    trainer.until(all_feed)
    trainer.finish()
    return trainer.report()


def ranks(photos):
    """Two trainers that share feeders which this process has begun."""
    with infeed.ray.Feeders(num=2, local="fallback", workers=1) as feeders:
        return ray.get([rank.remote(photos, feeders, number) for number in range(2)])


def resume_trainer(photos, address):
    """A trainer that ends, and another one from its state."""
    feeders = infeed.ray.Feeders(num=1, name="lasting", local="fallback", workers=1)
    trainer = Trainer(pipeline(photos), feeders)
    trainer.until(all_feed)
    state = trainer.loader.state_dict()
    trainer.last = trainer.feeders()
    trainer.loader.close()
    return [trainer.report(), driver(AGAIN, photos, address, json.dumps(state))]


def driver(script, *arguments):
    """Returns the report of another driver."""
    folder = os.path.dirname(__file__)
    ended = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([folder, *sys.path])},
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return json.loads(ended.stdout.splitlines()[-1])


def unplaceable(made):
    """More feeders than there is room for, one of which fits."""
    feeders = infeed.ray.Feeders(num=2, resources={"spot": 1}, local="help", workers=1)
    trainer = Trainer(made, feeders)
    trainer.until(lambda each: lines("were requested"))
    trainer.finish()
    return trainer.report(reported=lines("were requested"))


def other(photos, meant, part):
    """Feeders with other data than the trainer, as if files differed."""
    feeders = infeed.ray.Feeders(num=1, local="help", workers=1)
    begin = feeders._begin
    feeders._begin = lambda _, hosts: begin(meant._json(), hosts)
    trainer = Trainer(pipeline(photos), feeders)
    trainer.until(lambda _: lines(part))
    trainer.finish()
    return trainer.report(reported=lines(part))


def close_loaders(made):
    """Feeders that still run while a loader uses them, and after the last loader."""
    feeders = infeed.ray.Feeders(num=2, memory="200 MB", workers=1)
    trainer, second = Trainer(made, feeders), Trainer(made, feeders)
    trainer.until(all_feed)
    second.finish()
    before = {feeder["host"]: feeder["batches"] for feeder in trainer.feeders()}
    # New batches from all of them show that they still run.
    trainer.until(lambda each: all(f["batches"] > before[f["host"]] for f in each))
    kept = open_hosts(trainer.feeders())
    trainer.finish()
    after = open_hosts(trainer.last, wait=True)
    # They start again with the next loader, which is not closed here.
    third = Trainer(made, feeders)
    third.until(all_feed)
    again, feeds_again = third.feeders(), third.in_time
    del third
    gc.collect()
    threads = [t.name for t in threading.enumerate() if t.name == "infeed-ray"]
    return trainer.report(
        kept=len(kept),
        left=after + open_hosts(again, wait=True),
        again=feeds_again,
        threads=threads,
    )


def end_feeders(made):
    """A run whose feeders are ended while it uses them."""
    before = len(LOGGED.texts)
    feeders = infeed.ray.Feeders(num=1, local="fallback", workers=1).start()
    trainer = Trainer(made, feeders)
    trainer.until(all_feed)
    feeders.close()
    trainer.until(lambda each: not each[0]["connected"] and not each[0]["host"])
    trainer.finish()
    return trainer.report(reported=LOGGED.texts[before:])


def open_hosts(feeders, wait=False):
    """Returns the addresses that accept connections; can wait until none does."""
    begun = time.monotonic()
    while True:
        answer = [f["host"] for f in feeders if answers(f["host"])]
        if not (answer and wait) or time.monotonic() - begun > GENEROUS_S:
            return answer
        time.sleep(0.05)


def answers(host):
    address, _, port = host.rpartition(":")
    try:
        socket.create_connection((address, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


class Lines(logging.Handler):
    """Collects log messages."""

    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


LOGGED = Lines()


def collect_messages():
    """Collects log messages from now on."""
    logging.getLogger("infeed").addHandler(LOGGED)


def lines(part):
    return [text for text in LOGGED.texts if part in text]


def main():
    photos, seed = sys.argv[1:]
    collect_messages()
    dice = random.Random(int(seed))
    cluster = Cluster(initialize_head=True, head_node_args=SIZE | {"num_cpus": 0})
    nodes = [cluster.add_node(**SIZE) for _ in range(2)]
    nodes.append(cluster.add_node(**SIZE, resources={"spot": 1}))
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False)
    made, found = pipeline(photos), {}
    begun = time.monotonic()

    def did(name, what):
        nonlocal begun
        found[name], now = what, time.monotonic()
        print(f"{name}: {now - begun:.1f} s", file=sys.stderr, flush=True)
        begun = now

    did("unplaceable", unplaceable(made))
    did("refused", other(photos, pipeline(photos, seed=4), "`seed` differs"))
    did("without data", other(photos, pipeline("/missing"), "/missing"))
    did("closed", close_loaders(made))
    did("ended", end_feeders(made))
    did("restarted", restart_feeder(made))
    did("several", several(photos))
    did("ranks", ranks(photos))
    did("resumed", resume_trainer(photos, cluster.address))
    with_function = (WITH_FUNCTION, photos, cluster.address)
    did("function", driver(*with_function, ""))
    did("function not there", driver(*with_function, "cannot import"))
    for count in range(3):
        did(f"killed {count}", kill_nodes(made, cluster, nodes, count, dice))
    print(json.dumps(found))
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
