// What `lockwarden policy build --debug` builds in place of policy.js: `lockwarden policy test` and `run` show what it prints,
// and the errors that it throws.
import { say } from "lockwarden:debug/output@1.0.0";
import * as policy from "./policy.js";

const print = (...values) => say(new TextEncoder().encode(`${values.map(inWords).join(" ")}\n`));
const inWords = (value) => (value instanceof Error ? `${value}\n${value.stack}` : String(value));

globalThis.console = { log: print, error: print };

export const configure = heard(policy.configure);
export const decide = heard(policy.decide);

function heard(answer) {
  return (asked) => {
    try {
      return answer(asked);
    } catch (error) {
      // Rejected settings are thrown as a text.
      if (error instanceof Error) print(error);
      throw error;
    }
  };
}
