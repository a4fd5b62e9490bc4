"""Many questions in one file: what is read, what is kept, and that nothing is lost when the process ends."""

from __future__ import annotations

import csv
import gzip
import json
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from batch_tables import competition
from scipy import stats

import reluscope as rs
from nets import random_net
from reluscope.answers.properties import box_law
from reluscope.batches.instances import read_instances
from reluscope.batches.store import open_store
from reluscope.errors import InputError, InputTypeError, MissingExtraError
from reluscope.workers import grain, run_as_finished

DRIVER = Path(__file__).parent / "kill_driver.py"
NET = rs.Network([([[1.0]], [0.0]), ([[1.0]], None)], name="positive part")


# -- what is read --------------------------------------------------------------------------------------------------


def test_a_table_of_the_competition_is_read_as_it_is(folder):
    found = read_instances(competition(folder))
    assert [(one.names, one.where, one.budget) for one in found] == [
        ((f"onnx/net{n}.npz", f"vnnlib/{p}.vnnlib"), f"line {k}", "10s")
        for k, (n, p) in enumerate([(0, "often"), (0, "never"), (1, "often"), (1, "never")], start=1)
    ]
    assert len({one.digest for one in found}) == 4
    assert all(one.network_sha256 == rs.load(one.network).file_sha256 for one in found)


def test_the_budget_given_replaces_that_of_the_table(folder):
    assert {one.budget for one in read_instances(competition(folder), budget=2)} == {"2s"}
    assert {one.budget for one in read_instances(competition(folder, ""))} == {None}


def test_packed_files_are_found_under_the_names_of_the_table(folder):
    table = competition(folder)
    plain = [one.digest for one in read_instances(table)]
    answers = rs.batch(table, folder / "plain.sqlite")
    for path in [*(folder / "onnx").iterdir(), *(folder / "vnnlib").iterdir()]:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert [one.digest for one in read_instances(table)] != plain  # other bytes
    packed = rs.batch(table, folder / "packed.sqlite")
    assert [(r.verdict, r.lower, r.upper) for r in packed] == [(r.verdict, r.lower, r.upper) for r in answers]
    assert packed.counts == {"done": 4}


def test_two_folders_are_all_pairs(folder):
    found = read_instances((folder / "onnx", folder / "vnnlib"))
    assert [(Path(n).name, Path(q).name) for n, q in (one.names for one in found)] == [
        (f"net{n}.npz", f"{p}.vnnlib") for n in (0, 1) for p in ("never", "often")
    ]


def test_tables_with_columns_lines_of_json_rows_and_frames_say_the_same(folder):
    row = {
        "network": "onnx/net0.npz",
        "event": "y[0] > 0.1",
        "law": "law.json",
        "guarantee": "exact",
        "tolerance": 0.01,
    }
    (folder / "t.csv").write_text(
        "network,event,law,guarantee,tolerance\nonnx/net0.npz,y[0] > 0.1,law.json,exact,0.01\n"
    )
    (folder / "t.jsonl").write_text(json.dumps(row) + "\n\n")
    inline = {**row, "law": rs.Gaussian([0.0, 0.0]).to_dict()}
    (folder / "inline.jsonl").write_text(json.dumps(inline) + "\n")
    near = {**row, "network": str(folder / "onnx/net0.npz"), "law": str(folder / "law.json")}
    digests = [
        read_instances(source)[0].digest
        for source in (folder / "t.csv", folder / "t.jsonl", [near], pd.DataFrame([{**near, "budget": np.nan}]))
    ]
    assert len(set(digests)) == 1
    assert read_instances(folder / "inline.jsonl")[0].law.to_dict() == rs.Gaussian([0.0, 0.0]).to_dict()


def test_every_part_of_a_question_is_in_its_digest(folder):
    base = {"network": NET, "event": "y[0] > 1", "law": rs.Gaussian([0.0])}
    others = [
        {}, {"network": random_net([1, 2, 1])}, {"event": "y[0] > 2"}, {"law": rs.Gaussian([1.0])},
        {"guarantee": "exact"}, {"tolerance": 0.1}, {"level": 0.9}, {"budget": "3s"}, {"budget": "4s"},
    ]  # fmt: skip
    digests = [read_instances([{**base, **other}])[0].digest for other in others]
    assert len(set(digests)) == len(others)
    assert read_instances([{**base, "budget": 3}])[0].digest == digests[7]


