// The fields of a replication document, for the form.

export interface FormField {
  name: string;
  label: string;
  help: string;
  kind: "text" | "number" | "flag" | "json" | "lines";
  /** Of a text: what it can be. */
  options?: string[];
}

/** The members of mirror. */
export const mirrored: FormField[] = [
  { name: "include", label: "Only these databases", help: "A pattern in each line, such as shop-*. Empty: all, except those whose names begin with an underscore.", kind: "lines" },
  { name: "exclude", label: "Without these databases", help: "A pattern in each line.", kind: "lines" },
  { name: "prefix", label: "Prefix of the copies", help: "Is put before their names. It is needed if both are one server, or the target has other databases with these names.", kind: "text" },
  { name: "deleted", label: "Databases that are deleted at the source", help: "Keep their copies, which is the default, or delete them a day later.", kind: "text", options: ["keep", "delete"] },
  { name: "security", label: "Copy who may read and write", help: "The _security object of each database.", kind: "flag" },
];

/** The fields that a mirror cannot have. */
export const unmirrored = ["doc_ids", "since_seq"];

export const which: FormField[] = [
  { name: "doc_ids", label: "Only these documents", help: "One id in each line.", kind: "lines" },
  { name: "selector", label: "Only documents that match", help: 'A Mango selector, such as {"year": {"$gt": 1990}}.', kind: "json" },
  { name: "filter", label: "Filter function", help: "A function of a design document of the source: design/filter.", kind: "text" },
  { name: "query_params", label: "Parameters of the filter", help: "An object, which the function gets as req.query.", kind: "json" },
];

export const more: FormField[] = [
  { name: "create_target_params", label: "Parameters of the new target", help: 'Such as {"q": 2}.', kind: "json" },
  { name: "since_seq", label: "Begin after", help: "An update sequence of the source. A checkpoint comes first.", kind: "text" },
  { name: "winning_revs_only", label: "Winning revisions only", help: "Conflicts are not copied.", kind: "flag" },
  { name: "use_checkpoints", label: "Use checkpoints", help: "Without them each run begins at the start.", kind: "flag" },
  { name: "use_bulk_get", label: "Use _bulk_get", help: "Off for sources whose _bulk_get is broken.", kind: "flag" },
  { name: "checkpoint_interval", label: "Checkpoint interval", help: "Milliseconds.", kind: "number" },
  { name: "worker_processes", label: "Workers", help: "Batches that are copied side by side.", kind: "number" },
  { name: "worker_batch_size", label: "Batch size", help: "Changes in a batch.", kind: "number" },
  { name: "http_connections", label: "Connections", help: "To each endpoint.", kind: "number" },
  { name: "connection_timeout", label: "Time limit of a request", help: "Milliseconds.", kind: "number" },
  { name: "retries_per_request", label: "Repetitions of a request", help: "Then the run fails, and is repeated later.", kind: "number" },
  { name: "socket_options", label: "Socket options", help: "Such as [{keepalive, true}, {nodelay, false}].", kind: "text" },
  { name: "source_proxy", label: "Proxy to the source", help: "A URL.", kind: "text" },
  { name: "target_proxy", label: "Proxy to the target", help: "A URL.", kind: "text" },
];
