package databases

import (
	"settee/frontend/internal/web"
	"settee/pkg/docstore"
)

// feedFormat is the text around the rows of a feed.
type feedFormat struct {
	contentType string
	head        string // at the beginning
	before      string // before the first row
	between     string // before each other row
	after       string // after each row
	event       bool   // each row is followed by its sequence as the id of an event
	heartbeat   string
	// The text around an error that ends the feed early.
	beforeError, afterError string
	// tail returns the text after the last row. A nil tail means that there is no text.
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

// updatesFormatOf returns the text around the rows of a feed of _db_updates, whose ends have no number of pending rows.
func updatesFormatOf(kind feedKind) feedFormat {
	format := formatOf(kind)
	switch kind {
	case feedContinuous:
		format.tail = func(last, _ string) []string { return []string{`{"last_seq":"`, last, "\"}\n"} }
	case feedEventSource:
	default:
		format.tail = func(last, _ string) []string { return []string{"\n],\n\"last_seq\":\"", last, "\"}\n"} }
	}
	return format
}

// send sends a row.
func (f *feed) send(row *docstore.ChangeRow, revs []docstore.Rev) error {
	line := web.Appender{To: f.out}
	line.Raw(f.opening()).Raw(`{"seq":`)
	// In CouchDB sequences are costly, so clients can do without most of them (seq_interval).
	known := f.remaining%f.request.interval == 0
	if known {
		line.Value(row.Sequence.String())
	} else {
		line.Raw("null")
	}
	line.Raw(`,"id":`).Value(row.ID).Raw(`,"changes":[`)
	for i, rev := range revs {
		line.Raw(web.Separator(i)).Raw(`{"rev":`).Value(rev.String()).Raw("}")
	}
	line.Raw("]")
	if row.Deleted {
		line.Raw(`,"deleted":true`)
	}
	if f.request.documents {
		f.document(line.Raw(`,"doc":`), row.Document)
	}
	line.Raw("}").Raw(f.format.after)
	if f.format.event {
		line.Raw("\n")
		if known {
			line.Raw(`id: "`).Raw(row.Sequence.String()).Raw("\"\n")
		}
		line.Raw("\n")
	}
	return line.Err
}

// opening returns the text before the next row.
func (f *feed) opening() string {
	if f.remaining == f.request.limit {
		return f.format.before
	}
	return f.format.between
}

func (f *feed) document(line *web.Appender, doc *docstore.Document) {
	show := shown{encodings: f.request.encodings, bodies: bodies{f.r.Context(), f.db}}
	if f.request.attachments {
		show.content = contentsOf(f.r.Context(), f.db, doc, nil).inline
	}
	show.document(line, doc)
}
