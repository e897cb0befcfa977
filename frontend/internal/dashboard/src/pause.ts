// Whether single jobs can be paused.

import { useEffect, useState } from "preact/hooks";
import { offersPause } from "./actions";

/** Reports whether the node pauses single jobs, false until that is known. */
export function usePause(): boolean {
  const [offered, setOffered] = useState(false);
  useEffect(() => void offersPause().then(setOffered), []);
  return offered;
}
