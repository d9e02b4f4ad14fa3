// A policy of one team: its locks are called lock:<team>:<thing>, and no client polls for one without end.
import { Settings, deny, permit, text } from "./lockwarden.js";

let teams, maxAttempts;

export function configure(given) {
  const settings = new Settings(given);
  teams = settings.list("teams");
  if (teams.length === 0) settings.problem("teams must name at least one team");
  maxAttempts = settings.number("max_attempts", 100);
  settings.finish();
  return { acquire: true };
}

export function decide(request) {
  if (!isNamedForATeam(text(request.key))) {
    return deny("limited", `name the lock lock:<team>:<thing>; teams are ${teams.join(", ")}`);
  }
  if (request.attempts > maxAttempts) return deny("limited", "too many attempts; wait longer between them");
  return permit();
}

function isNamedForATeam(key) {
  const [prefix, team, ...thing] = key.split(":");
  return prefix === "lock" && teams.includes(team) && thing.join(":") !== "";
}
