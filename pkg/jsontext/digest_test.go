package jsontext_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"settee/pkg/jsontext"
)

// Nodes of several releases compare digests, so they must stay what they are.
func TestDigest(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "44136fa355b3678a1146ad16f7e8649e", jsontext.Digest([]byte("{}")))
	one := jsontext.Digest([]byte(`{"b":[1.0,"<"],"a":{"d":null,"c":true}}`))
	assert.Equal(t, one, jsontext.Digest([]byte(` { "a" : {"c":true, "d":null}, "b":[1.0, "\u003c"] } `)))
	for _, other := range []string{`{"b":[1,"<"],"a":{"d":null,"c":true}}`, `{"b":["<",1.0],"a":{"d":null,"c":true}}`, `{"a":{"d":null,"c":true}}`, `x`} {
		assert.NotEqual(t, one, jsontext.Digest([]byte(other)), other)
	}
}
