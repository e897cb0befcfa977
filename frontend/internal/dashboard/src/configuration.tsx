// The configuration of this node: what holds, where it comes from, and how to change it.

import { useEffect, useState } from "preact/hooks";
import { readClusterName } from "./cluster";
import { Changes } from "./changes";
import { Failure, pathOf, request } from "./http";
import { Action, Dialog, Field, Page, Panel, Table, Tabs, Trouble } from "./parts";
import { go, hrefOf, type Route } from "./route";

interface Setting {
  /** Empty if it is not set. */
  value: string;
  origin: string;
  at_start?: boolean;
  /** What it is for, the values that it can have, and their unit. Missing for what is no setting. */
  meaning?: string;
  wants?: string;
  unit?: string;
}

/** Settings by section and key. */
type Settings = Record<string, Record<string, Setting>>;

export function ConfigurationPage({ route }: { route: Route }) {
  const [settings, setSettings] = useState<Settings>();
  const [failure, setFailure] = useState<Failure>();
  const q = route.query.get("q") ?? undefined;
  const chosen = route.query.get("section") ?? undefined;
  const search = (q ?? "").toLowerCase();
  const changed = q === undefined && chosen === undefined;
  const read = () =>
    request<Settings>("GET", "_node/_local/_config?origins=true").then(
      (found) => {
        void readClusterName();
        setSettings(found);
        setFailure(undefined);
      },
      (error) => setFailure(error as Failure),
    );
  useEffect(() => void read(), []);
  return (
    <Page title="Configuration" actions={<Edit settings={settings} read={read} />}>
      <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <Field label="Find a setting">
          {(id) => (
            <input
              id={id}
              type="search"
              value={q ?? ""}
              onInput={(event) => go(hrefOf(["configuration"], { q: event.currentTarget.value || undefined }), true)}
            />
          )}
        </Field>
      </form>
      <Trouble failure={failure} />
      {settings && <Sections settings={settings} chosen={changed ? "changed" : (chosen ?? (search ? "" : "all"))} />}
      {settings && changed && !Object.values(settings).some((keys) => Object.values(keys).some(isChanged)) && (
        <p class="muted">All settings have their defaults.</p>
      )}
      {Object.entries(settings ?? {}).map(([section, keys]) => {
        if (chosen !== undefined && chosen !== section) return null;
        const shown = Object.entries(keys).filter(
          ([key, setting]) => (!changed || isChanged(setting)) && `[${section}] ${key} ${setting.meaning ?? ""}`.toLowerCase().includes(search),
        );
        if (shown.length === 0) return null;
        return (
          <Panel key={section} title={section}>
            <Table
              head={["Setting", "Value", "From", "Actions"]}
              rows={shown.map(([key, { value, origin, at_start, ...about }]) => ({
                key,
                header: 0,
                cells: [
                  <>
                    {key}
                    {about.meaning && <small class="muted">{about.meaning}</small>}
                  </>,
                  value ? (
                    <code>
                      {value} {/^\d+$/.test(value) && about.unit}
                    </code>
                  ) : (
                    <span class="muted">not set</span>
                  ),
                  <span class="whole">{origin}</span>,
                  at_start ? (
                    <small class="muted">read when a node starts</small>
                  ) : (
                    <>
                      <Edit section={section} name={key} value={value} settings={settings} read={read} />
                      {origin === "store" && <TakeBack section={section} name={key} read={read} />}
                    </>
                  ),
                ],
              }))}
            />
          </Panel>
        );
      })}
      <Changes of="settings" />
    </Page>
  );
}

/** Whether somebody has set a setting. */
const isChanged = ({ origin }: Setting) => origin !== "default";

/** An index of the sections, with the number of settings that were changed in each. */
function Sections({ settings, chosen }: { settings: Settings; chosen: string }) {
  const changed = (keys: Record<string, Setting>) => Object.values(keys).filter(isChanged).length;
  const sections = Object.entries(settings);
  const tabs = [
    { name: "changed", href: hrefOf(["configuration"]), count: sections.reduce((sum, [, keys]) => sum + changed(keys), 0) },
    { name: "all", href: hrefOf(["configuration"], { q: "" }) },
    ...sections.map(([name, keys]) => ({ name, href: hrefOf(["configuration"], { section: name }), count: changed(keys) || undefined })),
  ];
  return <Tabs label="Sections" tabs={tabs} chosen={chosen} />;
}

function TakeBack({ section, name, read }: { section: string; name: string; read: () => Promise<void> }) {
  const run = async () => {
    await request("DELETE", `_node/_local/_config/${pathOf(section, name)}`);
    await read();
  };
  return (
    <Action run={run} done={`[${section}] ${name} is as it was before the change`} confirm={`[${section}] ${name} gets the value that it has without this change.`}>
      Take back
    </Action>
  );
}

/** A button that changes a setting, or makes one if it is given none. The settings say which of them cannot be changed so. */
function Edit({
  section,
  name,
  value,
  settings,
  read,
}: {
  section?: string;
  name?: string;
  value?: string;
  settings?: Settings;
  read: () => Promise<void>;
}) {
  const [asking, setAsking] = useState(false);
  const [draft, setDraft] = useState({ section: "", name: "", value: "" });
  const isNew = name === undefined;
  const isSecret = !!value?.includes("****");
  const known = settings?.[draft.section.trim()]?.[draft.name.trim()];
  const field = (key: "section" | "name" | "value", label: string) => (
    <Field label={label}>
      {(id) => (
        <input
          id={id}
          autocomplete="off"
          value={draft[key]}
          disabled={!isNew && key !== "value"}
          onInput={(event) => setDraft({ ...draft, [key]: event.currentTarget.value })}
        />
      )}
    </Field>
  );
  return (
    <>
      <button
        type="button"
        aria-label={isNew ? undefined : `Change ${name}`}
        onClick={() => {
          setDraft({ section: section ?? "", name: name ?? "", value: isSecret ? "" : (value ?? "") });
          setAsking(true);
        }}
      >
        {isNew ? "Set" : "Change"}
      </button>
      {asking && (
        <Dialog
          title={isNew ? "Set a value" : `[${section}] ${name}`}
          action="Set"
          done={`[${draft.section}] ${draft.name} is set on all nodes`}
          disabled={known?.at_start}
          run={async () => {
            await request("PUT", `_node/_local/_config/${pathOf(draft.section, draft.name)}`, draft.value);
            await read();
          }}
          close={() => setAsking(false)}
        >
          {isSecret && <p>Its secrets are not shown, so write the whole of it.</p>}
          {isNew && field("section", "Section")}
          {isNew && field("name", "Setting")}
          {field("value", known?.unit ? `Value in ${known.unit}` : "Value")}
          {known?.meaning && (
            <p>
              {known.meaning} <span class="muted">Value: {known.wants}.</span>
            </p>
          )}
          <p class="muted">
            {known?.at_start
              ? "It is read when a node starts: set it in a file, the environment or a flag of each node."
              : "It holds on all nodes at once, and stays when they are started again."}
          </p>
        </Dialog>
      )}
    </>
  );
}
