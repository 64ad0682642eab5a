"""What the keeper's parts share."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tickkeeper.controller.kube import Kube
from tickkeeper.controller.memo import Held, Memo
from tickkeeper.controller.publish import Publisher
from tickkeeper.controller.references import References
from tickkeeper.controller.sites import Sites
from tickkeeper.controller.table import Table
from tickkeeper.controller.workqueue import WorkQueue
from tickkeeper.schedules.allow import AllowList
from tickkeeper.schedules.claims import Claims, Target
from tickkeeper.schedules.desired import ResourceKey
from tickkeeper.schedules.wanted import Retention


@dataclass(frozen=True, slots=True)
class Options:
    """How the operator behaves; see the settings for the meaning of each."""

    cluster: str
    namespaces: tuple[str, ...] = ()
    allow: AllowList = field(default_factory=AllowList)
    #: BullMQ's template options, the same for every schedule
    template_opts: Mapping[str, Any] = field(default_factory=lambda: Retention().opts())
    #: seconds after which a deletion no longer waits for a Redis or a Secret that is gone
    deletion_grace_seconds: float = 60.0


@dataclass(slots=True)
class World:
    """The state of one operator process, and its ways out."""

    options: Options
    kube: Kube
    references: References
    publisher: Publisher
    sites: Sites
    table: Table = field(default_factory=Table)
    claims: Claims = field(default_factory=Claims)
    memos: dict[ResourceKey, Memo] = field(default_factory=dict)
    #: schedulers whose resource vanished without our finalizer's consent, being removed
    orphans: dict[Target, Held] = field(default_factory=dict)
    queue: WorkQueue[ResourceKey] = field(default_factory=WorkQueue)
    #: heals since the process began, by what was broken
    heals: Counter[str] = field(default_factory=Counter)
    reconcile_errors: int = 0
    #: schedulers in the queues in use that nobody of ours made, at the last walk
    foreign: int = 0
    now: Callable[[], float] = time.time
