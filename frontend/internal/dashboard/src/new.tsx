// The form for a replication. The JSON document beside it is what it writes, and can be edited, too.

import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import { TestConnection } from "./connection";
import { type FormField, mirrored, more, unmirrored, which } from "./fields";
import { type Failure, isFinal, pathOf, pause, request, visible } from "./http";
import { notify } from "./notices";
import { Field, Page, Panel, Trouble } from "./parts";
import { go, hrefOf, type Route } from "./route";
import { everyInWords, scheduleInWords } from "./schedule";
import { mask, masked, rejoinLogins, separateLogins, unmask } from "./secrets";
import { endpointURL } from "./text";
import { isAsWritten } from "./written";

type Document = Record<string, unknown>;

const transient = "";

/** The form, as soon as it is known with which database it begins. Users who are no administrators begin with a transient replication if
 * they may not write into _replicator. */
export function NewPage({ route, admin }: { route: Route; admin: boolean }) {
  const usual = useUsualDatabase(admin || route.query.has("document"));
  if (usual !== undefined) return <ReplicationForm route={route} usual={usual} />;
  return (
    <Page title="New replication">
      <p class="muted">Loading…</p>
    </Page>
  );
}

function ReplicationForm({ route, usual }: { route: Route; usual: string }) {
  const editedDatabase = route.query.get("database") ?? undefined;
  const editedId = route.query.get("document") ?? undefined;
  const editing = editedDatabase !== undefined && editedId !== undefined;
  const [loads, setLoads] = useState(editing ? 1 : 0); // how often the document is to be read
  const [database, setDatabase] = useState(editedDatabase ?? usual);
  const [id, setId] = useState(editedId ?? "");
  const usualId = useRef("");
  const writtenId = id || (usualId.current ||= randomId());
  const [original, setOriginal] = useState<Document | undefined>(editing ? undefined : {});
  const [doc, setDoc] = useState<Document>({ source: "", target: "" });
  const [text, setText] = useState<string>();
  const [failure, setFailure] = useState<Failure>();
  const [busy, setBusy] = useState(false);

  useEffect(() => {
    if (!editing) return;
    setOriginal(undefined);
    setText(undefined);
    setFailure(undefined);
    request<Document>("GET", `${pathOf(editedDatabase, editedId)}`).then(
      (found) => {
        setOriginal(found);
        setDoc(mask(separateLogins(Object.fromEntries(Object.entries(found).filter(([name]) => !name.startsWith("_"))))) as Document);
      },
      (error) => setFailure(error as Failure),
    );
  }, [loads]);
  const shown = useRef(true);
  useEffect(() => () => void (shown.current = false), []);

  const set = (name: string, value: unknown) => {
    setText(undefined);
    setDoc((before) => {
      const { [name]: _, ...rest } = before;
      return value === undefined || value === "" ? (name === "source" || name === "target" ? { ...rest, [name]: "" } : rest) : { ...before, [name]: value };
    });
  };
  const setAll = (values: Document) => {
    setText(undefined);
    setDoc((before) => Object.fromEntries(Object.entries({ ...before, ...values }).filter(([, value]) => value !== undefined)));
  };
  const [whole, missing] = useMemo(() => {
    const missing: string[] = [];
    const edited = unmask(doc, separateLogins(original ?? {}), missing) as Document;
    return [rejoinLogins(edited, original ?? {}), missing] as const;
  }, [doc, original]);
  const checked = useCheck(whole, database === transient);
  const check = missing.length
    ? { problem: `${masked} stands for a secret that is not known: write the secret of ${missing.join(" and ")}.`, warnings: [] }
    : checked;

  const save = async () => {
    setBusy(true);
    setFailure(undefined);
    try {
      if (database === transient) {
        const { _local_id } = await request<{ _local_id?: string }>("POST", "_replicate", whole);
        if (!shown.current) return; // a one-shot replication may take hours, and its user be elsewhere
        go(_local_id ? hrefOf(["jobs", _local_id]) : hrefOf(["jobs"], { condition: "completed" }));
        return;
      }
      const { _rev } = original as { _rev?: string };
      await write(pathOf(database, writtenId), _rev ? { ...whole, _rev } : whole);
      notify(`${database} / ${writtenId}: ${editing ? "saved" : "created"}`);
      if (shown.current) go(hrefOf(["documents", database, writtenId]));
    } catch (error) {
      setFailure(error as Failure);
    } finally {
      setBusy(false);
    }
  };

  const isMirror = doc.mirror !== undefined;
  const fieldsOf = (fields: FormField[]) => fields.filter((field) => !isMirror || !unmirrored.includes(field.name));
  const title = editing ? `Edit ${editedId}` : "New replication";
  if (!original) {
    return (
      <Page title={title}>
        <Trouble failure={failure} />
        {!failure && <p class="muted">Loading…</p>}
      </Page>
    );
  }
  return (
    <Page title={title}>
      <form
        class="replication"
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        <div inert={invalid(text)}>
          <Panel title="From and to">
            <Kind isMirror={isMirror} setAll={setAll} />
            <EndpointFields name="source" doc={doc} set={set} />
            <EndpointFields name="target" doc={doc} set={set} />
            {!isMirror && <CreateTarget value={doc.create_target} set={set} />}
            <TestConnection doc={whole} disabled={missing.length > 0 || withoutURL(doc).length > 0} />
          </Panel>
          <Panel title="When">
            <When doc={doc} setAll={setAll} periodic={database !== transient && !isMirror} />
          </Panel>
          <Panel title="What">
            {isMirror && <MirrorFields value={doc.mirror} set={(mirror) => set("mirror", mirror)} />}
            {fieldsOf(which).map((field) => (
              <DocumentField key={field.name} field={field} value={doc[field.name]} set={set} />
            ))}
          </Panel>
          <details class="panel" open={more.some((field) => field.name in original)} onInvalidCapture={(event) => (event.currentTarget.open = true)}>
            <summary>More</summary>
            {fieldsOf(more).map((field) => (
              <DocumentField key={field.name} field={field} value={doc[field.name]} set={set} />
            ))}
          </details>
        </div>
        <div>
          <Panel title="Where it is kept">
            <Field label="Replicator database" help="Empty: the replication is posted to _replicate, and has no document.">
              {(fieldId, described) => (
                <input
                  id={fieldId}
                  aria-describedby={described}
                  value={database}
                  disabled={editing}
                  onInput={(event) => setDatabase(event.currentTarget.value.trim())}
                />
              )}
            </Field>
            {database !== transient && (
              <Field label="Document id" help="Empty: one is chosen.">
                {(fieldId, described) => (
                  <input id={fieldId} aria-describedby={described} value={id} disabled={editing} onInput={(event) => setId(event.currentTarget.value)} />
                )}
              </Field>
            )}
          </Panel>
          <Panel title="The document">
            <Field label="JSON" help={`Headers of an endpoint and fields of your own can be written here.${editing ? ` ${masked} stands for a secret that stays as it is.` : ""}`}>
              {(fieldId, described) => (
                <textarea
                  id={fieldId}
                  class="code"
                  rows={16}
                  spellcheck={false}
                  aria-describedby={described}
                  value={text ?? JSON.stringify(doc, null, 2)}
                  onInput={(event) => {
                    setText(event.currentTarget.value);
                    try {
                      const parsed = JSON.parse(event.currentTarget.value);
                      if (parsed && typeof parsed === "object" && !Array.isArray(parsed)) setDoc(parsed);
                    } catch {
                      // It is not whole yet: the check below says so.
                    }
                  }}
                />
              )}
            </Field>
            <CheckResult text={text} check={check} without={withoutURL(doc)} />
            {failure?.status === 409 && database !== transient ? (
              <Conflict database={database} id={writtenId} reload={editing ? () => setLoads(loads + 1) : undefined} />
            ) : (
              <Trouble failure={failure} />
            )}
            {busy && database === transient && !doc.continuous && (
              <p class="muted" role="status">
                It runs. This page waits for its end; <a href={hrefOf(["jobs"], { database: "" })}>the list of jobs</a> shows how far it is.
              </p>
            )}
            <div class="buttons">
              <button type="submit" class="primary" disabled={busy || !!check.problem || invalid(text)}>
                {database === transient ? "Replicate" : editing ? "Save" : "Create"}
              </button>
            </div>
          </Panel>
        </div>
      </form>
    </Page>
  );
}

