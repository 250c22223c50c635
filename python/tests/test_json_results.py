"""Results of Python as JSON follow the schemas of docs/reference/json.md.

The Rust tests check those of commands.
"""

import json
import subprocess
import sys
from typing import Any

import json_results
import jsonschema
import pytest

import infeed
from infeed.experiments.result import Result, Table

COMMAND = "import sys; from infeed._cli import main; sys.exit(main())"


@pytest.fixture(scope="module")
def schemas() -> dict[str, json_results.Schema]:
    """Returns all schemas. Objects have no other keys than those in the schema."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "schema"], capture_output=True, check=True
    )
    found = json_results.all_schemas(json.loads(done.stdout))
    close_objects(found)
    return found


def close_objects(schema: Any) -> None:
    """Forbids other keys. Schemas allow them, because a new key is no new version."""
    if isinstance(schema, dict):
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
        for part in schema.values():
            close_objects(part)
    elif isinstance(schema, list):
        for part in schema:
            close_objects(part)


@pytest.mark.parametrize("settings", [{}, {"lock": False}, {"ceiling": 5}])
def test_the_report_of_a_watch_follows_its_schema(schemas, settings):
    watch = infeed.watch([{"x": [1, 2]}] * 20, **settings)
    for _ in watch:
        pass
    result = json.loads(watch.report().json())

    jsonschema.validate(result, schemas["WatchReport.to_dict"])
    with pytest.raises(jsonschema.ValidationError, match="new"):
        jsonschema.validate(result | {"new": 1}, schemas["WatchReport.to_dict"])


def test_the_result_of_an_experiment_follows_its_schema(schemas):
    table = Table(["format", "rate"], [["png", "100"]])
    result = Result("formats", "Which one is fast?", [table], ["PNG"], {"rate": 100.0})
    plain = json.loads(json.dumps(result.to_dict()))

    jsonschema.validate(plain, schemas["infeed experiment --json"])
    del plain["tables"]
    with pytest.raises(jsonschema.ValidationError, match="tables"):
        jsonschema.validate(plain, schemas["infeed experiment --json"])


def test_an_explanation_in_python_is_that_of_the_command(schemas, tmp_path):
    source = infeed.sources.Memory(number=list(range(8)))
    with infeed.Pipeline(source).batch(2).open() as loader:
        list(loader)
        result = loader.explain().to_dict()

    jsonschema.validate(result, schemas["infeed explain --json"])
