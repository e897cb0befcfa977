package functions

import (
	"container/list"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/rs/zerolog"

	"settee/frontend/internal/web"
	"settee/pkg/config"
	"settee/pkg/docstore"
	"settee/pkg/jsontext"
	"settee/pkg/redact"
	"settee/pkg/script"
)

//go:embed prelude.js
var prelude string

// language is the language of functions, and the default of design documents.
const language = "javascript"

// Functions runs functions. It is safe for concurrent use.
type Functions struct {
	engine *script.Engine

	mu      sync.Mutex // guards the fields below
	known   map[designKey]*list.Element
	recency *list.List // of *knownDesign; the one that was used last at the end
	weight  int        // of all of them
}

// memoryPart is the part of the memory of clients that one function may take.
const memoryPart = 4

// New returns what runs functions within the limits of the settings. One function may take a quarter of memory, the
// number of bytes for all clients, even if the settings allow more.
func New(settings web.Settings, memory int64) *Functions {
	limits := func() script.Limits {
		cfg := settings.Current()
		return script.Limits{
			Time: config.FunctionTimeout.Get(cfg), Memory: int(min(config.FunctionMemory.Get(cfg), memory/memoryPart)),
			Instances: config.FunctionLimit.Get(cfg), Idle: config.FunctionIdleLimit.Get(cfg),
		}
	}
	return &Functions{engine: script.New(limits, web.ReserveMemory), known: map[designKey]*list.Element{}, recency: list.New()}
}

// Close frees the memory of functions that are not running.
func (f *Functions) Close() { f.engine.Close() }

// setUp is the configuration of a program; see prelude.js.
type setUp struct {
	Kind    string          `json:"kind"`
	Name    string          `json:"name"`
	Path    []string        `json:"path,omitempty"`
	Design  json.RawMessage `json:"ddoc,omitempty"`
	Sources []string        `json:"sources,omitempty"`
}

// outcome is the result of a call; see prelude.js.
type outcome struct {
	Ended  bool            `json:"ended"`
	Log    []string        `json:"log"`
	Error  []string        `json:"error"`
	Passed []bool          `json:"passed"`
	Thrown json.RawMessage `json:"thrown"`
	Failed int             `json:"failed"`
}

// program returns the program of a function of a design document. read reads the document; it is called when the program
// is set up.
func program(db *docstore.Database, design docstore.Design, kind string, path []string, read func() (*docstore.Document, error)) *script.Program {
	name := design.ID + " " + strings.Join(path, ".")
	return &script.Program{
		Owner:  db.Instance(),
		Key:    strings.Join(append([]string{db.Instance(), kind, design.ID, design.Rev.String()}, path...), "\x00"),
		Name:   name,
		Source: prelude,
		Config: func() (string, error) {
			doc, err := read()
			if err != nil {
				return "", err
			}
			text, err := jsontext.Encode(setUp{Kind: kind, Name: name, Path: path, Design: withID(doc)})
			return string(text), err
		},
	}
}

// withID returns a document as functions see a design document: with its id and its revision.
func withID(doc *docstore.Document) json.RawMessage {
	id, _ := json.Marshal(doc.ID) // a string can be encoded
	head := `{"_id":` + string(id) + `,"_rev":"` + doc.Rev.String() + `"`
	body := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(string(doc.Body)), "{"))
	if body != "}" {
		head += ","
	}
	return json.RawMessage(head + body)
}

// call calls a program. A function that could not run to its end is a [web.Failure], and what it had done is returned,
// too.
func (f *Functions) call(ctx context.Context, p *script.Program, argument string) (outcome, error) {
	text, err := f.engine.Call(ctx, p, argument)
	if err != nil {
		return outcome{}, engineFailure(err)
	}
	var out outcome
	if json.Unmarshal([]byte(text), &out) != nil || !out.Ended || len(out.Error) == 1 {
		return outcome{}, failed("unknown_error", p.Name+": the function has changed how results are made")
	}
	for _, line := range out.Log {
		zerolog.Ctx(ctx).Debug().Str("function", p.Name).Str("message", redact.Text(line)).Msg("a function of a design document says")
	}
	if len(out.Error) > 0 {
		return out, failed(out.Error[0], out.Error[1])
	}
	return out, nil
}

// failed returns the failure of a request whose function could not run to its end.
func failed(code, reason string) *web.Failure {
	return web.NewFailure(http.StatusInternalServerError, code, reason)
}

// engineFailure returns the failure for an error of the engine. Other errors are returned as they are.
func engineFailure(err error) error {
	switch {
	case errors.Is(err, script.ErrTime), errors.Is(err, script.ErrMemory), errors.Is(err, script.ErrStack),
		errors.Is(err, script.ErrEngine), errors.Is(err, script.ErrResult):
		return failed("os_process_error", err.Error())
	case errors.Is(err, script.ErrBusy):
		return web.Unavailable(err.Error())
	case errors.As(err, new(*script.Exception)):
		return failed("unknown_error", err.Error())
	}
	return err
}