/** An id as the node chooses them. */
const randomId = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** Writes a document. It succeeds, too, if an earlier request without an answer has written the same. */
async function write(path: string, doc: Document): Promise<void> {
  try {
    await request("PUT", path, doc);
  } catch (error) {
    if ((error as Failure).status !== 409) throw error;
    const found = await request<Document>("GET", path).catch(() => undefined);
    if (!found || !isAsWritten(found, doc)) throw error;
  }
}

/** Says that a document was not saved because of a conflict. */
function Conflict({ database, id, reload }: { database: string; id: string; reload?: () => void }) {
  return (
    <p class="trouble" role="alert">
      {reload ? (
        <>
          Not saved: the document has been changed since this page read it.{" "}
          <button type="button" onClick={reload}>
            Discard my changes and read it again
          </button>
        </>
      ) : (
        <>
          Not saved: there is a document with this id. Choose another id, or <a href={hrefOf(["new"], { database, document: id })}>edit that one</a>.
        </>
      )}
    </p>
  );
}

/** The database of new documents: _replicator, or no database for users who may not open it, and undefined until that is known. */
function useUsualDatabase(mayOpen: boolean): string | undefined {
  const [usual, setUsual] = useState(mayOpen ? "_replicator" : undefined);
  useEffect(() => {
    if (!mayOpen) request("GET", "_replicator").then(() => setUsual("_replicator"), () => setUsual(transient));
  }, []);
  return usual;
}

