"""The remedies that were found in some data: which can be combined, and what they make of a plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Generic

from unstall.profiles.remedies.change import Change, DataT, Offer, PlanT
from unstall.profiles.remedies.remedy import Need, Remedy, Untried
from unstall.profiles.text import error_text


class Offers(Generic[PlanT]):
    """What a number of changes offer for the same data.

    Args:
      changes: that are looked for, in the order in which their remedies are offered.
      data: that the changes look at.
      needs: what the data lose; a change that serves none of these is left out.
      only: the remedies that are looked for; all unless given.
      promise: ranks a change among those that are looked for first and tried first; as they are given unless given.

    Attributes:
      remedies: that can be tried, the most promising first.
      untried: the remedies that cannot be tried, and why.
    """

    def __init__(
        self,
        changes: Iterable[Change[DataT, PlanT]],
        data: DataT,
        needs: Collection[Need],
        promise: Callable[[Any], Any] = lambda change: 0,
        only: Collection[str] = (),
    ) -> None:
        serving = [change for change in changes if not set(change.serves).isdisjoint(needs)]
        if only:  # nothing is read for another remedy
            serving = [change for change in serving if not set(change.names).isdisjoint(only)]
        found = {change: list(_found(change, data)) for change in sorted(serving, key=promise)}
        everything = [one for some in found.values() for one in some]
        self.remedies: tuple[Remedy, ...] = tuple(one.remedy for one in everything if isinstance(one, Offer))
        self.untried = [one for one in everything if isinstance(one, Untried)]
        self._by_name: dict[str, Offer[PlanT]] = {
            one.remedy.name: one for change in serving for one in found[change] if isinstance(one, Offer)
        }

    def fits(self, names: Sequence[str]) -> bool:
        """Whether no two of these remedies are in conflict; one that was not offered names no conflicts itself."""
        chosen = [offer for name, offer in self._by_name.items() if name in names]
        return frozenset().union(*(offer.conflicts for offer in chosen)).isdisjoint(names)

    def change(self, plan: PlanT, names: Sequence[str]) -> None:
        """Makes the changes of these remedies in a plan, in the order in which the changes were given."""
        for name, offer in self._by_name.items():
            if name in names:
                offer.build(plan)


def _found(change: Change[DataT, PlanT], data: DataT) -> Iterator[Offer[PlanT] | Untried]:
    """Yields what a change finds. Where the user's data fail meanwhile, that is why it is not tried."""
    try:
        yield from change.find(data)
    except Exception as error:  # properties of the user's data can raise anything
        yield Untried(name=change.names[0], reason=f"looking at the data failed ({error_text(error)})")
