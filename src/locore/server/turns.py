"""Who comes next: owners of requests take turns, then the requests of each, so that none waits for all runs of another."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator

from locore.server.jobs import Job


class Turns:
    """Runs that wait, by owner and request; what stands first has its turn, and goes to the end after it."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._owners: OrderedDict[str, OrderedDict[int, deque[Job]]] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(jobs) for requests in self._owners.values() for jobs in requests.values())

    def __iter__(self) -> Iterator[Job]:
        """In the order in which they have their turns, if nobody leaves or comes."""
        owners = deque(deque(deque(jobs) for jobs in requests.values()) for requests in self._owners.values())
        while owners:
            requests = owners.popleft()
            jobs = requests.popleft()
            yield jobs.popleft()
            if jobs:
                requests.append(jobs)
            if requests:
                owners.append(requests)

    def __contains__(self, job: Job) -> bool:
        requests = self._owners.get(job.owner)
        return requests is not None and job in requests.get(job.request, ())

    def add(self, job: Job, again: bool = False) -> None:
        """It waits too: behind the others of its request, or before everybody if it was taken once and has to be again."""
        requests = self._owners.setdefault(job.owner, OrderedDict())
        jobs = requests.setdefault(job.request, deque())
        if again:
            jobs.appendleft(job)
            requests.move_to_end(job.request, last=False)
            self._owners.move_to_end(job.owner, last=False)
        else:
            jobs.append(job)

    def first(self, may: Callable[[Job], bool] = lambda job: True) -> Job | None:
        """Whose turn it is, of those that may have it."""
        fronts = (jobs[0] for requests in self._owners.values() for jobs in requests.values())
        return next(filter(may, fronts), None)

    def take(self, job: Job) -> None:
        """It has its turn: its request and its owner go to the end."""
        requests = self._owners[job.owner]
        requests[job.request].remove(job)
        requests.move_to_end(job.request)
        self._owners.move_to_end(job.owner)
        self._tidy(job)

    def remove(self, job: Job) -> None:
        """It waits no longer."""
        self._owners[job.owner][job.request].remove(job)
        self._tidy(job)

    def requests_of(self, owner: str) -> set[int]:
        """Numbers of the requests of one owner."""
        return set(self._owners.get(owner, ()))

    def _tidy(self, job: Job) -> None:
        if not self._owners[job.owner][job.request]:
            del self._owners[job.owner][job.request]
        if not self._owners[job.owner]:
            del self._owners[job.owner]