def test_bad_rows_are_named_with_their_lines(folder):
    table = folder / "bad.csv"
    table.write_text(
        "network,property,event,law,budget\n"
        "onnx/net0.npz,vnnlib/often.vnnlib,,,\n"
        "onnx/gone.npz,vnnlib/often.vnnlib,,,\n"
        "onnx/net0.npz,,y[0] > 1,,\n"
        "onnx/net0.npz,,,law.json,\n"
        "onnx/net0.npz,vnnlib/often.vnnlib,,,soon\n"
        "onnx/net0.npz,vnnlib/often.vnnlib\n"
    )
    with pytest.raises(InputError) as error:
        rs.batch(table, folder / "r.sqlite")
    said = str(error.value)
    assert said.startswith("bad.csv: 5 of 6 rows cannot be asked.")
    for words in ("line 3: there is no network", "line 4: an event needs a law", "line 5: it must have a property",
                  'line 6: budget must be like "60s"', "line 7: it has 2 fields where 5 are expected"):  # fmt: skip
        assert words in said
    assert not (folder / "r.sqlite").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no instances"),
        ("a,b\n1,2\n", "must start with a header"),
        ("network,network,event\n", "two columns of the same name"),
        ("network,event,law,colour\nonnx/net0.npz,y > 1,law.json,red\n", "line 2: the column 'colour' is not known"),
        ('network,event,law\n"onnx/net0.npz,y > 1,law.json\n', "cannot be read as a CSV file"),
    ],
)
def test_a_bad_table_says_what_is_wrong(folder, text, words):
    (folder / "t.csv").write_text(text)
    with pytest.raises(InputError, match=words):
        read_instances(folder / "t.csv")


def test_bad_lines_of_json_are_named(folder):
    (folder / "t.jsonl").write_text('{"network": 1\n[]\n{"network": "onnx/net0.npz"}\n')
    with pytest.raises(
        InputError, match=r"line 1: it is not valid JSON.*line 2: it must be a JSON object.*line 3: it must"
    ):
        read_instances(folder / "t.jsonl")


def test_other_sources_are_refused(folder):
    for source in (3, None, {1, 2}):
        with pytest.raises(InputTypeError, match="instances must be a table"):
            read_instances(source)
    with pytest.raises(InputError, match="is a folder"):
        read_instances(folder)
    with pytest.raises(InputError, match=r"must end in \.csv or \.jsonl"):
        read_instances(folder / "law.json")
    with pytest.raises(InputError, match="holds no properties"):
        read_instances((folder / "onnx", folder / "onnx"))
    with pytest.raises(InputError, match="there is no folder"):
        read_instances((folder / "none", folder / "onnx"))


# -- what is answered ----------------------------------------------------------------------------------------------


def test_answers_are_those_of_the_single_questions(folder):
    found = rs.batch(competition(folder), folder / "r.sqlite")
    assert [row.verdict for row in found] == ["sat", "unsat", "sat", "unsat"]
    for row, one in zip(found, read_instances(folder / "instances.csv"), strict=True):
        event = rs.vnnlib(one.question)
        alone = rs.probability(rs.load(one.network), box_law(event), event, guarantee="sound", rng=0)
        assert (row.lower, row.upper, row.guarantee) == (alone.lower, alone.upper, "sound")
        assert row.status == "done" and row.version == rs.__version__ and row.seconds > 0


def test_events_under_laws_match_closed_forms(tmp_path):
    rows = [{"network": NET, "law": rs.Gaussian([0.0]), "event": f"y[0] > {k / 10}"} for k in range(1, 20)]
    found = rs.batch(rows, tmp_path / "r.sqlite")
    assert [row.value for row in found] == pytest.approx(stats.norm.sf(np.arange(1, 20) / 10), rel=1e-12)
    assert {row.guarantee for row in found} == {"exact"} and found.verdicts == {}


