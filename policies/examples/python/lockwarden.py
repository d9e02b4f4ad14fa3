"""What a policy in Python is written with: answers and settings.

A policy is a class `WitWorld` with `configure`, which is given the settings and answers with the operations that it judges,
and `decide`, which answers one request. Both are typed by the contract lockwarden:policy 1.2, with names in snake_case:
request.owner_token, obligations(ttl_cap_ms=5000); times are milliseconds. There is no clock, random number, file or network,
and nothing is kept between requests.
"""

from componentize_py_types import Err
from wit_world.imports.types import (
    Code,
    Decision_Deny,
    Decision_Permit,
    Denial,
    Fence,
    Obligations,
    Operation,
    Operations,
    Proofs,
    TakeOverRule,
    Traits,
)

__all__ = ["Code", "Fence", "Operation", "Operations", "Proofs", "Settings", "TakeOverRule", "Traits", "deny", "permit"]

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# A hundred years; beyond it Redis's scripts would no longer be exact.
_MOST_MS = 36_525 * _UNITS["d"]


def permit(
    ttl_default_ms: int | None = None,
    ttl_cap_ms: int | None = None,
    keep_alive_ms: int | None = None,
    max_hold_ms: int | None = None,
    require: Proofs | None = None,
    fence: Fence = Fence.NONE,
    current_fence_only: bool = False,
    take_over: TakeOverRule | None = None,
) -> Decision_Permit:
    """Permits the operation, with these obligations."""
    wants = (ttl_default_ms, ttl_cap_ms, keep_alive_ms, max_hold_ms, require, fence, current_fence_only, take_over)
    return Decision_Permit(Obligations(*wants))


def deny(code: Code, detail: str | None = None) -> Decision_Deny:
    """Denies the operation. The detail says in a few words what to do instead, and never holds an owner token."""
    return Decision_Deny(Denial(code, detail))


class Settings:
    """The settings of one namespace. Readers return the default where a name is not set or its value is wrong."""

    def __init__(self, given):
        self._given = {setting.name: setting.value.strip() for setting in given}
        self._known: set[str] = set()
        self._problems: list[str] = []

    def text(self, name: str) -> str | None:
        """The text of a setting, if it is there."""
        self._known.add(name)
        return self._given.get(name)

    def list(self, name: str) -> list[str]:
        """A list of texts: the elements of an array."""
        return [element.strip() for element in (self.text(name) or "").split(",") if element.strip()]

    def number(self, name: str, fallback: int) -> int:
        """A whole number."""
        value = self.text(name)
        if value is None:
            return fallback
        if _is_digits(value):
            return int(value)
        self.problem(f'{name} = "{value}" is not a whole number')
        return fallback

    def duration_ms(self, name: str, fallback: int) -> int:
        """A duration in milliseconds, written with its unit: 500ms, 30s, 5m, 1h, 7d."""
        value = self.text(name)
        if value is None:
            return fallback
        number = value.rstrip("msdh")
        unit = _UNITS.get(value[len(number) :], 0)
        if _is_digits(number) and 0 < unit and int(number) * unit <= _MOST_MS:
            return int(number) * unit
        self.problem(f'{name} = "{value}" is not a duration such as 30s')
        return fallback

    def problem(self, problem: str) -> None:
        """Remembers something wrong that the policy found itself."""
        self._problems.append(problem)

    def finish(self) -> None:
        """Ends the reading: rejects the settings with everything that is wrong, unknown names included."""
        for name in self._given:
            if name not in self._known:
                self.problem(f"unknown setting {name}")
        if self._problems:
            raise Err("; ".join(self._problems))


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 15
