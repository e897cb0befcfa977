package kv_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

func TestApart(t *testing.T) {
	t.Parallel()
	called := false
	kv.Apart(func() { called = true })
	assert.True(t, called)
	require.PanicsWithValue(t, "the caller's", func() { kv.Apart(func() { panic("the caller's") }) })
}