function invalid(text: string | undefined): boolean {
  if (text === undefined) return false;
  try {
    JSON.parse(text);
    return false;
  } catch {
    return true;
  }
}

interface Check {
  /** Undefined if the document is valid, "" if that is not known. */
  problem?: string;
  warnings: string[];
  /** Why the node could not be asked. */
  failure?: Failure;
}

const checkAgainAfter = 2000;

/** Asks the node whether a document is valid, when its author pauses, and again while it cannot be asked. */
function useCheck(doc: Document, isTransient: boolean): Check {
  const [check, setCheck] = useState<Check>({ problem: "", warnings: [] });
  useEffect(() => {
    const ended = new AbortController();
    const look = async () => {
      await pause(300, ended.signal);
      while (!ended.signal.aborted) {
        let found: Check;
        try {
          const { warnings } = await request<{ warnings: string[] }>("POST", `_scheduler/check${isTransient ? "?transient=true" : ""}`, doc);
          found = { warnings };
        } catch (error) {
          const failure = error as Failure;
          found = isFinal(failure.status) ? { problem: failure.reason, warnings: [] } : { problem: "", warnings: [], failure };
        }
        if (ended.signal.aborted) return;
        setCheck(found);
        if (!found.failure) return;
        await pause(checkAgainAfter, ended.signal);
        await visible(ended.signal);
      }
    };
    void look();
    return () => ended.abort();
  }, [doc, isTransient]);
  return check;
}

/** Says what keeps a document from being written. A URL that is not typed yet is no mistake. */
function CheckResult({ text, check, without }: { text?: string; check: Check; without: string[] }) {
  const problem = invalid(text) ? "This is not JSON. The fields beside it wait until it is." : check.problem;
  if (without.length > 0 && !invalid(text)) {
    return (
      <div role="status">
        <p class="muted">
          The {without.join(" and the ")} {without.length === 1 ? "is" : "are"} missing.
        </p>
      </div>
    );
  }
  return (
    <div role="status">
      {problem && <p class="trouble">{problem}</p>}
      {check.failure && <p class="muted">The document could not be checked: {check.failure.reason} It is tried again.</p>}
      {problem === undefined && <p class="good">The document is valid.</p>}
      {check.warnings.map((warning) => (
        <p key={warning} class="muted">
          {warning}
        </p>
      ))}
    </div>
  );
}

/** The names of the URLs that a document does not have. */
function withoutURL(doc: Document): string[] {
  return ["source", "target"].filter((name) => doc[name] === undefined || endpointURL(doc[name]) === "").map((name) => `URL of the ${name}`);
}

interface Login {
  username: string;
  password: string;
}