def test_a_failure_is_a_row_with_its_reason_and_the_others_stand(folder):
    (folder / "onnx" / "broken.npz").write_bytes(b"PK\x03\x04 no network")
    (folder / "vnnlib" / "wrong.vnnlib").write_text("(assert (>= X_0")
    found = rs.batch((folder / "onnx", folder / "vnnlib"), folder / "r.sqlite")
    assert found.counts == {"failed": 5, "done": 4}
    assert all(row.reason and row.value is None for row in found.failed)
    assert any("damaged" in row.reason for row in found.failed)
    random_net([2, 5, 1], seed=7).save(folder / "onnx" / "broken.npz")
    again = rs.batch((folder / "onnx", folder / "vnnlib"), folder / "r.sqlite")
    assert again.counts == {"failed": 3, "done": 6}  # the repaired file has another digest
    assert "3 rows changed since" in again.notes[0]


def test_failed_rows_wait_for_retry(folder, monkeypatch):
    import reluscope.batches.task as task

    rows = [{"network": NET, "law": rs.Gaussian([0.0]), "event": f"y[0] > {k}"} for k in range(3)]
    real = task.probability

    def sometimes(net, law, event, **options):
        if "> 1" in event.text:
            raise MemoryError
        return real(net, law, event, **options)

    monkeypatch.setattr(task, "probability", sometimes)
    assert rs.batch(rows, folder / "r.sqlite").failed[0].reason == "out of memory"
    monkeypatch.setattr(task, "probability", real)
    assert rs.batch(rows, folder / "r.sqlite").counts == {"done": 2, "failed": 1}
    assert rs.batch(rows, folder / "r.sqlite", retry="failed", only="> 2").counts == {"done": 2, "failed": 1}
    assert rs.batch(rows, folder / "r.sqlite", retry="failed").counts == {"done": 3}


def test_an_unexpected_error_does_not_end_the_batch(folder, monkeypatch):
    import reluscope.batches.task as task

    def broken(*_, **__):
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr(task, "probability", broken)
    rows = [{"network": NET, "law": rs.Gaussian([0.0]), "event": "y[0] > 1"}]
    assert rs.batch(rows, folder / "r.sqlite")[0].reason == "unexpected ZeroDivisionError: by nought"


def test_only_rows_that_match_are_asked(folder):
    table = competition(folder)
    first = rs.batch(table, folder / "r.sqlite", only="*net0*never*")
    assert [row.status for row in first] == ["waiting", "done", "waiting", "waiting"] and first.left == 3
    assert rs.batch(table, folder / "r.sqlite", only=["often", "net1"]).left == 0
    with pytest.raises(InputError, match="only matches none of the 4 rows"):
        rs.batch(table, folder / "r.sqlite", only="net7")


def test_a_dry_run_writes_nothing(folder):
    table = competition(folder)
    dry = rs.batch(table, folder / "r.sqlite", dry_run=True)
    assert dry.left == 4 and dry.notes == ("4 of 4 rows would be asked",) and not (folder / "r.sqlite").exists()
    rs.batch(table, folder / "r.sqlite", only="net0")
    before = (folder / "r.sqlite").read_bytes()
    dry = rs.batch(table, folder / "r.sqlite", dry_run=True)
    assert dry.left == 2 and dry.counts["done"] == 2
    assert (folder / "r.sqlite").read_bytes() == before


def test_what_is_answered_is_not_asked_again(folder, monkeypatch):
    table = competition(folder)
    first = rs.batch(table, folder / "r.sqlite")
    monkeypatch.setattr("reluscope.batches.run.answer_task", None)  # whoever calls it fails
    again = rs.batch(table, folder / "r.sqlite")
    assert again.rows == first.rows and again.notes == ()


def test_a_changed_file_is_noticed(folder):
    table = competition(folder)
    first = rs.batch(table, folder / "r.sqlite")
    random_net([2, 5, 1], seed=9).save(folder / "onnx" / "net1.npz")
    again = rs.batch(table, folder / "r.sqlite")
    assert again.rows[:2] == first.rows[:2]
    assert [a.network_sha256 == b.network_sha256 for a, b in zip(again, first, strict=True)] == [
        True,
        True,
        False,
        False,
    ]
    assert again.notes == (
        "2 rows changed since (a file or an option, such as of onnx/net1.npz and vnnlib/often.vnnlib), and asked again",
    )
    with sqlite3.connect(folder / "r.sqlite") as db:
        assert db.execute("SELECT COUNT(*) FROM answers").fetchone() == (6,)  # the earlier ones are kept


