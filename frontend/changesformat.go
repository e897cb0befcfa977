package frontend

import "settee/pkg/docstore"

// feedFormat is what stands around the rows of a feed.
type feedFormat struct {
	contentType string
	head        string // before all
	before      string // before each row,
	between     string // but for the first, this
	after       string // after each
	event       bool   // after each its sequence is the id of the event
	heartbeat   string
	// What stands around an error that ends the feed early.
	beforeError, afterError string
	// tail returns what stands after all; nil is nothing.
	tail func(last, pending string) []string
}

func formatOf(kind feedKind) feedFormat {
	switch kind {
	case feedContinuous:
		return feedFormat{
			contentType: "application/json", after: "\n", heartbeat: "\n", beforeError: "\n", afterError: "\n",
			tail: func(last, pending string) []string {
				return []string{`{"last_seq":"`, last, `","pending":`, pending, "}\n"}
			},
		}
	case feedEventSource:
		return feedFormat{
			contentType: "text/event-stream", before: "data: ", between: "data: ", event: true,
			heartbeat: "event: heartbeat\ndata: \n\n", beforeError: "event: error\ndata: ", afterError: "\n\n",
		}
	}
	return feedFormat{
		contentType: "application/json", head: "{\"results\":[\n", between: ",\r\n", heartbeat: "\n",
		beforeError: "\n", afterError: "\n",
		tail: func(last, pending string) []string {
			return []string{"\n],\n\"last_seq\":\"", last, `","pending":`, pending, "}\n"}
		},
	}
}

// send sends a row.
func (f *feed) send(row *docstore.ChangeRow, revs []docstore.Rev) error {
	line := appender{to: f.out}
	line.raw(f.opening()).raw(`{"seq":`)
	// A sequence costs its reader something in CouchDB, so that one can do without most.
	known := f.remaining%f.request.interval == 0
	if known {
		line.value(row.Sequence.String())
	} else {
		line.raw("null")
	}
	line.raw(`,"id":`).value(row.ID).raw(`,"changes":[`)
	for i, rev := range revs {
		if i > 0 {
			line.raw(",")
		}
		line.raw(`{"rev":`).value(rev.String()).raw("}")
	}
	line.raw("]")
	if row.Deleted {
		line.raw(`,"deleted":true`)
	}
	if f.request.documents {
		f.document(line.raw(`,"doc":`), row.Document)
	}
	line.raw("}").raw(f.format.after)
	if f.format.event {
		line.raw("\n")
		if known {
			line.raw(`id: "`).raw(row.Sequence.String()).raw("\"\n")
		}
		line.raw("\n")
	}
	return line.err
}

// opening is what stands before the next row.
func (f *feed) opening() string {
	if f.remaining == f.request.limit {
		return f.format.before
	}
	return f.format.between
}

func (f *feed) document(line *appender, doc *docstore.Document) {
	show := shown{encodings: f.request.encodings}
	if f.request.attachments {
		show.content = contentsOf(f.r.Context(), f.db, doc, nil).inline
	}
	line.document(doc, show)
}