function EndpointFields({ name, doc, set }: { name: "source" | "target"; doc: Document; set: (name: string, value: unknown) => void }) {
  const value = doc[name];
  const url = endpointURL(value);
  const object = value && typeof value === "object" ? (value as Document) : {};
  const given = (object.auth ?? {}) as Document;
  const login = (given.basic ?? { username: "", password: "" }) as Login;
  const change = (nextURL: string, next: Login) => {
    const { auth: _, url: __, ...others } = object;
    const { basic: ___, ...tokens } = given; // credentials of other kinds stay
    const auth = { ...tokens, ...((next.username || next.password) && { basic: next }) };
    const rest = { ...others, ...(Object.keys(auth).length > 0 && { auth }) };
    set(name, Object.keys(rest).length === 0 ? nextURL : { url: nextURL, ...rest });
  };
  return (
    <fieldset>
      <legend>{name === "source" ? "Source" : "Target"}</legend>
      <Field label={`URL of the ${name}`} help={doc.mirror === undefined ? "Such as https://host/database." : "Of the server, such as https://host/."}>
        {(id, described) => (
          <input id={id} type="url" required aria-describedby={described} value={url} onInput={(event) => change(event.currentTarget.value, login)} />
        )}
      </Field>
      <div class="pair">
        <Field label={`User of the ${name}`}>
          {(id) => (
            <input
              id={id}
              autocomplete="off"
              value={login.username}
              onInput={(event) => change(url, { ...login, username: event.currentTarget.value })}
            />
          )}
        </Field>
        <Field label={`Password of the ${name}`}>
          {(id) => (
            <input
              id={id}
              type="password"
              autocomplete="new-password"
              value={login.password}
              onInput={(event) => change(url, { ...login, password: event.currentTarget.value })}
            />
          )}
        </Field>
      </div>
    </fieldset>
  );
}

/** What is replicated: a database, or with a mirror all databases of a server. */
function Kind({ isMirror, setAll }: { isMirror: boolean; setAll: (values: Document) => void }) {
  const none = Object.fromEntries([...unmirrored, "every", "schedule", "timezone", "create_target"].map((name) => [name, undefined]));
  return (
    <Field label="Replicate">
      {(id) => (
        <select
          id={id}
          value={isMirror ? "mirror" : "database"}
          onChange={(event) => setAll(event.currentTarget.value === "mirror" ? { ...none, mirror: {}, continuous: true } : { mirror: undefined })}
        >
          <option value="database">a database</option>
          <option value="mirror">all databases of a server (mirror)</option>
        </select>
      )}
    </Field>
  );
}

function CreateTarget({ value, set }: { value: unknown; set: (name: string, value: unknown) => void }) {
  const id = useId();
  return (
    <p class="check">
      <input id={id} type="checkbox" checked={value === true} onChange={(event) => set("create_target", event.currentTarget.checked || undefined)} />
      <label for={id}>Create the target if it does not exist</label>
    </p>
  );
}

/** The members of mirror. It may be something else while the document is written by hand. */
function MirrorFields({ value, set }: { value: unknown; set: (mirror: Document) => void }) {
  const mirror = value && typeof value === "object" ? (value as Document) : {};
  const change = (name: string, next: unknown) => set(Object.fromEntries(Object.entries({ ...mirror, [name]: next }).filter(([, of]) => of !== undefined)));
  return (
    <>
      {mirrored.map((field) => (
        <DocumentField key={field.name} field={field} value={mirror[field.name]} set={change} />
      ))}
    </>
  );
}

function When({ doc, setAll, periodic }: { doc: Document; setAll: (values: Document) => void; periodic: boolean }) {
  const mode = doc.continuous ? "continuous" : doc.every !== undefined ? "every" : doc.schedule !== undefined ? "schedule" : "once";
  const none = { continuous: undefined, every: undefined, schedule: undefined, timezone: undefined };
  const modes: Record<string, Document> = {
    once: none,
    continuous: { ...none, continuous: true },
    every: { ...none, every: "15m" },
    schedule: { ...none, schedule: "0 3 * * *" },
  };
  const inWords = scheduleInWords(String(doc.schedule), String(doc.timezone ?? ""));
  return (
    <>
      <Field label="Runs">
        {(id) => (
          <select id={id} value={mode} onChange={(event) => setAll(modes[event.currentTarget.value]!)}>
            <option value="once">once, up to the latest change</option>
            <option value="continuous">all the time (continuous)</option>
            {periodic && <option value="every">again after a time</option>}
            {periodic && <option value="schedule">at times of the clock (cron)</option>}
          </select>
        )}
      </Field>
      {mode === "every" && (
        <Field label="Every" help={everyInWords(String(doc.every)) ?? "Hours, minutes and seconds, such as 1h30m."}>
          {(id, described) => (
            <input id={id} aria-describedby={described} value={String(doc.every)} onInput={(event) => setAll({ every: event.currentTarget.value })} />
          )}
        </Field>
      )}
      {mode === "schedule" && (
        <div class="pair">
          <Field label="Schedule" help={`Minute, hour, day of the month, month, day of the week${inWords ? `: ${inWords}` : ""}.`}>
            {(id, described) => (
              <input
                id={id}
                aria-describedby={described}
                value={String(doc.schedule)}
                onInput={(event) => setAll({ schedule: event.currentTarget.value })}
              />
            )}
          </Field>
          <Field label="Time zone" help="Such as Europe/Berlin. Empty: UTC.">
            {(id, described) => (
              <input
                id={id}
                aria-describedby={described}
                value={String(doc.timezone ?? "")}
                onInput={(event) => setAll({ timezone: event.currentTarget.value || undefined })}
              />
            )}
          </Field>
        </div>
      )}
    </>
  );
}