def test_a_file_that_changes_while_the_batch_runs_fails_its_row(folder, monkeypatch):
    import reluscope.batches.run as run

    real = run.answer_task

    def late(task):
        random_net([2, 5, 1], seed=11).save(folder / "onnx" / "net1.npz")
        return real(task)

    monkeypatch.setattr(run, "answer_task", late)
    found = rs.batch(competition(folder), folder / "r.sqlite")
    assert [row.status for row in found] == ["done", "done", "failed", "failed"]
    assert "changed while the batch ran" in found.failed[0].reason


def test_seeds_follow_from_the_questions(tmp_path):
    net, law = random_net([3, 4, 1]), rs.Particles(np.random.default_rng(0).normal(size=(50, 3)))
    rows = [{"network": net, "law": law, "event": f"y[0] > {k}"} for k in (0, 1)]
    first = rs.batch(rows, tmp_path / "a.sqlite")
    other = rs.batch(rows[::-1], tmp_path / "b.sqlite")
    assert [(r.seed, r.value) for r in first] == [(r.seed, r.value) for r in other][::-1]
    assert first[0].seed != first[1].seed
    assert [r.seed for r in rs.batch(rows, tmp_path / "c.sqlite", rng=1)] != [r.seed for r in first]


# -- what comes back -----------------------------------------------------------------------------------------------


def test_the_table_in_its_forms(folder):
    found = rs.batch(competition(folder), folder / "r.sqlite")
    assert len(found) == 4 and found[1].verdict == "unsat" and found.seconds == sum(row.seconds for row in found)
    assert rs.Batch.read(folder / "r.sqlite").rows == found.rows
    frame = found.to_pandas()
    assert list(frame["verdict"]) == ["sat", "unsat", "sat", "unsat"] and frame.shape[0] == 4
    found.save_csv(folder / "out.csv")
    back = pd.read_csv(folder / "out.csv")
    assert list(back["upper"]) == [row.upper for row in found] and list(back["digest"]) == [row.digest for row in found]
    text = repr(found)
    assert text.startswith("Batch: 4 instances: 4 done; verdicts: 2 sat, 2 unsat\n") and "never.vnnlib" in text
    for row in (-1, 4, "x"):
        with pytest.raises(InputError, match="row"):
            found[row]


def test_parquet_holds_the_table_or_names_the_package(folder):
    found = rs.batch(competition(folder), folder / "r.sqlite", only="net0")
    try:
        from pyarrow import parquet
    except ImportError:
        with pytest.raises(MissingExtraError, match="pyarrow"):
            found.save_parquet(folder / "out.parquet")
        return
    found.save_parquet(folder / "out.parquet")
    back = parquet.read_table(folder / "out.parquet").to_pydict()
    assert back == found.to_dict()


def test_a_row_is_replayed_from_its_record(folder):
    found = rs.batch(competition(folder), folder / "r.sqlite")
    again = rs.replay(found.record(2), rs.load(folder / "onnx" / "net1.npz"))
    assert again.agrees and again.question == "probability"
    with pytest.raises(InputError, match="row must be one of"):
        found.record(9)
    waiting = rs.batch(competition(folder), folder / "other.sqlite", only="net0")
    with pytest.raises(InputError, match="row 3 has no answer: it has not been asked yet"):
        waiting.record(3)


# -- files that cannot be used -------------------------------------------------------------------------------------


def test_results_of_another_batch_are_refused_and_kept(folder):
    first = rs.batch(competition(folder), folder / "r.sqlite")
    other = [{"network": NET, "law": rs.Gaussian([0.0]), "event": "y[0] > 1"}]
    with pytest.raises(InputError, match=r"results of another batch \(4 instances of .*instances.csv\)"):
        rs.batch(other, folder / "r.sqlite")
    assert rs.Batch.read(folder / "r.sqlite").rows == first.rows


def test_a_table_may_grow_and_shrink(folder):
    table = competition(folder)
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(lines[:2]))
    rs.batch(table, folder / "r.sqlite")
    table.write_text("".join(lines[1:]))
    found = rs.batch(table, folder / "r.sqlite")
    assert found.counts == {"done": 3}
    assert found.notes == ("2 rows new", "1 row no longer asked; what was answered stays in the file")


