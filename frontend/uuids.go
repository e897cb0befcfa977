package frontend

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"

	"settee/pkg/config"
)

// newUUID returns 32 hexadecimal digits, all of them random.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func (h *Handler) uuids(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r)
	count, most := q.count("count", 1), config.MaxUUIDs.Get(h.config.Current())
	if q.err != nil {
		return q.err
	}
	if count > most {
		return badRequest(fmt.Sprintf("count parameter too large: the most is %d (%s)", most, config.MaxUUIDs))
	}
	ids := make([]string, count)
	for i := range ids {
		ids[i] = newUUID()
	}
	// Nobody on the way may hand the same ids to another client.
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("Expires", "Mon, 01 Jan 1990 00:00:00 GMT")
	w.Header().Set("Pragma", "no-cache")
	w.Header().Set("ETag", `"`+newUUID()+`"`)
	return respond(w, r, http.StatusOK, struct {
		UUIDs []string `json:"uuids"`
	}{ids})
}
