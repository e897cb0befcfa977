package couch

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whoever reads the connection of an attachment is told how many bytes are left.
func TestAttachmentsTellWhatIsLeft(t *testing.T) {
	t.Parallel()
	var left []int64
	a := NewAttachmentReader(Attachment{Name: "a", Length: 5}, strings.NewReader("hello"))
	a.expect = func(bytes int64) { left = append(left, bytes) }
	_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, a, make([]byte, 2))
	require.NoError(t, err)
	require.Equal(t, []int64{3, 1, 0}, left)
}