def test_other_files_are_refused_and_left_alone(folder):
    table = competition(folder)
    text = folder / "text.sqlite"
    text.write_text("notes of mine, " * 100)
    foreign = folder / "foreign.sqlite"
    with sqlite3.connect(foreign) as db:
        db.execute("CREATE TABLE mine (a)")
    newer = folder / "newer.sqlite"
    rs.batch(table, newer)
    with sqlite3.connect(newer) as db:
        db.execute("PRAGMA user_version = 99")
    for file, words in ((text, "must be a file that `batch` wrote"), (foreign, "is not a file of results of a batch"),
                        (newer, "has the format 99"), (folder / "no" / "folder.sqlite", "cannot be")):  # fmt: skip
        before = file.read_bytes() if file.exists() else b""
        with pytest.raises(InputError, match=words):
            rs.batch(table, file)
        assert (file.read_bytes() if file.exists() else b"") == before
    with pytest.raises(InputError, match="there is no file"):
        rs.Batch.read(folder / "none.sqlite")


def test_answers_of_another_version_are_said(folder):
    table = competition(folder)
    rs.batch(table, folder / "r.sqlite")
    with sqlite3.connect(folder / "r.sqlite") as db:
        db.execute("UPDATE answers SET version = '0.0.1' WHERE verdict = 'sat'")
    assert rs.batch(table, folder / "r.sqlite").notes == ("2 answers of another version of reluscope",)


def test_two_batches_do_not_write_to_one_file(folder):
    table = competition(folder)
    with open_store(folder / "r.sqlite", write=True), pytest.raises(InputError, match="another batch is writing"):
        rs.batch(table, folder / "r.sqlite")
    assert rs.batch(table, folder / "r.sqlite").counts == {"done": 4}


def test_a_full_disk_is_said_and_nothing_is_lost(folder, monkeypatch):
    """SQLite itself says that the disk is full: it may not take more pages than these."""
    import reluscope.batches.store as store

    rows = [{"network": NET, "law": rs.Gaussian([0.0]), "event": f"y[0] > {k / 100}"} for k in range(60)]
    real = store._check

    def small(db, file, write):
        real(db, file, write)
        db.execute("PRAGMA max_page_count = 24")

    monkeypatch.setattr(store, "_check", small)
    with pytest.raises(InputError, match=r"cannot be written: database or disk is full; the answers before are kept"):
        rs.batch(rows, folder / "r.sqlite")
    kept = rs.Batch.read(folder / "r.sqlite")
    assert 0 < kept.counts["done"] < 60
    monkeypatch.setattr(store, "_check", real)
    assert rs.batch(rows, folder / "r.sqlite").counts == {"done": 60}
    assert [row.seconds for row in rs.Batch.read(folder / "r.sqlite")][:5] == [row.seconds for row in kept][:5]


# -- processes that end --------------------------------------------------------------------------------------------


