// Messages about what an action has done. They stay for a while, also when the page changes.

import { useEffect, useState } from "preact/hooks";

interface Notice {
  id: number;
  text: string;
  bad: boolean;
}

const shownFor = 10_000;
const most = 4;

let notices: Notice[] = [];
let latest = 0;
const listeners = new Set<(notices: Notice[]) => void>();

function change(next: Notice[]) {
  notices = next;
  for (const listener of listeners) listener(next);
}

/** Shows a message. One about a failure stays until somebody closes it. */
export function notify(text: string, bad = false): void {
  const id = ++latest;
  change([...notices.filter((notice) => notice.text !== text), { id, text, bad }].slice(-most));
  if (!bad) setTimeout(() => change(notices.filter((notice) => notice.id !== id)), shownFor);
}

/** The messages, at the edge of the page. */
export function Notices() {
  const [shown, setShown] = useState(notices);
  useEffect(() => {
    listeners.add(setShown);
    return () => void listeners.delete(setShown);
  }, []);
  return (
    <div class="notices" role="status">
      {shown.map((notice) => (
        <p key={notice.id} class={notice.bad ? "notice bad" : "notice"}>
          <span>{notice.text}</span>
          <button type="button" aria-label="Close the message" onClick={() => change(notices.filter((other) => other !== notice))}>
            ×
          </button>
        </p>
      ))}
    </div>
  );
}
