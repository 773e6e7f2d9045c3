"""What every entrance is given: a plan, and where it runs."""

from __future__ import annotations

from hookline_sender.deployment import Deployment
from hookline_sender.errors import InvalidDeployment, InvalidPlan
from hookline_sender.plan import Plan


def check_given(plan: object, deployment: object) -> None:
    """Raise InvalidPlan or InvalidDeployment for anything else, as of callers without a type checker.

    What was given is not shown: for a deployment that is often Redis' URL, with its password.
    """
    if not isinstance(plan, Plan):
        raise InvalidPlan(f"the first argument is a Plan(…), not of type {type(plan).__name__}")
    if deployment is not None and not isinstance(deployment, Deployment):
        raise InvalidDeployment(
            f"the deployment is a Deployment(…), not of type {type(deployment).__name__}: leave it out to read the "
            'environment, or give Deployment(redis_url, namespace="shop")'
        )
