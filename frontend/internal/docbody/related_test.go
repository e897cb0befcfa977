package docbody_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/docbody"
)

const relatedType = `multipart/related; boundary="abc"`

// body builds a body of parts: headers, an empty line and the content.
func body(parts ...string) string {
	var text strings.Builder
	for _, part := range parts {
		headers, content, _ := strings.Cut(part, "\n\n")
		if headers != "" {
			headers += "\r\n"
		}
		text.WriteString("--abc\r\n" + headers + "\r\n" + content + "\r\n")
	}
	return text.String() + "--abc--"
}

func contents(t testing.TB, text io.Reader, contentType string) (*docbody.Document, map[string]string, error) {
	t.Helper()
	related, err := docbody.ReadRelated(text, contentType, docbody.Options{})
	if err != nil {
		return nil, nil, err
	}
	defer func() { require.NoError(t, related.Close()) }()
	found := map[string]string{}
	for {
		i, part, err := related.Next()
		if err == io.EOF {
			return related.Document, found, nil
		}
		if err != nil {
			return nil, found, err
		}
		content, err := io.ReadAll(part)
		if err != nil {
			return nil, found, err
		}
		_, twice := found[related.Document.Attachments[i].Name]
		require.False(t, twice)
		found[related.Document.Attachments[i].Name] = string(content)
	}
}

const two = "Content-Type: application/json\n\n" + `{"_id":"x","_attachments":{
	"a":{"follows":true,"length":5},"s":{"stub":true},"b/ü":{"follows":true,"length":99,"encoded_length":2,"encoding":"gzip"}}}`

func TestRelated(t *testing.T) {
	t.Parallel()
	want := map[string]string{"a": "12345", "b/ü": "xy"}
	for name, text := range map[string]string{
		"in order":        body(two, "\n\n12345", "\n\nxy"),
		"by name":         body(two, "Content-Disposition: attachment; filename=\"b/ü\"\n\nxy", "Content-Disposition: attachment; filename=\"a\"\n\n12345"),
		"one by name":     body(two, "Content-Disposition: attachment; filename=\"b/ü\"\n\nxy", "\n\n12345"),
		"other names":     body(two, "Content-Disposition: attachment; filename=\"1\"\n\n12345", "Content-Disposition: attachment; filename=\"2\"\n\nxy"),
		"broken names":    body(two, "Content-Disposition: attachment; filename=\"a\"b\"\n\n12345", "Content-Disposition: ;;\n\nxy"),
		"more headers":    body(two, "Content-Length: 77\r\nContent-Transfer-Encoding: quoted-printable\n\n12345", "\n\nxy"),
		"with preamble":   "before\r\n" + body(two, "\n\n12345", "\n\nxy") + "\r\nbehind",
		"with epilogue":   body(two, "\n\n12345", "\n\nxy") + "behind\r\n--abc\r\n\r\nmore\r\n--abc--",
		"with dashes":     body(two, "\n\n12345", "\n\nxy") + "--abc--",
		"JSON by default": body(strings.TrimPrefix(two, "Content-Type: application/json"), "\n\n12345", "\n\nxy"),
	} {
		for _, reader := range []func(io.Reader) io.Reader{
			func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.DataErrReader,
		} {
			doc, got, err := contents(t, reader(strings.NewReader(text)), relatedType)
			require.NoError(t, err, name)
			require.Equal(t, want, got, name)
			require.Equal(t, "x", doc.ID)
			require.Equal(t, "gzip", doc.Attachments[2].Encoding)
			require.Equal(t, int64(99), doc.Attachments[2].Length)
		}
	}
	_, got, err := contents(t, strings.NewReader(body(`

{"_attachments":{"0":{"follows":true,"length":0},"any":{"follows":true}}}`, "\n\n", "\n\nany length")), relatedType)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"0": "", "any": "any length"}, got)

	doc, got, err := contents(t, strings.NewReader(body("\n\n"+`{"_attachments":{"i":{"data":"AA=="}}}`)), relatedType)
	require.NoError(t, err)
	require.Empty(t, got)
	require.Len(t, doc.Attachments, 1)
}

func TestRelatedThatIsNot(t *testing.T) {
	t.Parallel()
	whole := body(two, "\n\n12345", "\n\nxy")
	named := "Content-Disposition: attachment; filename=\"a\"\n\n12345"
	for text, want := range map[string]struct {
		code   docbody.Code
		reason string
	}{
		"":                    {docbody.BadRequest, "the body ends before its last boundary"},
		"--abc--":             {docbody.BadRequest, "the first part of the body, which is the document, is missing"},
		whole[:len(whole)-2]:  {docbody.BadRequest, "the body ends before its last boundary"},
		whole[:len(whole)-10]: {docbody.BadRequest, "the body ends before its last boundary"},
		whole[:20]:            {docbody.BadRequest, "the first part of the body, which is the document, is missing"},
		whole[:60]:            {docbody.BadRequest, "the body ends before its last boundary"},
		"--abc\r\nno header\r\n\r\n{}\r\n--abc--": {docbody.BadRequest, "the body is not made of parts with headers, as its Content-Type says"},
		body("Content-Type: text/plain\n\n{}"):    {docbody.BadContentType, "Content-Type of the first part must be application/json"},
		body("\n\n{"):                             {docbody.BadRequest, "invalid UTF-8 JSON"},
		body(two):                                 {docbody.BadRequest, `the content of the attachment "a" is missing`},
		body(two, "\n\n12345"):                    {docbody.BadRequest, `the content of the attachment "b/ü" is missing`},
		body(two, "\n\n12345", "\n\nxy", "\n\n"):  {docbody.BadRequest, "the body has more parts than the document has attachments that follow"},
		body(two, named, named):                   {docbody.BadRequest, `the body has two parts for the attachment "a"`},
		body(two, "\n\n1234", "\n\nxy"):           {docbody.BadRequest, `attachment shorter than expected: "a" should have 5 bytes`},
		body(two, "\n\n123456", "\n\nxy"):         {docbody.BadRequest, `attachment longer than expected: "a" should have 5 bytes`},
		body(two, "\n\n12345", "\n\nx"):           {docbody.BadRequest, `attachment shorter than expected: "b/ü" should have 2 bytes`},
	} {
		_, _, err := contents(t, strings.NewReader(text), relatedType)
		refused(t, err, want.code, want.reason)
	}
	for _, contentType := range []string{"multipart/related", "multipart/related; boundary=", "multipart/related; ;;"} {
		_, _, err := contents(t, strings.NewReader(whole), contentType)
		refused(t, err, docbody.BadRequest, "Content-Type multipart/related must have a boundary")
	}
	require.True(t, docbody.IsRelated(`Multipart/Related;boundary=x`))
	require.False(t, docbody.IsRelated("application/json"))
	require.False(t, docbody.IsRelated(""))
}

