// Who the user is.

import { useEffect, useRef, useState } from "preact/hooks";
import { type Failure, request } from "./http";
import { Field, Page, Trouble } from "./parts";

export interface User {
  name: string;
  admin: boolean;
}

/** Returns the user of the session, or nothing if there is none. */
export async function currentUser(): Promise<User | undefined> {
  const { userCtx } = await request<{ userCtx: { name: string | null; roles: string[] } }>("GET", "_session");
  const admin = userCtx.roles.includes("_admin");
  return userCtx.name === null && !admin ? undefined : { name: userCtx.name ?? "", admin };
}

export function LoginPage({ done }: { done: () => Promise<void> }) {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [failure, setFailure] = useState<Failure>();
  const first = useRef<HTMLInputElement>(null);
  useEffect(() => first.current?.focus(), []); // after the page has given the focus to its heading
  const logIn = async () => {
    setFailure(undefined);
    try {
      await request("POST", "_session", { name, password });
      setPassword("");
      await done();
    } catch (error) {
      setFailure(error as Failure);
    }
  };
  return (
    <Page title="Log in">
      <form
        class="panel narrow centred"
        onSubmit={(event) => {
          event.preventDefault();
          void logIn();
        }}
      >
        <Field label="User">
          {(id) => (
            <input id={id} ref={first} autocomplete="username" required value={name} onInput={(event) => setName(event.currentTarget.value)} />
          )}
        </Field>
        <Field label="Password">
          {(id) => (
            <input
              id={id}
              type="password"
              autocomplete="current-password"
              required
              value={password}
              onInput={(event) => setPassword(event.currentTarget.value)}
            />
          )}
        </Field>
        <Trouble failure={failure} />
        <div class="buttons">
          <button type="submit" class="primary">
            Log in
          </button>
        </div>
      </form>
    </Page>
  );
}
