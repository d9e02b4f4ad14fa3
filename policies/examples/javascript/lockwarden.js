// What a policy in JavaScript is written with: answers and settings. A policy exports `configure`, which is given the settings
// and answers with the operations that it judges ({ acquire: true }), and `decide`, which answers one request. Both are typed
// by the contract lockwarden:policy 1.2, with names in camelCase: request.ownerToken, obligations.ttlCapMs (times are
// milliseconds, as BigInt: 5000n). There is no console, clock, random number or network, and nothing is kept between requests.

/** Permits the operation, with these obligations. */
export function permit(obligations = {}) {
  return { tag: "permit", val: { require: undefined, fence: "none", currentFenceOnly: false, ...obligations } };
}

/** Denies the operation. The detail says in a few words what to do instead, and never holds an owner token. */
export function deny(code, detail) {
  return { tag: "deny", val: { code, detail } };
}

/** Bytes of a client as text, a character a byte: `==` of two such texts is `==` of the bytes. */
export function text(bytes) {
  return String.fromCharCode(...bytes);
}

const UNITS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
// A hundred years; beyond it Redis's scripts would no longer be exact.
const MOST_MS = 36_525 * UNITS.d;

/** The settings of one namespace. Readers return the default where a name is not set or its value is wrong. */
export class Settings {
  #given;
  #known = new Set();
  #problems = [];

  constructor(given) {
    this.#given = new Map(given.map(({ name, value }) => [name, value.trim()]));
  }

  /** The text of a setting, if it is there. */
  text(name) {
    this.#known.add(name);
    return this.#given.get(name);
  }

  /** A list of texts: the elements of an array. */
  list(name) {
    const elements = (this.text(name) ?? "").split(",").map((element) => element.trim());
    return elements.filter((element) => element !== "");
  }

  /** A whole number. */
  number(name, fallback) {
    const value = this.text(name);
    if (value === undefined || /^[0-9]{1,15}$/.test(value)) return value === undefined ? fallback : Number(value);
    this.problem(`${name} = "${value}" is not a whole number`);
    return fallback;
  }

  /** A duration in milliseconds, written with its unit: 500ms, 30s, 5m, 1h, 7d. */
  durationMs(name, fallback) {
    const value = this.text(name);
    if (value === undefined) return fallback;
    const [, number, unit] = /^([0-9]{1,15})(ms|s|m|h|d)$/.exec(value) ?? [];
    if (unit !== undefined && Number(number) * UNITS[unit] <= MOST_MS) return BigInt(number) * BigInt(UNITS[unit]);
    this.problem(`${name} = "${value}" is not a duration such as 30s`);
    return fallback;
  }

  /** Remembers something wrong that the policy found itself. */
  problem(problem) {
    this.#problems.push(problem);
  }

  /** Ends the reading: rejects the settings with everything that is wrong, unknown names included. */
  finish() {
    for (const name of this.#given.keys()) if (!this.#known.has(name)) this.problem(`unknown setting ${name}`);
    if (this.#problems.length > 0) throw this.#problems.join("; ");
  }
}
