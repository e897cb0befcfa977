// The states by which lists are filtered: those that CouchDB has, and parked, which is a pending job for CouchDB.

import { type State, states } from "./api";

type ListedState = State | "parked";

export const listedStates: ListedState[] = states.flatMap((state): ListedState[] => (state === "pending" ? [state, "parked"] : [state]));

/** The parameters of the list that has the jobs of a state, or of several with commas between them. */
export function filterOf(state: string): { states?: string; parked?: string } {
  if (state === "parked") return { states: undefined, parked: "true" };
  return { states: state || undefined, parked: state === "pending" ? "false" : undefined };
}
