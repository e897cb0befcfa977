// The states that jobs are shown in, as the node tells them: see docs/http.md.

export const shownStates = ["running", "pending", "scheduled", "parked", "paused", "crashing", "completed", "failed"] as const;

export type ShownState = (typeof shownStates)[number];

/** The same, those first in which a job may need somebody, as in a list by state. */
export const statesByNeed: readonly ShownState[] = ["failed", "crashing", "pending", "running", "paused", "scheduled", "parked", "completed"];
