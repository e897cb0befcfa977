package docbody

import (
	"cmp"
	"io"
	"mime"
)

// Form is a multipart/form-data body. Its fields are read as they arrive.
type Form struct {
	parts *parts
	left  int // number of bytes left for the names and types of files
}

// Field is a field of a form. Content must be read before the next field.
type Field struct {
	Name    string
	Content io.Reader
	// IsFile is true if the field is a file. FileName may be empty.
	IsFile                bool
	FileName, ContentType string
}

// FormType is the content type of a form.
const FormType = "multipart/form-data"

// ReadForm returns the form in a body. The caller must not read from the body.
func ReadForm(body io.Reader, contentType string) (*Form, error) {
	parts, err := newParts(body, FormType, contentType)
	if err != nil {
		return nil, err
	}
	return &Form{parts, maxSpecial}, nil
}

// Next returns the next field. After the last one the error is io.EOF.
func (f *Form) Next() (*Field, error) {
	part, err := f.parts.next()
	if err != nil {
		return nil, err
	}
	params := disposition(part)
	field := &Field{Name: params["name"], Content: &partReader{parts: f.parts, part: part, want: -1}}
	if field.FileName, field.IsFile = params["filename"]; !field.IsFile {
		return field, nil
	}
	// As in CouchDB without parameters.
	kind, _, _ := mime.ParseMediaType(part.Header.Get("Content-Type"))
	field.ContentType = cmp.Or(kind, DefaultContentType)
	const each = 100
	if f.left -= len(field.FileName) + len(field.ContentType) + each; f.left < 0 {
		return nil, refuse(DocumentTooLarge, "the names and types of the attachments have more than %d bytes", maxSpecial)
	}
	return field, nil
}
