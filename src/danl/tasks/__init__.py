"""Tasks that bring their own work, by what is asked: those of the field's methods (`danl.protocol.own_tasks`).

Importing this package makes them known to the wire, so that an engine's workers can read them.
"""

from danl.tasks.learned_hessian import LearnReply, LearnTask

__all__ = ["LearnReply", "LearnTask"]
