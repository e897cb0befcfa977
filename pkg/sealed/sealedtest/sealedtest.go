// Package sealedtest makes keys for tests of sealed values.
package sealedtest

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/sealed"
)

// Keys returns keys with these ids, in this order. A key depends only on the first letter of its
// id.
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
