// Package sealedtest makes keys for the tests of what is sealed.
package sealedtest

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/sealed"
)

// Keys returns keys of some ids, the first one first. A key is made of the first letter of its id:
// the same id is the same key.
func Keys(t testing.TB, ids ...string) *sealed.Keys {
	t.Helper()
	var text strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&text, "%s %s\n", id, base64.StdEncoding.EncodeToString([]byte(strings.Repeat(id[:1], 32))))
	}
	keys, err := sealed.Parse("keys", []byte(text.String()))
	require.NoError(t, err)
	return keys
}