def questions(folder: Path) -> Path:
    """Forty questions of some hundredths of a second, whose answers are exact: the same bits in every run."""
    for k in range(4):
        random_net([2, 16, 16, 1], seed=k).save(folder / f"net{k}.npz")
    law = rs.Gaussian([0.0, 0.0]).to_dict()
    rows = [{"network": f"net{k % 4}.npz", "event": f"y[0] > {k / 10}", "law": law} for k in range(40)]
    (folder / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "q.jsonl"


def killed(folder: Path, kills: int, most: int, jobs: int, seed: int) -> None:
    table = questions(folder)
    whole = rs.batch(table, folder / "whole.sqlite")
    assert whole.counts == {"done": 40}
    ended = subprocess.run(
        [sys.executable, *map(str, (DRIVER, table, folder / "r.sqlite", kills, most, jobs, seed))],
        capture_output=True, text=True, timeout=500, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    runs = json.loads(ended.stdout)
    assert sum(map(len, runs)) == kills + 1 and len(runs[-1][-1]) == 40
    assert sum(0 < len(seen) < 40 for run in runs for seen in run) > kills // 3  # they came in the middle
    for run in runs:
        for before, after in pairwise(run):
            assert before.items() <= after.items()  # nothing was lost, nothing was asked twice
    again = rs.Batch.read(folder / "r.sqlite")
    for name in ("row", "network", "question", "status", "value", "lower", "upper", "guarantee", "seed", "digest"):
        assert again.to_dict()[name] == whole.to_dict()[name], name
    with sqlite3.connect(folder / "r.sqlite") as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_killed_at_random_moments_it_goes_on(tmp_path):
    killed(tmp_path, kills=3, most=20, jobs=1, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_killed_fifty_times_it_goes_on(tmp_path, jobs):
    killed(tmp_path, kills=50, most=10, jobs=jobs, seed=2)


def test_ctrl_c_keeps_what_was_answered(folder, monkeypatch):
    import reluscope.batches.run as run

    real, asked = run.answer_task, []

    def third(task):
        asked.append(task)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return real(task)

    monkeypatch.setattr(run, "answer_task", third)
    with pytest.raises(KeyboardInterrupt):
        rs.batch(competition(folder), folder / "r.sqlite")
    assert rs.Batch.read(folder / "r.sqlite").counts == {"done": 2, "waiting": 2}
    monkeypatch.setattr(run, "answer_task", real)
    assert rs.batch(competition(folder), folder / "r.sqlite").counts == {"done": 4}


def test_progress_says_how_far_it_is(folder):
    said = []
    rs.batch(competition(folder), folder / "r.sqlite", progress=lambda done, text: said.append((done, text)))
    assert [done for done, _ in said] == [0, 1, 2, 3, 4]
    assert said[0][1] == "0 of 4" and said[-1][1].startswith("4 of 4, about 0 s")


def test_it_may_be_read_while_it_runs(folder):
    """A reader in another thread sees whole rows only, and does not stop the writer."""
    rows = [{"network": NET, "law": rs.Gaussian([0.0]), "event": f"y[0] > {k / 100}"} for k in range(40)]
    rs.batch(rows, folder / "r.sqlite", only="> 0.1")
    seen, over = [], threading.Event()

    def look() -> None:
        while not over.is_set():
            seen.append(rs.Batch.read(folder / "r.sqlite"))

    reader = threading.Thread(target=look)
    reader.start()
    rs.batch(rows, folder / "r.sqlite")
    over.set()
    reader.join()
    assert seen and all(row.upper is not None for batch in seen for row in batch if row.status == "done")


# -- workers -------------------------------------------------------------------------------------------------------


SAME = ("row", "network", "question", "law", "status", "value", "lower", "upper", "guarantee", "seed", "digest")


def same(one: rs.Batch, other: rs.Batch) -> bool:
    return all(one.to_dict()[name] == other.to_dict()[name] for name in SAME)


def test_processes_give_the_same_table(tmp_path):
    table = questions(tmp_path)
    alone = rs.batch(table, tmp_path / "alone.sqlite", only="*net[01]*")
    assert same(rs.batch(table, tmp_path / "two.sqlite", only="*net[01]*", jobs=2), alone)
    assert alone.counts == {"done": 20, "waiting": 20}


def die(task):
    """What a worker does that runs out of memory at one question."""
    from reluscope.batches.task import answer_task

    if "> 2" in task.instance.names[1]:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer_task(task)


def test_a_question_that_kills_its_worker_is_named_and_the_others_stand(tmp_path, monkeypatch):
    monkeypatch.setattr("reluscope.batches.run.answer_task", die)
    rows = [{"network": NET, "law": rs.Gaussian([0.0]), "event": f"y[0] > {k}"} for k in range(5)]
    found = rs.batch(rows, tmp_path / "r.sqlite", jobs=2)
    assert found.counts == {"done": 4, "failed": 1}
    assert found.failed[0].row == 2 and "worker process died twice" in found.failed[0].reason


@pytest.fixture
def sizes(monkeypatch) -> list[int]:
    """The sizes of parcels, as they are sent; all of seven once the pace is known."""
    seen: list[int] = []
    real = run_as_finished

    def watched(function, tasks, **options):
        def kept():
            for parcel in tasks:
                seen.append(len(parcel))
                yield parcel

        return real(function, kept(), **options)

    monkeypatch.setattr("reluscope.batches.run.run_as_finished", watched)
    monkeypatch.setattr("reluscope.batches.run.grain", lambda left, workers, seconds: 7)
    return seen


def short(n: int) -> list[dict[str, object]]:
    return [{"network": NET, "law": rs.Gaussian([0.0]), "event": f"y[0] > 1.{k:02d}"} for k in range(n)]


def test_short_questions_travel_together(tmp_path, sizes):
    found = rs.batch(short(40), tmp_path / "r.sqlite", jobs=2)
    assert found.counts == {"done": 40} and max(sizes) == 7 and sum(sizes) == 40
    assert [row.value for row in found] == pytest.approx(stats.norm.sf(1 + np.arange(40) / 100), rel=1e-12)


@pytest.mark.slow
def test_in_a_parcel_the_question_that_kills_is_singled_out(tmp_path, sizes, monkeypatch):
    monkeypatch.setattr("reluscope.batches.run.answer_task", die)
    rows = short(60)
    rows[40] = {**rows[0], "event": "y[0] > 2"}
    found = rs.batch(rows, tmp_path / "r.sqlite", jobs=2)
    assert found.counts == {"done": 59, "failed": 1} and found.failed[0].row == 40
    assert max(sizes) == 7 and sum(sizes) == 60 + 7  # the parcel of the row that kills, one by one


@pytest.mark.parametrize(
    ("tasks", "workers", "seconds", "expected"),
    [
        (180, 2, 20.0, 1),  # long tasks go one by one
        (10**6, 2, 1e-4, 500),  # overhead is a fiftieth
        (10**9, 1000, 1e-3, 2000),  # a scheduler serves 1000 workers in a second, half of the time of a parcel
        (10**4, 2, 1e-4, 500),
        (1000, 2, 1e-4, 125),  # four turns for each worker
        (10**6, 10**4, 0.1, 100),  # the scheduler is the slowest part: 10 s of it, and 10 s of the last parcel
        (10, 100, 1e-6, 10),  # it takes longer to hand them out than to do them
    ],
)
def test_the_grain_follows_the_model(tasks, workers, seconds, expected):
    assert grain(tasks, workers, seconds) == expected


@pytest.fixture
def scheduler(dask_client) -> str:
    return str(dask_client.scheduler.address)


def test_a_cluster_gives_the_same_table_without_seeing_the_files(tmp_path, scheduler, monkeypatch):
    table = questions(tmp_path)
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:8]))
    alone = rs.batch(table, tmp_path / "alone.sqlite")
    sent = []
    real = run_as_finished

    def watched(function, tasks, **options):
        def kept():
            for parcel in tasks:
                for path in tmp_path.glob("*.npz"):
                    path.unlink()
                sent.extend(parcel)
                yield parcel

        return real(function, kept(), **options)

    monkeypatch.setattr("reluscope.batches.run.run_as_finished", watched)
    there = rs.batch(table, tmp_path / "there.sqlite", cluster=scheduler)
    assert same(there, alone) and there.counts == {"done": 8}
    assert len(sent) == 8 and all(task.instance.files == () for task in sent)
    assert max(len(pickle.dumps(task)) for task in sent) < 2_000  # the networks were sent before
    assert not list(tmp_path.glob("*.npz"))


