// What the node answers. docs/http.md describes it.

import type { ShownState } from "./state";

/** CouchDB's states. */
export type State = "running" | "pending" | "crashing" | "completed" | "failed";

export interface Info {
  error?: string;
  docs_read?: number;
  docs_written?: number;
  doc_write_failures?: number;
  missing_revisions_found?: number;
  revisions_checked?: number;
  changes_pending?: number | null;
  checkpointed_source_seq?: unknown;
  source_seq?: unknown;
  through_seq?: unknown;
  bulk_get_docs?: number;
  bulk_get_attempts?: number;
  last_run?: Info;
  mirror?: MirrorInfo;
}

/** What the job of a mirror says of its databases. */
export interface MirrorInfo {
  /** How it hears of new databases. */
  by?: "feed" | "list";
  last_look?: string;
  /** When the target was last compared. */
  target_look?: string;
  error?: string;
  error_since?: string;
  databases: number;
  states: Record<string, number>;
  /** The first ones, those that have failed for longest first. */
  failures: { database: string; job_id: string; since: string; reason: string }[];
  docs_read: number;
  docs_written: number;
  doc_write_failures: number;
  behind_since?: string;
  behind_database?: string;
  /** Without a feed: changes since then may not be known yet. */
  unseen_since?: string;
  /** The first replicator databases that are left out. */
  replicators_left_out?: string[];
  /** The latest comparison of both servers. */
  verified?: MirrorVerified;
  verifying_since?: string;
}

export interface MirrorVerified {
  began: string;
  ended: string;
  databases: number;
  different: number;
  failed: number;
  revisions_checked: number;
  first?: { database: string; reason: string }[];
}

export interface Event {
  timestamp: string;
  type: string;
  reason?: string;
  /** Why a run ended: a fault, or a word such as made_room. */
  code?: string;
}

/** A document of a replicator database. */
export type ReplicationDocument = Record<string, unknown> & { _id: string; _rev: string };

/** What a run is doing, beside what its condition says. */
export interface Activity {
  batches_in_flight: number;
  last_progress?: string;
  waiting?: Wait[];
  refusing?: { count: number; since: string; latest: Failure };
}

/** A request that failed and is repeated, or that is held back. */
export interface Wait {
  endpoint: string;
  fault: Fault;
  attempt: number;
  attempts?: number;
  since: string;
  until: string;
}

/** A revision that the target refused. */
export interface Failure {
  id: string;
  rev: string;
  status?: number;
  error?: string;
  reason: string;
  timestamp: string;
}

/** A run that has ended. What a lost one has copied is not known. */
export interface Run {
  start: string;
  end: string;
  outcome: string;
  node?: string;
  docs_read?: number;
  docs_written?: number;
  doc_write_failures?: number;
  reason?: string;
}

/** How a parked job learns that its source has changed. */
export interface Watch {
  server: string;
  database: string;
  /** Missing while the watch of the server begins. */
  by?: "feed" | "questions";
  next_question?: string;
  /** Why there are questions, for administrators. */
  reason?: string;
}

/** Why a request or a run has failed. */
export interface Fault {
  code: string;
  side?: string;
  host?: string;
  /** For people, in one clause. */
  message: string;
  /** CouchDB's. */
  text: string;
}

/** What is true of a job beside the reason of its state. */
export interface Mark {
  type: string;
  since?: string;
  count?: number;
}

/** What the node tells people about a job. */
export interface Condition {
  state: string;
  reason: string;
  message: string;
  since?: string;
  until?: string;
  marks?: Mark[];
  fault?: Fault;
  advice?: Advice;
  /** It needs a person. */
  attention?: boolean;
  /** How many due jobs of its database or user are before it, or more than that. Lists do not have it. */
  queue?: { before: number; more?: boolean };
  watch?: Watch;
  /** Somebody knows of its trouble, so that it needs nobody. */
  acknowledged?: Acknowledgement;
}

export interface Acknowledgement {
  at: string;
  until?: string;
  by?: string;
  note?: string;
}

export interface Job {
  database: string | null;
  /** Its replication id, or its job id while that is not known. */
  id: string;
  job_id: string;
  source: string;
  target: string;
  user: string | null;
  doc_id: string | null;
  info: Info | null;
  history: Event[];
  node: string | null;
  start_time: string | null;
  state: State;
  /** Of a running job. */
  activity?: Activity;
  condition: Condition;
  /** Of a job that a mirror has made: the job id of the mirror, and the database of its source. */
  mirror?: string;
  mirrored_database?: string;
  last_updated?: string | null;
  runs?: Run[];
}

