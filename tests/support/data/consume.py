"""One rank that reads a corpus and writes down what it read; run by test_loader_processes.py.

    consume.py LIST TYPE FOLDER RANK WORLD WORKERS KILL_AFTER

After every step the ranks meet and rank 0 writes the state, as a trainer would. After KILL_AFTER
steps (-1: never) the rank kills itself with SIGKILL, workers, prefetched batches and all.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch.distributed as dist

from tests.support.data.loading import loader
from wenet_uio.base.files import written_aside


def main() -> None:
    data_list, data_type, folder, *numbers = sys.argv[1:]
    rank, world_size, workers, kill_after = map(int, numbers)
    state_file, keys_file = Path(folder) / "state.json", Path(folder) / f"keys.{world_size}.{rank}"
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet.{world_size}", rank=rank, world_size=world_size
    )
    conf = {
        "batch_conf": {"batch_type": "dynamic", "max_frames_in_batch": 1500},
        "speed_perturb": True,
    }
    one = loader(
        data_list, data_type, conf=conf, rank=rank, world_size=world_size, num_workers=workers
    )
    if state_file.exists():
        one.load_state_dict(json.loads(state_file.read_text()))
    steps = 0
    with open(keys_file, "w") as keys:
        for batch in one:
            keys.writelines(f"{key}\n" for key in batch.keys)
            if not batch.closes_step:
                continue
            steps += 1
            keys.flush()
            os.fsync(keys.fileno())
            state = one.state_dict()
            dist.barrier()
            if rank == 0:
                with written_aside(state_file, "w") as file:
                    json.dump(state, file)
            dist.barrier()
            if steps == kill_after:
                os.kill(os.getpid(), signal.SIGKILL)
        keys.write(f"steps {steps}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
