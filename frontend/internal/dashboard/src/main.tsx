// The frame around the pages: who is logged in, where to go, and which page an address is.

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { readClusterName, useClusterName } from "./cluster";
import { ConfigurationPage } from "./configuration";
import { DatabasesPage } from "./databases";
import { DocumentPage } from "./document";
import { type Failure, onSignedOut, request } from "./http";
import { JobPage } from "./job";
import { JobsPage } from "./jobs";
import { NewPage } from "./new";
import { NodesPage } from "./nodes";
import { Notices, notify } from "./notices";
import { Overview } from "./overview";
import { Page, Trouble } from "./parts";
import { hrefOf, type Route, useRoute } from "./route";
import { currentUser, LoginPage, type User } from "./session";

const pages = [
  { path: "", label: "Overview", admin: true },
  { path: "jobs", label: "Jobs", admin: false },
  { path: "new", label: "New replication", admin: false },
  { path: "databases", label: "Replicator databases", admin: true },
  { path: "nodes", label: "Nodes", admin: true },
  { path: "configuration", label: "Configuration", admin: true },
];

/** Gives the focus to the search of the page when / is pressed, if the key is no text of a field. */
function searchOnSlash(event: KeyboardEvent): void {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if ((event.target as Element).closest("input, textarea, select, dialog")) return;
  const search = [...document.querySelectorAll<HTMLInputElement>("[role=search] input[type=search]")].at(-1); // Jobs has two
  if (!search) return;
  event.preventDefault();
  search.focus();
}

function App() {
  const route = useRoute();
  const [user, setUser] = useState<User | null>();
  const [latest, setLatest] = useState<User>(); // whose session may have ended
  const [failure, setFailure] = useState<Failure>();
  const cluster = useClusterName();
  const look = () =>
    currentUser().then(
      (found) => {
        setUser(found ?? null);
        if (found) setLatest(found);
        setFailure(undefined);
      },
      (error) => setFailure(error as Failure),
    );
  useEffect(() => void look(), []);
  useEffect(() => void readClusterName(), [user]);
  useEffect(() => onSignedOut(() => void look()), []);
  useEffect(() => {
    addEventListener("keydown", searchOnSlash);
    return () => removeEventListener("keydown", searchOnSlash);
  }, []);
  const logOut = async () => {
    try {
      await request("DELETE", "_session");
    } catch (error) {
      return notify(`Not logged out: ${(error as Failure).reason}`, true);
    }
    setLatest(undefined);
    await look();
  };
  // What was typed into the form is kept until its user has logged in again.
  const shown = user ?? (route.path[0] === "new" ? latest : undefined);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>
        Skip to the page
      </a>
      <header class="top">
        <a class="brand" href={hrefOf([])}>
          settee
        </a>
        <small class="muted host">{cluster}</small>
        {user && <Menu route={route} user={user} />}
        {user && (
          <div class="who">
            <span>{user.name}</span>
            {user.name && (
              <button type="button" onClick={() => void logOut()}>
                Log out
              </button>
            )}
          </div>
        )}
      </header>
      <main id="main" tabIndex={-1}>
        <Trouble failure={failure} />
        {user === null && <LoginPage done={look} />}
        {shown && (
          <div hidden={!user}>
            <Current key={JSON.stringify([route.path, route.path[0] === "new" && [...route.query], shown.name])} route={route} user={shown} />
          </div>
        )}
      </main>
      <Notices />
    </>
  );
}

function Menu({ route, user }: { route: Route; user: User }) {
  return (
    <nav aria-label="Pages of settee">
      <ul>
        {pages
          .filter((page) => user.admin || !page.admin)
          .map((page) => (
            <li key={page.path}>
              <a href={hrefOf(page.path ? [page.path] : [])} aria-current={(route.path[0] ?? "") === page.path ? "page" : undefined}>
                {page.label}
              </a>
            </li>
          ))}
      </ul>
    </nav>
  );
}

function Current({ route, user }: { route: Route; user: User }) {
  const [page = "", first, second] = route.path;
  if (page === "documents" && first !== undefined && second !== undefined) {
    return <DocumentPage database={first} id={second} admin={user.admin} />;
  }
  if (page === "new") return <NewPage route={route} admin={user.admin} />;
  if (page === "jobs" && first !== undefined) return <JobPage id={first} admin={user.admin} />;
  if (page === "jobs" || !user.admin) return <JobsPage route={route} admin={user.admin} />; // users have no other pages
  switch (page) {
    case "":
      return <Overview />;
    case "databases":
      return <DatabasesPage />;
    case "nodes":
      return <NodesPage />;
    case "configuration":
      return <ConfigurationPage route={route} />;
  }
  return (
    <Page title="There is no such page">
      <p>
        <a href={hrefOf([])}>Overview</a>
      </p>
    </Page>
  );
}

render(<App />, document.body);
