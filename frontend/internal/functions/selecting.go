package functions

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"settee/frontend/internal/web"
	"settee/pkg/jsontext"
	"settee/pkg/selector"
)

// queryLanguage is the language of design documents whose validate function is a selector. It matches an object with the
// members newDoc and oldDoc; oldDoc is null if nothing is replaced.
const queryLanguage = "query"

// selecting is a validate function that is a selector. The zero value is none.
type selecting struct {
	selector *selector.Selector
	wrong    *web.Failure // the selector cannot be used
}

// parseSelecting parses the selector of the design document with an id.
func parseSelecting(id string, text json.RawMessage) selecting {
	parsed, err := selector.Parse(text)
	var wrong *selector.Error
	switch {
	case errors.As(err, &wrong):
		return selecting{wrong: failed(wrong.Name, id+" "+validateMember+": "+wrong.Reason)}
	case err != nil:
		return selecting{wrong: failed("unknown_error", id+" "+validateMember+": "+err.Error())}
	}
	return selecting{selector: parsed}
}

// validate returns the failure of a write that the selector does not match.
func (s selecting) validate(ctx context.Context, id string, arguments Arguments) error {
	if s.wrong != nil {
		return s.wrong
	}
	text, err := jsontext.Encode(map[string]json.RawMessage{"newDoc": arguments.Doc, "oldDoc": arguments.Old})
	if err != nil {
		return err
	}
	matches, err := s.selector.Match(ctx, text)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return failed("unknown_error", id+" "+validateMember+": "+err.Error())
	case !matches:
		return web.NewFailure(http.StatusForbidden, "forbidden", "document is not valid")
	}
	return nil
}
