"""One worker process of the demo, for `hookline worker hookline_sender.cli.demo_worker:worker`.

It ends when its stdin closes, so that no worker outlives a demo that was killed.
"""

from __future__ import annotations

import os

from hookline_sender.cli.demo_plan import deployment, plan
from hookline_sender.cli.processes import end_with_parent
from hookline_sender.worker import Worker

worker = Worker(plan, deployment(os.environ))
end_with_parent()
