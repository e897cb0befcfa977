// The configuration of this node: what holds, where it comes from, and how to change it.

import { useEffect, useState } from "preact/hooks";
import { readClusterName } from "./cluster";
import { Changes } from "./changes";
import { pathOf, request, useView } from "./http";
import { notify } from "./notices";
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

const configuration = "_node/_local/_config?origins=true";

export function ConfigurationPage({ route }: { route: Route }) {
  const { data: settings, failure } = useView<Settings>(configuration);
  const [edited, setEdited] = useState<Edited>(); // here, because a setting may leave the list meanwhile
  const q = route.query.get("q") ?? undefined;
  const chosen = route.query.get("section") ?? undefined;
  const search = (q ?? "").toLowerCase();
  const changed = q === undefined && chosen === undefined;
  useEffect(() => void readClusterName(), [settings]);
  return (
    <Page
      title="Configuration"
      actions={
        <button type="button" onClick={() => setEdited({ section: "", name: "", value: "", isNew: true })}>
          Set
        </button>
      }
    >
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
      <Trouble failure={failure} stale={settings !== undefined} />
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
                      <button type="button" aria-label={`Change ${key}`} onClick={() => setEdited({ section, name: key, value, isNew: false })}>
                        Change
                      </button>
                      {origin === "store" && <TakeBack section={section} name={key} />}
                    </>
                  ),
                ],
              }))}
            />
          </Panel>
        );
      })}
      <Changes of="settings" />
      {edited && <Edit edited={edited} settings={settings} close={() => setEdited(undefined)} />}
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

function TakeBack({ section, name }: { section: string; name: string }) {
  const run = () => request("DELETE", `_node/_local/_config/${pathOf(section, name)}`);
  return (
    <Action run={run} done={`[${section}] ${name} is as it was before the change`} confirm={`[${section}] ${name} gets the value that it has without this change.`}>
      Take back
    </Action>
  );
}

/** What is edited: a setting with its value, or one that its user names. */
interface Edited {
  section: string;
  name: string;
  value: string;
  isNew: boolean;
}

/** Changes a setting, or sets one that it asks for. The settings say which of them cannot be changed so. */
function Edit({ edited, settings, close }: { edited: Edited; settings?: Settings; close: () => void }) {
  const { section, name, isNew } = edited;
  const isSecret = edited.value.includes("****");
  const [draft, setDraft] = useState({ section, name, value: isSecret ? "" : edited.value });
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
  const run = async () => {
    await request("PUT", `_node/_local/_config/${pathOf(draft.section, draft.name)}`, draft.value);
    const now = await request<Settings>("GET", configuration).catch(() => undefined);
    const set = now?.[draft.section]?.[draft.name];
    const isUnknown = set !== undefined && set.meaning === undefined;
    notify(`[${draft.section}] ${draft.name} is set on all nodes${isUnknown ? ", and has no effect: settee does not use it" : ""}`, isUnknown);
  };
  return (
    <Dialog
      title={isNew ? "Set a value" : `[${section}] ${name}`}
      action="Set"
      disabled={known?.at_start}
      run={run}
      close={close}
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
  );
}
