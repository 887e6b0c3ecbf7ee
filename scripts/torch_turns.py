"""Processes that take turns on one GPU, so that a clock that drifts or a neighbour's load hits all of them alike. One at a time
works through a block of steps while the others wait for their turn; every time is compared with those of the same round.

A process calls `serve`; `Party` starts several and gives the word. Neither needs PyTorch.
"""

import json
import os
import select
import signal
import statistics
import subprocess
import time

SIGN = "TURN "


def serve(answers):
    """Reads a line `{"word": ..., ...}`, calls `answers[word](...)` and says what that gave; ends with the input."""
    say = lambda what: os.write(1, (SIGN + json.dumps(what) + "\n").encode())  # noqa: E731
    say({})
    while line := os.read(0, 1 << 16).decode():
        asked = json.loads(line)
        say(answers[asked.pop("word")](**asked))


class Worker:
    """One process. After a failure it is gone, and every further question is answered by none."""

    def __init__(self, name, command, env, log):
        self.name, self.text, self.log = name, b"", open(log, "ab", buffering=0)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=env, bufsize=0, start_new_session=True
        )

    def tell(self, **what):
        if self.process is not None:
            try:
                self.process.stdin.write((json.dumps(what) + "\n").encode())
            except OSError:
                self.end()

    def hear(self, until):
        """The answer to what was told last, or none where it does not come before `until`."""
        while self.process is not None:
            line, found, rest = self.text.partition(b"\n")
            if found:
                self.text = rest
                if line.startswith(SIGN.encode()):
                    return json.loads(line[len(SIGN) :])
                self.log.write(line + b"\n")
                continue
            out = self.process.stdout
            ready, _, _ = select.select([out], [], [], max(until - time.monotonic(), 0))
            data = os.read(out.fileno(), 1 << 16) if ready else b""
            if not data:
                self.log.write(b"is gone, or took too long\n")
                self.end()
            self.text += data
        return None

    def ask(self, until, **what):
        self.tell(**what)
        return self.hear(until)

    def end(self):
        if self.process is not None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except OSError:
                pass
            self.process.wait()
            self.process = None


def rounds(workers, blocks, count, until):
    """Every block by every worker, `count` times over, each time in another order; times by worker, a list for each. No
    round begins after `until`, and the list of one that dies ends there."""
    times = {worker.name: [] for worker in workers}
    for turn in range(count * blocks):
        at = turn % len(workers)
        if time.monotonic() > until or sum(worker.process is not None for worker in workers) < 2:
            break
        for worker in workers[at:] + workers[:at]:
            answer = worker.ask(until + 60, word="block", index=turn % blocks)
            if answer is not None:
                times[worker.name].append(answer["seconds"])
    return times


def compare(times, base, blocks):
    """Each worker's time to that of the first of `base` (to the mean of all of them, for those that are none), block by block: the
    median, and the middle half of all. What disturbs the host only adds to times, so also each block's fastest, all blocks together."""
    out = {}
    for name, mine in times.items():
        others = [times[one] for one in (base[:1] if name in base else base) if times[one]]
        ratios = [mine[i] / statistics.fmean(one) for i, one in enumerate(zip(*others)) if i < len(mine)] if others else []
        if len(ratios) > 3:
            low, middle, high = statistics.quantiles(ratios, n=4)
            out[name] = {"ratio": middle, "low": low, "high": high, "blocks": len(ratios)}
            fastest = lambda one: sum(min(one[i::blocks]) for i in range(blocks))  # noqa: E731
            if min(map(len, [mine, *others])) >= blocks:
                out[name]["fastest"] = fastest(mine) / statistics.fmean(map(fastest, others))
    return out
