package kv_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"

	"settee/pkg/kv"
)

func TestPrefixRange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ prefix, end string }{
		{"\x00", "\x01"}, {"a", "b"}, {"aa", "ab"}, {"a\xff", "b"}, {"a\xff\xff", "b"}, {"\xfe\xff", "\xff"},
		{"\xff\x00", "\xff\x01"}, {"\xff\x00\xff", "\xff\x01"}, {"", "\xff"}, {"\xff", "\xff"},
	} {
		prefix := []byte(c.prefix)
		got := kv.PrefixRange(prefix)
		assert.Equal(t, c.prefix, string(prefix), "the argument does not change")
		clear(prefix)
		assert.Equal(t, c.prefix, string(got.Begin))
		assert.Equal(t, c.end, string(got.End), "%q", c.prefix)
		assert.LessOrEqual(t, bytes.Compare(got.Begin, got.End), 0)
	}
}
