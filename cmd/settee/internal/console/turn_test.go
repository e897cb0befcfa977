package console

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/cmd/settee/internal/remote"
)

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// A document that was written without an answer is read again: the error says whether it was turned round.
func TestTurnRound(t *testing.T) {
	t.Parallel()
	const (
		before  = `{"_id":"m","_rev":"1-a","source":"a","target":"b","n":1,"_replication_state":"running"}`
		turned  = `{"_id":"m","_rev":"2-b","source":"b","n":1.0,"target":"a","owner":"ann","_replication_state":"error"}`
		changed = `{"_id":"m","_rev":"2-c","source":"c","target":"b"}`
	)
	type answer struct {
		status int // 0: no answer
		body   string
	}
	lost, conflict, refused := answer{}, answer{409, `{"error":"conflict"}`}, answer{403, `{"error":"forbidden"}`}
	for _, test := range []struct {
		name    string
		answers []answer // to a PUT, a GET, a PUT and so on
		says    string
	}{
		{"written", []answer{{201, `{"rev":"2-b"}`}}, ""},
		{"written, and the answer is lost", []answer{lost, {200, turned}}, ""},
		{"written, and sent again by the transport", []answer{conflict, {200, turned}}, ""},
		{"not written at first", []answer{lost, {200, before}, lost, {200, turned}}, ""},
		{"written after it was read", []answer{lost, {200, before}, conflict, {200, turned}}, ""},
		{"never written", []answer{lost, {200, before}, lost, {200, before}, lost, {200, before}}, "the document was not turned round: "},
		{"refused", []answer{refused, {200, before}}, "the document was not turned round: "},
		{"changed", []answer{conflict, {200, changed}}, "somebody has changed it meanwhile"},
		{"deleted", []answer{conflict, {404, `{"error":"not_found"}`}}, "somebody has changed it meanwhile"},
		{"not readable", []answer{lost, lost, lost, lost, lost, lost}, "it is not known whether the document was turned round: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				left := append([]answer{{200, before}}, test.answers...)
				server, err := remote.Connect("the node", "http://node.example", transport(func(r *http.Request) (*http.Response, error) {
					next := left[0]
					assert.Equal(t, len(left)%2 != len(test.answers)%2, r.Method == http.MethodGet)
					if left = left[1:]; next.status == 0 {
						return nil, errors.New("cut")
					}
					return &http.Response{StatusCode: next.status, Body: io.NopCloser(strings.NewReader(next.body))}, nil
				}))
				require.NoError(t, err)
				database, id := "_replicator", "m"
				node := &Node{server}
				doc, err := node.Document(t.Context(), Job{Database: &database, DocID: &id})
				require.NoError(t, err)
				if err = node.TurnRound(t.Context(), doc); test.says == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, test.says)
				}
				assert.Empty(t, left)
			})
		})
	}
}
