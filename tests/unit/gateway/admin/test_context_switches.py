"""Context switches: of all threads, by role, and never falling."""

from __future__ import annotations

from pathlib import Path

from mileage.gateway.admin.context_switches import ContextSwitches


def write(proc: Path, pid: int, tid: int, voluntary: int, involuntary: int) -> Path:
    place = proc / str(pid) / "task" / str(tid)
    place.mkdir(parents=True, exist_ok=True)
    status = place / "status"
    status.write_text(
        f"Name:\tx\nvoluntary_ctxt_switches:\t{voluntary}\n"
        f"nonvoluntary_ctxt_switches:\t{involuntary}\n"
    )
    return status


def test_all_threads_count_from_the_first_look_on(tmp_path: Path) -> None:
    switches = ContextSwitches(tmp_path)
    write(tmp_path, 7, 7, 100, 10)
    switches.sample({7: "worker"})
    assert switches.totals() == {("worker", "voluntary"): 0, ("worker", "involuntary"): 0}
    write(tmp_path, 7, 7, 105, 11)
    write(tmp_path, 7, 8, 3, 2)  # a thread that is new in a process that was known
    switches.sample({7: "worker"})
    assert switches.totals() == {("worker", "voluntary"): 8, ("worker", "involuntary"): 3}


def test_a_thread_that_ends_takes_nothing_away(tmp_path: Path) -> None:
    switches = ContextSwitches(tmp_path)
    write(tmp_path, 7, 7, 1, 1)
    status = write(tmp_path, 7, 8, 50, 50)
    switches.sample({7: "engine"})
    status.write_text("voluntary_ctxt_switches:\t60\nnonvoluntary_ctxt_switches:\t50\n")
    switches.sample({7: "engine"})
    status.unlink()
    status.parent.rmdir()
    switches.sample({7: "engine"})
    assert switches.totals()["engine", "voluntary"] == 10


def test_a_process_that_is_gone_or_tells_nothing_is_left_out(tmp_path: Path) -> None:
    switches = ContextSwitches(tmp_path)
    place = tmp_path / "9" / "task" / "9"
    place.mkdir(parents=True)
    (place / "status").write_text("voluntary_ctxt_switches:\tmany\n")
    switches.sample({8: "worker", 9: "worker"})
    assert switches.totals() == {}
