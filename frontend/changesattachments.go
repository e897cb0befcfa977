package frontend

import (
	"bufio"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"

	"settee/pkg/docstore"
)

// content appends the contents of a document's attachments, decoded, as base64. An
// attachment whose revision was replaced since the row was read is a stub: the document
// comes again.
func (f *feed) content(id string) func(*appender, docstore.Attachment) {
	return func(a *appender, attachment docstore.Attachment) {
		if a.err != nil {
			return
		}
		stored := bufio.NewReader(f.db.ReadAttachment(f.r.Context(), id, attachment))
		if _, err := stored.Peek(1); errors.Is(err, docstore.ErrNotFound) {
			a.raw(`,"length":`).number(attachment.Length).raw(`,"stub":true`)
			return
		}
		a.raw(`,"data":"`)
		if a.err == nil {
			a.err = appendContent(a.to, stored, attachment.Encoding)
		}
		a.raw(`"`)
	}
}

func appendContent(to io.Writer, stored io.Reader, encoding string) error {
	content := stored
	if encoding == "gzip" {
		decoded, err := gzip.NewReader(stored)
		if err != nil {
			return fmt.Errorf("decoding an attachment: %w", err)
		}
		content = decoded
	}
	encoder := base64.NewEncoder(base64.StdEncoding, to)
	if _, err := io.Copy(encoder, content); err != nil {
		return fmt.Errorf("reading an attachment: %w", err)
	}
	return encoder.Close()
}