func TestRelatedThatIsNotReceived(t *testing.T) {
	t.Parallel()
	whole := body(two, "\n\n12345", "\n\nxy")
	failed := errors.New("failed")
	for n := range len(whole) {
		reader := io.MultiReader(strings.NewReader(whole[:n]), iotest.ErrReader(failed))
		_, _, err := contents(t, reader, relatedType)
		if n < len(whole)-2 || err != nil {
			require.ErrorIs(t, err, failed, n)
		}
	}
}

// FuzzMultipart reads any bytes as multipart. An accepted body has a content for each attachment that follows.
func FuzzMultipart(f *testing.F) {
	f.Add([]byte(body(two, "\n\n12345", "\n\nxy")))
	f.Add([]byte(body(two, "Content-Disposition: attachment; filename=\"b/ü\"\n\nxy", "\n\n12345")))
	f.Add([]byte(body("\n\n"+`{"_attachments":{"a":{"follows":true},"i":{"data":"AA=="}}}`, "\n\n--abc")))
	f.Add([]byte("--abc\n\n{}\n--abc--\n"))
	f.Add([]byte(body(two, "\n\n12345", "\n\nxy") + "behind"))
	f.Add([]byte("--abc\r\n\r\n{}\r\n\r\n--abc\r\n--abc-\r\n--abc--x"))
	f.Add([]byte("--abc\n\n{}\n--abc\r\n--abc\r\n"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, text []byte) {
		var doc *docbody.Document
		var found map[string]string
		var err error
		bodyBound.Check(t, len(text), func() { doc, found, err = contents(t, strings.NewReader(string(text)), relatedType) })
		if err != nil {
			var bad *docbody.Error
			require.ErrorAs(t, err, &bad)
			return
		}
		n := 0
		for _, a := range doc.Attachments {
			if a.Follows {
				n++
				require.Contains(t, found, a.Name)
			}
		}
		require.Len(t, found, n)
	})
}

// fields reads a form. Files have their names and types in front.
func fields(text io.Reader) (found [][2]string, err error) {
	form, err := docbody.ReadForm(text, `multipart/form-data; boundary="abc"`)
	for err == nil {
		var field *docbody.Field
		if field, err = form.Next(); err != nil {
			break
		}
		name := field.Name
		if field.IsFile {
			name += " " + field.FileName + " " + field.ContentType
		}
		var content []byte
		content, err = io.ReadAll(field.Content)
		found = append(found, [2]string{name, string(content)})
	}
	if err == io.EOF {
		err = nil
	}
	return found, err
}

func TestForm(t *testing.T) {
	t.Parallel()
	const disposition = "Content-Disposition: form-data; name="
	text := body(disposition+"_doc\n\n{}", disposition+`"a"; filename="b/ü.txt"`+"\r\nContent-Type: text/plain; charset=utf-8\n\n1\r\n2",
		disposition+`a; filename=""`+"\n\n", "\n\nno name")
	want := [][2]string{{"_doc", "{}"}, {"a b/ü.txt text/plain", "1\r\n2"}, {"a  application/octet-stream", ""}, {"", "no name"}}
	for _, reader := range []func(io.Reader) io.Reader{
		func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.DataErrReader,
	} {
		got, err := fields(reader(strings.NewReader(text + "behind")))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := fields(strings.NewReader(text[:len(text)-1]))
	refused(t, err, docbody.BadRequest, "the body ends before its last boundary")
	_, err = docbody.ReadForm(strings.NewReader(text), "multipart/form-data")
	refused(t, err, docbody.BadRequest, "Content-Type multipart/form-data must have a boundary")
	file := disposition + `a; filename="` + strings.Repeat("x", 1_000_000) + "\"\n\n"
	_, err = fields(strings.NewReader(body(file, file, file)))
	refused(t, err, docbody.DocumentTooLarge, "the names and types of the attachments have more than 2000000 bytes")
}

// FuzzForm reads any bytes as a form.
func FuzzForm(f *testing.F) {
	f.Add([]byte(body("Content-Disposition: form-data; name=_doc\n\n{}", "Content-Disposition: form-data; name=a; filename=b\n\n1") + "behind"))
	f.Add([]byte("--abc\n\n{}\n--abc--\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var err error
		bodyBound.Check(t, len(text), func() { _, err = fields(strings.NewReader(string(text))) })
		if err != nil {
			require.ErrorAs(t, err, new(*docbody.Error))
		}
	})
}
