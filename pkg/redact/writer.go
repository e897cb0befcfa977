package redact

import "io"

// Writer passes lines on, with the passwords in URLs masked: the last line of defence of a log,
// whose writer writes each line at once.
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
