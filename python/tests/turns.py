"""The turn-taking of scripts/torch_turns.py, with processes that only write down when they worked."""

import os
import sys
import tempfile
import time
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import torch_turns  # noqa: E402

WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
import torch_turns
name, diary, seconds, dies = sys.argv[2], sys.argv[3], float(sys.argv[4]), int(sys.argv[5])
def block(index):
    with open(diary, "a") as file: file.write(f"{name} begins {index}\\n")
    if index == dies: sys.exit("of its own will")
    print("a word to nobody", flush=True)
    with open(diary, "a") as file: file.write(f"{name} ends {index}\\n")
    return {"seconds": seconds * (index + 1)}
torch_turns.serve({"block": block})
"""


class Turns(unittest.TestCase):
    def party(self, *seconds, dies=-1):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.diary, self.log = Path(folder.name) / "diary", Path(folder.name) / "log"
        workers = []
        for i, time_ in enumerate(seconds):
            last = dies if i == len(seconds) - 1 else -1
            words = [str(SCRIPTS), "abc"[i], str(self.diary), str(time_), str(last)]
            workers.append(torch_turns.Worker("abc"[i], [sys.executable, "-c", WORKER, *words], dict(os.environ), self.log))
            self.addCleanup(workers[-1].process.stdin.close)
            self.addCleanup(workers[-1].process.stdout.close)
            self.addCleanup(workers[-1].log.close)
            self.addCleanup(workers[-1].end)
        for worker in workers:
            self.assertEqual(worker.hear(time.monotonic() + 60), {})
        return workers

    def test_one_at_a_time_works_and_all_begin_as_often(self):
        times = torch_turns.rounds(self.party(1.0, 1.0, 2.0), 2, 3, time.monotonic() + 60)
        self.assertEqual(times, {"a": [1.0, 2.0] * 3, "b": [1.0, 2.0] * 3, "c": [2.0, 4.0] * 3})
        lines = self.diary.read_text().splitlines()
        self.assertEqual(len(lines), 2 * 3 * 6)
        for begins, ends in zip(lines[::2], lines[1::2]):
            self.assertEqual(begins.replace("begins", "ends"), ends)
        self.assertEqual([lines[6 * i][0] for i in range(6)], list("abcabc"))
        self.assertIn("a word to nobody", self.log.read_text())
        compared = torch_turns.compare(times, ["a", "b"], 2)
        self.assertEqual([compared[name]["ratio"] for name in "abc"], [1.0, 1.0, 2.0])
        slow = torch_turns.compare({"a": [1, 2, 1, 2], "b": [5, 2, 1, 9]}, ["a"], 2)
        self.assertEqual([slow[name]["fastest"] for name in "ab"], [1.0, 1.0])

    def test_what_dies_is_left_out_and_the_others_go_on(self):
        workers = self.party(1.0, 1.5, 1.0, dies=1)
        times = torch_turns.rounds(workers, 2, 3, time.monotonic() + 60)
        self.assertEqual({name: len(each) for name, each in times.items()}, {"a": 6, "b": 6, "c": 1})
        self.assertIsNone(workers[2].ask(time.monotonic() + 60, word="block", index=0))
        self.assertIn("of its own will", self.log.read_text())
        compared = torch_turns.compare(times, ["a"], 2)
        self.assertEqual((compared["b"]["ratio"], "c" in compared), (1.5, False))

    def test_the_time_that_is_left_is_kept_to(self):
        self.assertEqual(torch_turns.rounds(self.party(1.0, 1.0), 2, 3, time.monotonic() - 1), {"a": [], "b": []})
