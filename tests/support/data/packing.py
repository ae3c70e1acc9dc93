"""Packing in a thread: new processes take three times as long, and only some tests are about
them.
"""

from functools import partial

from wenet_uio.base.executor import Executor
from wenet_uio.prepare.list_making import make_shard_list

IN_THREAD = Executor(1, "threads")
pack = partial(make_shard_list, executor=IN_THREAD)
