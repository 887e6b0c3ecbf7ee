"""Training for scripts/torch_check.py: one of several processes that take turns, two ranks under FSDP, a Trainer."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch_models
import torch_modes
import torch_turns


class Training:
    """A model, its data, and what came of it. Everything random is from fixed seeds, so that all allocators do the same."""

    def __init__(self, model, mode, steps):
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        torch.manual_seed(1)
        make, batches, lengths = torch_models.MODELS[model]
        with torch.device("cuda"):
            self.net, self.vocabulary = make(small="SMALL" in os.environ)
        weights = [p for p in self.net.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=True)
        self.data = torch.Generator(device="cuda").manual_seed(3)
        self.mode, self.shapes, self.losses = mode, list(torch_models.shapes(batches, lengths, steps)), []

    def step(self, ids):
        with torch.autocast("cuda", torch.bfloat16):
            loss = self.net(ids)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.append(loss.detach())

    def block(self, shapes):
        """The seconds of these steps, one after the other as a loop runs them."""
        make = lambda shape: torch.randint(self.vocabulary, shape, device="cuda", generator=self.data)  # noqa: E731
        batches = [make(shape) for shape in shapes]
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for ids in batches:
            with torch_modes.step(self.mode):
                self.step(ids)
        torch.cuda.synchronize()
        return time.perf_counter() - begun


def turns(model, mode, steps="16", size="4"):
    """Serves a Party: `begin` makes the model and sees every shape once, `block` trains on some of them, `end` tells."""
    steps, size, kept = int(steps), int(size), {}

    def begin(limit=0):
        options = {"limit": limit} if limit and mode in torch_modes.OURS else {}
        scope = kept["scope"] = contextlib.ExitStack()
        scope.enter_context(torch_modes.use(mode, **options))
        if limit and not options:
            torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
        training = kept["training"] = Training(model, mode, steps)
        if mode == "renewed":
            scope.close()
        training.block(training.shapes)
        return torch_modes.figures(mode)

    def block(index):
        training = kept["training"]
        # The GPU comes from another process: what that costs is nobody's.
        torch.ones(1 << 20, device="cuda").sum().item()
        return {"seconds": training.block(training.shapes[index * size : (index + 1) * size])}

    def end():
        return {"losses": torch.stack(kept["training"].losses).tolist(), **torch_modes.figures(mode)}

    torch_turns.serve({"begin": begin, "block": block, "end": end})
    # What ends with the interpreter has been tried elsewhere.
    os._exit(0)


def fsdp(mode):
    """Two ranks train one model whole and sharded; gives the losses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, str(Path(__file__).with_name("torch_parts.py")), "fsdp_rank", mode]
    ranks = [
        subprocess.Popen(
            command,
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
            stdout=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [rank.communicate()[0] for rank in ranks]
    return json.loads(said[0].rpartition("RESULT ")[2])


def fsdp_rank(mode):
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    rank = int(os.environ["RANK"])
    if mode not in torch_modes.OURS:
        torch.cuda.set_device(rank)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    with torch_modes.use(mode):
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
        torch.manual_seed(1)
        with torch.device("cuda"):
            net, vocabulary = torch_models.gpt2_medium(small="SMALL" in os.environ)
        for block in net.blocks:
            fully_shard(block)
        fully_shard(net)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
        data, losses, times = torch.Generator(device="cuda").manual_seed(3 + rank), [], []
        for rows, length in torch_models.shapes((12, 24), (128, 1024), 16):
            ids = torch.randint(vocabulary, (rows, length), device="cuda", generator=data)
            torch.cuda.synchronize()
            start = time.perf_counter()
            with torch.autocast("cuda", torch.bfloat16):
                loss = net(ids)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
            losses.append(loss.item())
        done = {"ok": True, "losses": losses, "times": times[5:], **torch_modes.figures(mode)}
        dist.destroy_process_group()
    return done


def trainer():
    """A Trainer of the transformers library, on a GPT-2 of its own making."""
    # One GPU: with more, the Trainer would spread the model over all of them.
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    import transformers

    torch_modes.use("enable")
    config = transformers.GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=1000)
    rows = [{"input_ids": (ids := torch.randint(1000, (64 + 16 * (i % 13),)).tolist()), "labels": ids} for i in range(64)]
    arguments = transformers.TrainingArguments(
        str(Path(os.environ["WORK"]) / "trainer"), per_device_train_batch_size=1, max_steps=50, report_to=[], save_strategy="no"
    )
    model = transformers.GPT2LMHeadModel(config)
    result = transformers.Trainer(model=model, args=arguments, train_dataset=rows).train()
    return {"ok": result.training_loss > 0, "loss": result.training_loss}
