package redact

import "io"

// Writer returns a writer that masks the passwords in URLs, as the last defence of a log. Each
// Write must have whole lines.
func Writer(to io.Writer) io.Writer { return writer{to} }

type writer struct{ to io.Writer }

func (w writer) Write(line []byte) (int, error) {
	text := string(line)
	masked := Text(text)
	if masked == text {
		return w.to.Write(line)
	}
	if _, err := io.WriteString(w.to, masked); err != nil {
		return 0, err
	}
	return len(line), nil
}
