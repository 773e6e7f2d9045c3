"""What is said to a server, step by step, without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from redis.exceptions import AuthenticationError, NoScriptError, ResponseError
from redis.exceptions import ConnectionError as ConnectionLost

from hookline_sender import Deployment, NamespaceFull, RedisUnavailable, WeakDurability
from hookline_sender.arguments import Options
from hookline_sender.engine import commands
from hookline_sender.engine.dialogue import Dialogue, Exchange, Pause
from hookline_sender.engine.durability import QUESTIONS
from hookline_sender.publication import Composer
from tests.support_sender import Order, shop

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookline_sender.engine.commands import Command
    from hookline_sender.engine.dialogue import Flow, Step

SOUND: list[Any] = [[], b"role:master\r\n"]


def dialogue(generation: Callable[[], int] = lambda: 1, **changes: Any) -> Dialogue:
    deployment = Deployment("redis://redis.example", namespace="shop", durability="asserted", **changes)
    return Dialogue(deployment, check_interval=30.0, generation=generation)


def reap(talk: Dialogue) -> Command[int]:
    return commands.reap(talk.layout, limit=5)


def sent(step: Step) -> list[Any]:
    assert isinstance(step, Exchange)
    return [command[0] for command in step.commands]


def after_the_check(flow: Flow[Any]) -> Step:
    """The flow's first step once it has seen that the server is sound."""
    assert next(flow) == Exchange(QUESTIONS)
    return flow.send(SOUND)


def test_a_server_is_looked_at_before_it_is_told_anything() -> None:
    talk = dialogue()
    assert sent(after_the_check(talk.run(reap(talk)))) == ["EVALSHA"]
    assert sent(next(talk.run(reap(talk)))) == ["EVALSHA"]


def test_a_new_connection_leads_to_a_server_that_is_looked_at_again() -> None:
    generations = iter([1, 1, 2, 2])
    talk = dialogue(lambda: next(generations))
    after_the_check(talk.run(reap(talk)))
    assert sent(next(talk.run(reap(talk)))) == ["CONFIG", "INFO"]


def test_nothing_that_is_sent_is_a_number() -> None:
    talk = dialogue(min_replicas=2)
    step = after_the_check(talk.run(reap(talk)))
    assert isinstance(step, Exchange)
    assert {type(part) for command in step.commands for part in command} == {str, bytes}
    assert step.commands[0][-1] == b"5"


@pytest.mark.parametrize(
    ("confirmed", "ends"),
    [(2, StopIteration), (3, StopIteration), (1, RedisUnavailable), (ResponseError("x"), RedisUnavailable)],
)
def test_a_publication_is_told_when_as_many_replicas_as_wanted_have_it(confirmed: Any, ends: type[Exception]) -> None:
    plan, order_paid = shop("billing")
    request = Composer(plan, "shop").request(order_paid, Order(order_id="1"), Options("order-1"))
    talk = dialogue(min_replicas=2)
    flow = talk.run(commands.publish(talk.layout, request))
    assert sent(after_the_check(flow)) == ["EVALSHA", "WAIT"]
    with pytest.raises(ends):
        flow.send([[b"published", 0, request.targets[0].lane.encode()], confirmed])


def test_an_unknown_script_is_loaded_and_then_brought_along() -> None:
    talk = dialogue()
    flow = talk.run(reap(talk))
    after_the_check(flow)
    assert sent(flow.send([NoScriptError()])) == ["SCRIPT", "EVALSHA"]
    assert sent(flow.send([b"sha", NoScriptError()]))[-1] == "EVAL"
    with pytest.raises(StopIteration) as end:
        flow.send([b"sha", 3])
    assert end.value.value == 3


def test_a_lost_reply_is_asked_for_a_few_times_and_then_given_up() -> None:
    talk = dialogue()
    flow = talk.run(reap(talk))
    after_the_check(flow)
    for pause in (0.05, 0.2, 0.5):
        assert flow.throw(ConnectionLost()) == Pause(pause)
        assert sent(flow.send([])) == ["EVALSHA"]
    with pytest.raises(RedisUnavailable, match=r"redis\.example:6379 cannot be reached"):
        flow.throw(ConnectionLost())


def test_a_server_that_is_too_old_is_refused_whatever_is_asserted_of_it() -> None:
    flow = dialogue().ready()
    next(flow)
    with pytest.raises(WeakDurability, match=r"redis_version=6\.2\.14 \(need 7\.0 or newer\)"):
        flow.send([[], b"role:master\r\nredis_version:6.2.14\r\n"])


@pytest.mark.parametrize("refusal", [AuthenticationError("WRONGPASS"), ResponseError("DB index is out of range")])
def test_a_server_that_runs_and_refuses_is_not_said_to_be_away(refusal: Exception) -> None:
    flow = dialogue().ready()
    next(flow)
    for _ in range(3):
        flow.throw(refusal)
        next(flow)
    with pytest.raises(RedisUnavailable, match=r"refuses the connection .*: check user, password and number"):
        flow.throw(refusal)


@pytest.mark.parametrize(
    ("reply", "error"),
    [(ResponseError("OOM command not allowed"), NamespaceFull), (ResponseError("MISCONF disk"), RedisUnavailable)],
)
def test_a_refusal_of_the_server_is_a_named_error(reply: ResponseError, error: type[Exception]) -> None:
    talk = dialogue()
    flow = talk.run(reap(talk))
    after_the_check(flow)
    with pytest.raises(error):
        flow.send([reply])
