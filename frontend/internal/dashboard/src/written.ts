// Whether a write whose answer is lost has taken place.

/** The members that the author of a document writes, as a text: without special members and the owner, which the node writes. */
const textOf = (doc: Record<string, unknown>) =>
  JSON.stringify(
    Object.entries(doc)
      .filter(([name, value]) => value !== undefined && name !== "owner" && !name.startsWith("_"))
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  );

/** Whether a document that was read is what was written. A request that a browser repeats meets its own document, and is a conflict. */
export const isAsWritten = (read: Record<string, unknown>, written: Record<string, unknown>) => textOf(read) === textOf(written);
