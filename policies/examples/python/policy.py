"""A policy of one team: its locks are called lock:<team>:<thing>, and no client polls for one without end."""

from lockwarden import Code, Operations, Settings, deny, permit

teams: list[str] = []
max_attempts = 0


class WitWorld:
    def configure(self, given) -> Operations:
        global teams, max_attempts
        settings = Settings(given)
        teams = settings.list("teams")
        if not teams:
            settings.problem("teams must name at least one team")
        max_attempts = settings.number("max_attempts", 100)
        settings.finish()
        return Operations.ACQUIRE

    def decide(self, request):
        if not is_named_for_a_team(request.key):
            return deny(Code.LIMITED, "name the lock lock:<team>:<thing>; teams are " + ", ".join(teams))
        if request.attempts > max_attempts:
            return deny(Code.LIMITED, "too many attempts; wait longer between them")
        return permit()


def is_named_for_a_team(key: bytes) -> bool:
    prefix, _, rest = key.partition(b":")
    team, _, thing = rest.partition(b":")
    return prefix == b"lock" and team.decode("latin-1") in teams and thing != b""
