package jsontext_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"settee/pkg/jsontext"
)

func TestCut(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text string
		most int
		want string
	}{
		{"", 0, ""}, {"abc", 3, "abc"}, {"abc", 2, "ab"}, {"aéé", 2, "a"}, {"aéé", 3, "aé"}, {"aéé", 5, "aéé"},
		{"\x80\x80\x80\x80", 2, ""}, {"\x80\x80\x80\x80", 3, "\uFFFD"}, {"a\xff", 9, "a\uFFFD"},
	} {
		assert.Equal(t, test.want, jsontext.Cut(test.text, test.most), test)
	}
}
