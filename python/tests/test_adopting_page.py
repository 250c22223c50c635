"""The page of `adopt`: facts, pictures of samples that differ, and nothing foreign."""

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import photograph
from PIL import Image

import infeed
from infeed import transforms as T
from infeed.adopting.adoption import Gain
from infeed.adopting.equivalence import compare_samples
from infeed.adopting.page import page
from infeed.adopting.steps import Finding

CHECKOUT = Path(__file__).parents[2]


class Photos:
    """Photographs of one size, with red and blue swapped or not."""

    def __init__(self, *, swapped: bool) -> None:
        self.swapped = swapped

    def __len__(self) -> int:
        return 6

    def __getitem__(self, number: int):
        pixels = photograph(number, 24, 32) // 2
        pixels[..., 0] += 100
        return np.ascontiguousarray(pixels[..., ::-1] if self.swapped else pixels), 1


def compare_photos(*, swapped: bool):
    records = infeed.Pipeline(infeed.sources.Items(Photos(swapped=False)))
    return compare_samples(Photos(swapped=swapped), records.transform(T.Resize(24)))


FINDINGS = (
    Finding("Photos", None, "its __getitem__ is called"),
    Finding("shuffle=True", ".shuffle(seed=0)"),
)
RATES = ((100.0, 120.0), (210.0, 230.0))


def pictures(text: str) -> list[np.ndarray]:
    encoded = re.findall(r'src="data:image/png;base64,([^"]+)"', text)
    return [np.array(Image.open(io.BytesIO(base64.b64decode(one)))) for one in encoded]


def test_swapped_channels_are_shown_next_to_each_other():
    equivalence = compare_photos(swapped=True)

    text = page("DataLoader", FINDINGS, equivalence, RATES, "decoding limits", "code")

    assert not equivalence.is_equivalent
    shown = pictures(text)
    assert len(shown) == 12
    theirs, ours, apart = shown[:3]
    np.testing.assert_array_equal(theirs, ours[..., ::-1])
    assert apart.max() == 255
    assert "<h1>samples differ, 2.00 times the samples/s, 1 part called" in text


def test_the_page_has_all_facts_and_no_pictures_of_equal_samples():
    text = page(
        "DataLoader", FINDINGS, compare_photos(swapped=False), RATES, "decoding", "x"
    )

    assert pictures(text) == []
    for fact in (
        "called in Python",
        ".shuffle(seed=0)",
        "6 samples: equal",
        "1.92",
        "1.75 to 2.30",
    ):
        assert fact in text
    assert "decoding" in text
    assert "differs" not in text.partition("</style>")[2]


def test_a_slower_pipeline_is_the_first_word():
    text = page("DataLoader", FINDINGS, None, RATES[::-1], "Python limits", "x")

    assert "<h1>slower: 0.50 times the samples/s, 1 part called" in text


def test_every_text_is_escaped_and_nothing_is_loaded():
    evil = '<script src="x">\x1b&'
    finding = Finding(evil, evil, evil)

    text = page(evil, (finding,), None, None, evil, evil)

    assert "<script" not in text
    assert "\x1b" not in text
    assert "&lt;script src=&quot;x&quot;&gt;" in text
    assert not re.search(r'(src|href)="(?!data:)', text)


def test_a_page_without_proof_and_gain_has_the_parts_and_the_code():
    text = page("DataLoader", FINDINGS[1:], None, None, None, "pipeline = 1 < 2")

    assert "<h2>Proof</h2>" not in text
    assert "<h2>Gain</h2>" not in text
    assert "pipeline = 1 &lt; 2" in text


def test_colours_are_those_of_the_page_of_explain():
    style = CHECKOUT / "crates/infeed-explain/src/report/html/style.css"
    if not style.is_file():
        pytest.skip("needs a checkout")
    text = page("DataLoader", (), None, None, None, "")
    explain = style.read_text().partition("@media print")[0]

    for name in ("page", "panel", "ink", "soft", "rule", "good", "wait"):
        colours = re.compile(rf"--{name}: (#\w+)")
        assert colours.findall(text) == colours.findall(explain), name


def test_an_adopted_loader_writes_its_page(tmp_path):
    records = infeed.Pipeline(infeed.sources.Items(Photos(swapped=False)))
    gain = Gain((1.0,), (2.0,))
    adopted = infeed.adopting.Adoption(
        records.batch(2), FINDINGS, compare_photos(swapped=True), gain, "limit"
    )

    adopted.save_html(tmp_path / "page.html")

    assert (tmp_path / "page.html").read_text() == adopted.html
    assert "infeed.Pipeline" in adopted.html
