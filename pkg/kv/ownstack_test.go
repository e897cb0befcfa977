package kv_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

func TestOnOwnStack(t *testing.T) {
	t.Parallel()
	called := false
	kv.OnOwnStack(func() { called = true })
	assert.True(t, called)
	require.PanicsWithValue(t, "the caller's", func() { kv.OnOwnStack(func() { panic("the caller's") }) })
}
