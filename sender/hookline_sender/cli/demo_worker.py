"""One worker process of the demo, for `hookline worker hookline_sender.cli.demo_worker:worker`.

It ends when its stdin closes, so that no worker outlives a demo that was killed.
"""

from __future__ import annotations

import os
import signal
import threading

from hookline_sender.cli.demo_plan import deployment, plan
from hookline_sender.worker import Worker

worker = Worker(plan, deployment(os.environ))


def _end_with_the_demo() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


threading.Thread(target=_end_with_the_demo, daemon=True).start()