/** What names a job, and says what can be done with it. */
export type JobName = Pick<Job, "job_id" | "id" | "database" | "doc_id" | "user" | "mirror" | "mirrored_database">;

/** What helps. The buttons of a problem follow from the code alone. */
export interface Advice {
  code: string;
  text: string;
}

/** Trouble that several jobs have in common. */
export interface Problem {
  kind: "failed" | "failing" | "stuck" | "documents_refused" | "source_unlistable" | "target_unlistable" | "target_changed" | "late";
  code: string;
  /** Missing if the fault is of no end. */
  side?: "source" | "target";
  /** With the port. */
  host?: string;
  /** The job id of the mirror whose databases these are. */
  mirror?: string;
  message: string;
  advice?: Advice;
  jobs: number;
  since: string | null;
  /** None of the jobs that are late. */
  first: (JobName & { source: string; target: string; condition: Condition })[];
}

export interface Problems {
  attention: number;
  /** Whether there may be more. */
  more?: boolean;
  total_rows: number;
  problems: Problem[];
}

export interface Jobs {
  total_rows: number | null;
  jobs: Job[];
  next_start_key?: string;
  scanned?: number;
}

export interface Share {
  database: string | null;
  user: string | null;
  shares: number;
  usage: number;
  /** How many of its jobs are in each state. */
  running: number;
  pending: number;
  scheduled: number;
  parked: number;
  paused: number;
  crashing: number;
  ran: number;
  entitled: number;
  /** Of a paused database, if they are known. */
  paused_since?: string;
  shares_before?: number;
}

export interface Summary {
  jobs: Partial<Record<ShownState, number>>;
  /** How many of them mirrors have made of the databases of their sources. */
  mirrored?: Partial<Record<ShownState, number>>;
  /** When the job became due that has waited longest for a slot. */
  oldest_due?: string;
  /** Why due jobs wait, if there are any. */
  waiting?: { reason: string; message: string };
  /** Of nodes that take jobs. */
  slots: { used: number; total: number };
  databases: number;
  users: number;
  mirrors: Job[];
}

/** Numbers of each step. Times are seconds since the epoch, steps are seconds. */
export interface Rates {
  since: number;
  until: number;
  step: number;
  docs_read: number[];
  docs_written: number[];
  doc_write_failures: number[];
  crashes: number[];
  bytes_received: number[];
  bytes_sent: number[];
}

/** How far the target of a mirror was behind in each step, in seconds. Times are seconds since the epoch, steps are seconds. */
export interface Lags {
  since: number;
  step: number;
  lag: (number | null)[];
}

/** What a database said of itself. */
export interface EndSaid {
  docs: number;
  docs_deleted: number;
  update_seq: string;
}

/** What both ends said when a node opened them last. */
export interface EndsSaid {
  at: string;
  source: EndSaid;
  target: EndSaid;
}

/** What a comparison of both ends has found. */
export interface JobVerified {
  began: string;
  ended: string;
  node: string;
  revisions_checked: number;
  missing_at_target: number;
  error?: string;
}

/** A job with what only the answer for one job has. */
export interface SingleJob extends Job {
  ends?: EndsSaid;
  /** Of a mirror it is in info.mirror. */
  verified?: JobVerified;
  verifying_since?: string;
}

export interface Node {
  name: string;
  instance: string;
  roles: string[];
  version: string;
  started: string;
  last_seen: string;
  live: boolean;
  running: number;
  /** Jobs, those that end included. */
  held: number;
  max_jobs: number;
  /** Of a node that takes no jobs. */
  cordon?: { at: string; by: string; drain: boolean; drained: boolean };
  /** In bytes, missing if it is not known. */
  memory?: number;
  /** The kind of the store. */
  store: string;
  /** The highest level of a store that it knows. */
  level: number;
  /** What it needs and has of the budgets of servers, by server. */
  budgets?: Record<string, BudgetNeed>;
}

/** What a server may be asked for: requests and bytes a second, and connections. */
export interface BudgetLimit {
  requests?: number;
  bytes?: number;
  connections?: number;
}

export interface BudgetNeed {
  jobs: number;
  /** Of all nodes. */
  limit: BudgetLimit;
  used: BudgetLimit;
}

export interface Failures {
  total: number;
  failures: Failure[];
}
