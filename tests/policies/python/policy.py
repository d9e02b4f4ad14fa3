"""Asks the SDK for all that it has."""

from lockwarden import Code, Fence, Operation, Operations, Proofs, Settings, TakeOverRule, deny, permit
from wit_world.imports.clients import application, certificate, describe
from wit_world.imports.history import Whose, held, holds, take, tries


class WitWorld:
    def configure(self, given) -> Operations:
        global names, wait, count
        read = Settings(given)
        names = read.list("names")
        wait = read.duration_ms("wait", 0)
        count = read.number("count", 0)
        read.finish()
        return Operations.ACQUIRE | Operations.GUARDED_WRITE

    def decide(self, r):
        match r.key:
            case b"facts":
                token = "none" if r.owner_token is None else r.owner_token.decode()
                ttl = "none" if r.ttl_ms is None else r.ttl_ms
                facts = [list(Operation).index(r.operation), r.db, r.key.decode(), token, ttl, r.proofs.value]
                facts += [r.traits.value, r.fencing_token, r.remaining_ms, r.attempts, r.now_ms]
                return deny(Code.NO_TTL, " ".join(map(str, facts)))
            case b"settings":
                return deny(Code.OTHER, f"{'+'.join(names)} {wait} {count}")
            case b"client":
                identity = describe(r.client)
                words = (identity.name, identity.user, identity.address, certificate(r.client), application(r.client))
                return deny(Code.NOT_OWNER, " ".join(words))
            case b"history":
                taken = [int(take(r.client, budget, 3, 60000)) for budget in ("left", "spent")]
                whose = (Whose.APPLICATION, Whose.EVERYONE)
                locks = [key.decode() for key in holds(r.client)] + [held(r.client)]
                return deny(Code.LIMITED, " ".join(map(str, [tries(r.client, one) for one in whose] + taken + locks)))
            case b"everything":
                return permit(
                    *(1000, 2000, 3000, 4000),
                    require=Proofs.TOKEN | Proofs.OBSERVED,
                    fence=Fence.SEQUENTIAL,
                    current_fence_only=True,
                    take_over=TakeOverRule.AFTER_DEADLINE,
                )
            case b"panics":
                raise ValueError("it is over")
        return permit()
