"""Epochs of DataLoaders without and with infeed, in turn."""

from requirements import import_or_skip

import infeed

torch = import_or_skip("torch")

BATCH = 4
LEVEL = 1 / 255


def loader_of(dataset, **settings):
    return torch.utils.data.DataLoader(dataset, **{"batch_size": BATCH} | settings)


def run_both(capsys, call, stays=False):
    """Returns the results of a function without and with infeed.

    Both calls begin with the same seed. Checks that infeed made all batches, or that
    they stay, and that the generators end in the same state.
    """
    found = []
    for is_installed in (False, True):
        if is_installed:
            infeed.install("torch", proof_seconds=0)
        torch.manual_seed(3)
        try:
            found.append((call(), torch.get_rng_state().tolist()))
        finally:
            infeed.uninstall()
    assert found[0][1] == found[1][1], "the generator of PyTorch differs"
    printed = capsys.readouterr().err
    assert ("stay with PyTorch" in printed) == stays, printed
    assert ("infeed 0" in printed) == (not stays), printed
    return found[0][0], found[1][0]


def assert_same(theirs, ours):
    """Checks that values, types and layouts are equal, pixels within rounding."""
    assert type(theirs) is type(ours)
    if isinstance(theirs, torch.Tensor):
        assert theirs.dtype == ours.dtype
        assert theirs.shape == ours.shape
        levels = (theirs.double() - ours.double()).abs().max()
        assert levels <= (1.5 * LEVEL if theirs.is_floating_point() else 1)
    elif isinstance(theirs, dict):
        assert list(theirs) == list(ours)
        assert_same(list(theirs.values()), list(ours.values()))
    elif isinstance(theirs, list | tuple):
        assert len(theirs) == len(ours)
        for one, other in zip(theirs, ours, strict=True):
            assert_same(one, other)
    else:
        assert theirs == ours


def epochs(loader, count=2):
    return [list(loader) for _ in range(count)]