def test_a_property_is_answered_alike_far_away(folder, scheduler):
    table = competition(folder)
    near, far = rs.batch(table, folder / "near.sqlite"), rs.batch(table, folder / "far.sqlite", cluster=scheduler)
    assert same(near, far) and [row.verdict for row in near] == [row.verdict for row in far]


def test_a_cluster_that_does_not_answer_is_an_error_and_nothing_is_lost(folder):
    pytest.importorskip("distributed")
    table = competition(folder)
    first = rs.batch(table, folder / "r.sqlite", only="net0")
    with pytest.raises(InputError, match=r"nothing answers at 'tcp://127\.0\.0\.1:9'"):
        rs.batch(table, folder / "r.sqlite", cluster="tcp://127.0.0.1:9")
    assert rs.Batch.read(folder / "r.sqlite").rows == first.rows
    assert rs.batch(table, folder / "r.sqlite", only="net0", cluster="tcp://127.0.0.1:9").left == 2  # nobody is asked


@pytest.mark.needs_data
def test_rows_of_the_competition_have_the_known_verdicts(data_folder, tmp_path):
    nets = data_folder / "nets"
    with (nets / "expected_verdicts.csv").open() as file:
        known = {
            (row["onnx"], row["vnnlib"]): row["verdict"] for row in csv.DictReader(file) if row["benchmark"] == "acasxu"
        }
    found = rs.batch(
        nets / "acasxu" / "instances.csv", tmp_path / "r.sqlite", only="*_1_[1789]_*prop_[34].*", budget="20s"
    )
    asked = [row for row in found if row.status != "waiting"]
    assert len(asked) == 8 and {row.verdict for row in asked} == {"sat", "unsat"}
    assert all(row.verdict == known[row.network, row.question] for row in asked)
