// Asks the SDK for all that it has.
import { application, certificate, describe } from "lockwarden:policy/clients@1.2.0";
import { held, holds, take, tries } from "lockwarden:policy/history@1.2.0";
import { Settings, deny, permit, text } from "./lockwarden.js";

const OPERATIONS = ["acquire", "extend", "release", "take-over", "inspect", "write", "guarded-write"];
const PROOFS = ["token", "session", "observed", "identity"];
const TRAITS = ["conditional", "transactional", "scripted", "monitored", "sharedToken", "refusedSince"];
const asNumber = (flags, names) => names.reduce((sum, name, at) => sum + (flags[name] ? 1 << at : 0), 0);

let names, wait, count;

export function configure(given) {
  const settings = new Settings(given);
  names = settings.list("names");
  wait = settings.durationMs("wait", 0n);
  count = settings.number("count", 0);
  settings.finish();
  return { acquire: true, guardedWrite: true };
}

export function decide(r) {
  const key = text(r.key);
  switch (key) {
    case "facts": {
      const token = r.ownerToken === undefined ? "none" : text(r.ownerToken);
      const facts = [OPERATIONS.indexOf(r.operation), r.db, key, token, r.ttlMs ?? "none", asNumber(r.proofs, PROOFS)];
      facts.push(asNumber(r.traits, TRAITS), r.fencingToken, r.remainingMs, r.attempts, r.nowMs);
      return deny("no-ttl", facts.join(" "));
    }
    case "settings":
      return deny("other", `${names.join("+")} ${wait} ${count}`);
    case "client": {
      const { name, user, address } = describe(r.client);
      return deny("not-owner", [name, user, address, certificate(r.client), application(r.client)].join(" "));
    }
    case "history": {
      const taken = ["left", "spent"].map((budget) => Number(take(r.client, budget, 3, 60000n)));
      const locks = [...holds(r.client).map(text), held(r.client)];
      return deny("limited", [tries(r.client, "application"), tries(r.client, "everyone"), ...taken, ...locks].join(" "));
    }
    case "everything": {
      const times = { ttlDefaultMs: 1000n, ttlCapMs: 2000n, keepAliveMs: 3000n, maxHoldMs: 4000n };
      const require = { token: true, observed: true };
      return permit({ ...times, require, fence: "sequential", currentFenceOnly: true, takeOver: "after-deadline" });
    }
    case "panics":
      throw new Error("it is over");
    default:
      return permit();
  }
}
