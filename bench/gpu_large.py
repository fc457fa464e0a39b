#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A GPT of 7B's shape on a CUDA device with a budget far below what it takes, the host and NVMe
below it: tokens a second, time over the bound, what binds, and what each link carried.

It is planned first, and what that needs of each tier is printed. A job that does not fit the memory
or the drive of the machine ends there, with memrun's reason and status 3, before anything is
written; --host-mem and --nvme PATH:SIZE divide it otherwise. The options after `--` go to memrun
train, and win over the shape that is set here. Without a device it ends with 77.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

from gpu_peer import device_line, fail, find_device

# 6.7 billion parameters; with gradients, moments, activations and what layers read of the weights
# in bf16, 104 GiB at once. 72 GiB of the host leave NVMe next to nothing, 48 GiB 18 GiB, 24 GiB 42.
SHAPE = ["--layers", "32", "--width", "4096", "--heads", "32", "--vocab", "50257"]
BATCH = ["--batch", "4", "--seq", "1024", "--positions", "1024", "--dtype", "bf16"]
LEARNING = 1  # steps that are not counted: the first loads kernels and is forecast by nothing
LINKS = ["device_to_host", "host_to_device", "nvme_read", "nvme_write"]


TIERS = ("device", "host", "nvme")
GIB = 1 << 30
DOES_NOT_FIT = 3


def memrun_command(options, command):
    tiers = ["--device-mem", options.device_mem, "--host-mem", options.host_mem,
             "--nvme", options.nvme, "--offload", "nvme"]
    job = [*SHAPE, *BATCH, "--clip", "0", "--steps", str(options.steps), *options.train]
    return [options.memrun, "--device", "cuda", *tiers, "--json", command, *job]


def tell_plan(options):
    """What the job is to need; ends where the machine does not have it."""
    out = subprocess.run(memrun_command(options, "plan"), stdout=subprocess.PIPE, text=True,
                         check=False)
    if out.returncode not in (0, DOES_NOT_FIT) or not out.stdout:
        fail("memrun plan ended with status %d" % out.returncode, out.returncode or 1)
    plan = json.loads(out.stdout)
    print("model      %.2f billion parameters, %d tokens a step; footprint %.1f GiB" % (
        plan["model"]["parameters"] / 1e9, plan["model"]["tokens_per_step"],
        plan["footprint_bytes"] / GIB))
    need = ", ".join("%s %.1f of %.1f GiB" % (tier, plan["need_bytes"][tier] / GIB,
                                              plan["budget_bytes"][tier] / GIB) for tier in TIERS)
    print("plan       needs %s" % need)
    if not plan["fits"]:
        fail("the job does not fit: it needs " + need, DOES_NOT_FIT)
    print("           takes %.2f s, %d ops on the host; no plan takes less than %.2f s" % (
        plan["predicted_seconds"], plan["host_ops"], plan["bound_seconds"]), flush=True)


def summarize(events):
    """What is printed, from memrun's JSON lines; None where too few steps were made."""
    steps = [event for event in events if event["event"] == "step"][LEARNING:]
    if not steps:
        return None
    done = next((event for event in events if event["event"] in ("done", "interrupted")), None)
    seconds = statistics.median(step["seconds"] for step in steps)
    last = steps[-1]
    return {
        "steps": len(steps),
        "seconds": seconds,
        "tokens_per_second": last["tokens_per_second"] * last["seconds"] / seconds,
        "predicted_seconds": last["predicted_seconds"],
        "bound_seconds": done["plan"]["bound_seconds"] if done else None,
        "bound_by": last["bound_by"],
        "compute_busy_seconds": statistics.median(step["compute_busy_seconds"] for step in steps),
        "host_busy_seconds": statistics.median(step["host_busy_seconds"] for step in steps),
        "links": {link: (statistics.median(step["moved_bytes"][link] for step in steps),
                         statistics.median(step["link_busy_seconds"][link] for step in steps))
                  for link in LINKS},
        "peak_bytes": last["peak_bytes"],
    }


def report(found):
    bound = found["bound_seconds"]
    print("peaks      " + ", ".join("%s %.1f GiB" % (tier, found["peak_bytes"][tier] / GIB)
                                    for tier in TIERS))
    print("step       %.2f s (median of %d), %.0f tokens/s, forecast %.2f s" % (
        found["seconds"], found["steps"], found["tokens_per_second"], found["predicted_seconds"]))
    if bound:
        print("bound      %.2f s; the step takes %.2f times that" % (bound,
                                                                     found["seconds"] / bound))
    print("bound by   %s; compute busy %.2f s" % (found["bound_by"],
                                                  found["compute_busy_seconds"]))
    print("%-16s %26s %6.2f s" % ("host", "ops busy", found["host_busy_seconds"]))
    for link, (moved, busy) in found["links"].items():
        rate = "%.2f GB/s" % (moved / busy / 1e9) if busy > 0 else "idle"
        print("%-16s %8.1f GiB a step, busy %6.2f s, %s" % (link, moved / GIB, busy, rate))


def follow(command):
    """Runs memrun, tells each step on standard error, and returns its events and status."""
    events = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            events.append(json.loads(line))
            if events[-1]["event"] == "step":
                print("step %d: %.2f s" % (events[-1]["step"], events[-1]["seconds"]),
                      file=sys.stderr, flush=True)
    return events, process.returncode


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memrun", default="build/gpu/tools/memrun")
    parser.add_argument("--device-mem", default="24GiB")
    parser.add_argument("--host-mem", default="72GiB")
    parser.add_argument("--nvme", default=os.environ.get("TMPDIR", "/var/tmp"))
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("train", nargs="*", metavar="OPTION", help="of memrun train, after --")
    options = parser.parse_args()
    device = find_device(options.memrun)
    command = memrun_command(options, "train")
    print("# %s" % " ".join(command))
    print(device_line(device), flush=True)
    tell_plan(options)
    events, status = follow(command)
    found = summarize(events)
    if found is None:
        fail("memrun ended with status %d after %d steps" % (
            status, sum(event["event"] == "step" for event in events)), status or 1)
    report(found)
    sys.exit(status)


if __name__ == "__main__":
    main()
