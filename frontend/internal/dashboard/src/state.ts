// The states of jobs as the pages show them: those that CouchDB has, and parked, which is a pending job for CouchDB.

import { type Job, type State, states } from "./api";

export type ShownState = State | "parked";

export const shownStates: ShownState[] = states.flatMap((state): ShownState[] => (state === "pending" ? [state, "parked"] : [state]));

export function shownState(job: Pick<Job, "state" | "parked">): ShownState {
  return job.parked ? "parked" : job.state;
}

/** The parameters of the list that has the jobs of a state, or of several with commas between them. */
export function filterOf(state: string): { states?: string; parked?: string } {
  if (state === "parked") return { states: undefined, parked: "true" };
  return { states: state || undefined, parked: state === "pending" ? "false" : undefined };
}
