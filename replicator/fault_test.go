package replicator

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/redact"
)

func TestFaultsAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\x01", 100_000) // six bytes each in JSON
	f := Fault{
		Path: long, Host: long, Database: long, Proxy: long, Word: long, Said: long, User: long, Detail: long, Text: long,
		Document: &DocRef{ID: long, Rev: long},
	}
	text, err := json.Marshal(f)
	require.NoError(t, err)
	require.Less(t, len(text), 35_000)
	require.Len(t, f.Detail, 100_000, "the fault itself is not changed")
	text, err = json.Marshal(Activity{Waiting: []Wait{{Fault: &f}, {Fault: &f}}})
	require.NoError(t, err)
	require.Less(t, len(text), 60_000)
}

// Servers and users choose some parts of a fault, and these are masked. The others are of the definition, and shown.
func TestRedactedFaults(t *testing.T) {
	t.Parallel()
	secrets := redact.Set{}.With("s3cr3t-word")
	const told = "it says s3cr3t-word"
	f := &Fault{
		Code: FaultServerError, Path: "/db/s3cr3t-word", Host: "a.example:5984", Word: told, Said: told, Detail: told, Text: told, User: "me",
		Document: &DocRef{ID: told, Rev: told}, At: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
	}
	text, err := json.Marshal(f.Redacted(secrets))
	require.NoError(t, err)
	require.NotContains(t, string(text), "s3cr3t")
	require.Contains(t, string(text), `"host":"a.example:5984"`)
	require.Contains(t, string(text), `"user":"me"`)
	require.Contains(t, string(text), `"at":"2026-01-02T03:04:05Z"`)
	require.Equal(t, told, f.Said, "the fault itself is not changed")
	require.Equal(t, "*****", (&Fault{User: "s3cr3t-word"}).Redacted(secrets).User)
	require.Nil(t, (*Fault)(nil).Redacted(secrets))
	text, err = json.Marshal(Fault{Detail: "GET http://me:s3cr3t@a.example/db: no"})
	require.NoError(t, err)
	require.NotContains(t, string(text), "s3cr3t")

	state := JobState{Fault: f, Activity: &Activity{Waiting: []Wait{{Fault: f}}}}
	state.Redact(secrets)
	text, err = json.Marshal(&state)
	require.NoError(t, err)
	require.NotContains(t, string(text), "s3cr3t")
}