function DocumentField({ field, value, set }: { field: FormField; value: unknown; set: (name: string, value: unknown) => void }) {
  const change = (next: unknown) => set(field.name, next);
  return (
    <Field label={field.label} help={`${field.help} (${field.name})`}>
      {(id, described) => {
        switch (field.kind) {
          case "flag":
            return (
              <select
                id={id}
                aria-describedby={described}
                value={value === undefined ? "" : String(value)}
                onChange={(event) => change(event.currentTarget.value === "" ? undefined : event.currentTarget.value === "true")}
              >
                <option value="">default</option>
                <option value="true">yes</option>
                <option value="false">no</option>
              </select>
            );
          case "number":
            return (
              <input
                id={id}
                type="number"
                aria-describedby={described}
                value={value === undefined ? "" : String(value)}
                onInput={(event) => change(event.currentTarget.value === "" ? undefined : event.currentTarget.valueAsNumber)}
              />
            );
          case "lines":
            return <Draft id={id} described={described} value={value} change={change} read={readLines} write={writeLines} />;
          case "json":
            return <Draft id={id} described={described} value={value} change={change} read={readJSON} write={writeJSON} />;
          default:
            if (field.options) {
              return (
                <select id={id} aria-describedby={described} value={String(value ?? "")} onChange={(event) => change(event.currentTarget.value || undefined)}>
                  <option value="">default</option>
                  {field.options.map((option) => (
                    <option key={option}>{option}</option>
                  ))}
                </select>
              );
            }
            return (
              <input id={id} aria-describedby={described} value={String(value ?? "")} onInput={(event) => change(event.currentTarget.value || undefined)} />
            );
        }
      }}
    </Field>
  );
}

const readLines = (text: string) => text.split("\n").filter(Boolean);
const writeLines = (value: unknown) => (Array.isArray(value) ? value.join("\n") : "");
const readJSON = (text: string): unknown => JSON.parse(text);
const writeJSON = (value: unknown) => JSON.stringify(value);

/** A field whose text stands for a value. It keeps what its user types, and as long as that is no value the form cannot
 * be sent. */
function Draft({
  id,
  described,
  value,
  change,
  read,
  write,
}: {
  id: string;
  described?: string;
  value: unknown;
  change: (next: unknown) => void;
  read: (text: string) => unknown;
  write: (value: unknown) => string;
}) {
  const [draft, setDraft] = useState({ text: "", stands: undefined as unknown, wrong: false });
  const shown = draft.stands === value ? draft : { text: value === undefined ? "" : write(value), wrong: false };
  return (
    <>
      <textarea
        id={id}
        class="code"
        rows={3}
        spellcheck={false}
        aria-describedby={described}
        aria-invalid={shown.wrong}
        ref={(element) => element?.setCustomValidity(shown.wrong ? "This is not JSON." : "")}
        value={shown.text}
        onInput={(event) => {
          const text = event.currentTarget.value;
          let next: unknown;
          try {
            next = text.trim() === "" ? undefined : read(text);
          } catch {
            setDraft({ text, stands: value, wrong: true });
            return;
          }
          setDraft({ text, stands: next, wrong: false });
          change(next);
        }}
      />
      {shown.wrong && <small class="bad">This is not JSON yet. </small>}
    </>
  );
}
