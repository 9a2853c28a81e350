"""Messages of workers as the server takes them: stacked, and validated."""

import numpy as np

from danl.objective.layout import Layout
from danl.protocol.messages import Exchange
from danl.protocol.reply_form import ReplyForm


def validated(rules, task, messages, weights=None, layout=None):
    """The replies to one task that pass, and a failure for each of the others."""
    d, everyone = rules.regions.n_coefficients, np.array(sorted(messages))
    form = ReplyForm(rules.regions, layout or Layout(d, 1, False))
    exchange = Exchange("x", task, everyone)
    weights = np.full(len(rules.penalties), 1 / len(rules.penalties)) if weights is None else weights
    return rules.validate_replies(exchange, form.stack(exchange, messages), weights)


def fault(rules, worker, task, reply):
    """What is wrong with one reply, its form or its numbers; None where nothing is."""
    form = ReplyForm(rules.regions, Layout(rules.regions.n_coefficients, 1, False)).fault(worker, task, reply)
    if form is not None:
        return form
    found = validated(rules, task, {worker: reply}).failures.get(worker)
    return None if found is None else found.detail
