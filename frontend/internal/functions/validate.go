package functions

import (
	"context"
	"encoding/json"
	"errors"

	"settee/frontend/internal/web"
	"settee/pkg/docstore"
	"settee/pkg/jsontext"
)

// errStale is the error for a design document that was replaced meanwhile.
var errStale = errors.New("a design document was replaced")

// knownMost is the largest weight of the design documents of which is known whether they have a validate function. Each
// weighs 1, and one more for each 64 bytes of a selector, which are some kilobytes of memory.
const knownMost = 10_000

const selectorWeight = 64

// designKey is a revision of a design document.
type designKey struct {
	instance string
	docstore.Design
}

// knownDesign is what is known of a design document.
type knownDesign struct {
	key       designKey
	validates bool
	language  string
	selecting selecting // if language is queryLanguage
	weight    int
}

// validator is a design document that has a validate function.
type validator struct {
	design    docstore.Design
	language  string
	selecting selecting
}

// validateMember is the member of design documents with their validate function.
const validateMember = "validate_doc_update"

// validators returns the designs that have a validate function. known is false if some of them have to be looked at
// first (learn). It reads nothing.
func (f *Functions) validators(db *docstore.Database, designs []docstore.Design) (validators []validator, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, design := range designs {
		element := f.known[designKey{db.Instance(), design}]
		if element == nil {
			return nil, false
		}
		f.recency.MoveToBack(element)
		if k, _ := element.Value.(*knownDesign); k.validates {
			validators = append(validators, k.validator())
		}
	}
	return validators, true
}

// learn is validators, but reads the designs that have to be looked at. The error is errStale if one of them is no longer
// there.
func (f *Functions) learn(ctx context.Context, db *docstore.Database, designs []docstore.Design) ([]validator, error) {
	var validators []validator
	for _, design := range designs {
		found, known := f.validators(db, []docstore.Design{design})
		if !known {
			k, err := look(ctx, db, design)
			if err != nil {
				return nil, err
			}
			f.remember(k)
			if k.validates {
				found = []validator{k.validator()}
			}
		}
		validators = append(validators, found...)
	}
	return validators, nil
}

func (k *knownDesign) validator() validator { return validator{k.key.Design, k.language, k.selecting} }

// look reads a design document.
func look(ctx context.Context, db *docstore.Database, design docstore.Design) (*knownDesign, error) {
	doc, err := read(ctx, db, design)
	if err != nil {
		return nil, err
	}
	var body struct {
		Language any             `json:"language"`
		Validate json.RawMessage `json:"validate_doc_update"`
	}
	if err := json.Unmarshal(doc.Body, &body); err != nil {
		return nil, err
	}
	k := &knownDesign{key: designKey{db.Instance(), design}, validates: body.Validate != nil, language: language, weight: 1}
	if body.Language != nil {
		k.language, _ = body.Language.(string)
	}
	if k.validates && k.language == queryLanguage {
		k.selecting = parseSelecting(design.ID, body.Validate)
		k.weight += len(body.Validate) / selectorWeight
	}
	return k, nil
}

func (f *Functions) remember(k *knownDesign) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known[k.key] != nil {
		return
	}
	f.known[k.key] = f.recency.PushBack(k)
	f.weight += k.weight
	for f.weight > knownMost && f.recency.Len() > 1 {
		oldest, _ := f.recency.Remove(f.recency.Front()).(*knownDesign)
		delete(f.known, oldest.key)
		f.weight -= oldest.weight
	}
}

// read reads a revision of a design document.
func read(ctx context.Context, db *docstore.Database, design docstore.Design) (*docstore.Document, error) {
	ctx, cancel := context.WithTimeout(ctx, web.StoreTimeout)
	defer cancel()
	doc, err := db.Get(ctx, design.ID, docstore.GetOptions{Rev: design.Rev})
	if errors.Is(err, docstore.ErrNotFound) {
		return nil, errStale
	}
	return doc, err
}

// validate asks the validate functions of validators, one after the other. The error is a [web.Failure] with what the
// first function says that refuses the write, or that cannot be run. It is errStale if a design document is no longer
// there.
func (f *Functions) validate(ctx context.Context, db *docstore.Database, validators []validator, arguments Arguments) error {
	text, err := jsontext.Encode(arguments)
	if err != nil {
		return err
	}
	for _, v := range validators {
		switch v.language {
		case queryLanguage:
			if err := v.selecting.validate(ctx, v.design.ID, arguments); err != nil {
				return err
			}
			continue
		case language:
		default:
			return failed("unknown_query_language", v.language)
		}
		p := program(db, v.design, "validate", []string{validateMember}, func() (*docstore.Document, error) {
			return read(ctx, db, v.design)
		})
		out, err := f.call(ctx, p, string(text))
		if err != nil {
			return err
		}
		if out.Thrown != nil {
			if err := refusal(p.Name, out.Thrown); err != nil {
				return err
			}
		}
	}
	return nil
}

// refusal returns the failure for what a validate function has thrown. As in CouchDB, 1 and true are none.
func refusal(name string, thrown json.RawMessage) error {
	if s := string(thrown); s == "1" || s == "true" {
		return nil
	}
	if text, is := jsontext.String(thrown); is {
		return failed("unknown_error", text)
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(thrown, &members) == nil && len(members) == 1 {
		for member, value := range members {
			reason, is := jsontext.String(value)
			if !is {
				reason = string(value)
			}
			switch member {
			case "forbidden":
				return web.Forbidden(reason)
			case "unauthorized":
				return web.Unauthorized(reason)
			}
			return failed("unknown_error", reason)
		}
	}
	return failed("unknown_error", name+": it has thrown "+web.Cut(string(thrown)))
}
