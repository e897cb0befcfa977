package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"

	"settee/cmd/settee/internal/console"
)

// printer is the output of a command. What commands print has texts of other servers in it, which could move the cursor,
// clear the screen or rename the window: a printer writes such characters as JSON does, such as \u001b. So what is JSON
// stays what it is. The characters \n and \t stay.
type printer struct {
	file *os.File

	mu   sync.Mutex
	rest []byte // the beginning of a character whose end comes with the next Write
}

// Write implements io.Writer.
func (p *printer) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	shown, rest := harmless(append(p.rest, text...))
	p.rest = rest
	if _, err := p.file.Write(shown); err != nil {
		return 0, err
	}
	return len(text), nil
}

// harmless returns a text without what a terminal obeys, and the beginning of a character at its end.
func harmless(text []byte) (shown, rest []byte) {
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		switch {
		case r == '\n', r == '\t':
			shown = append(shown, byte(r))
		case r == utf8.RuneError && !utf8.FullRune(text[at:]):
			return shown, text[at:]
		case !console.Obeyed(r):
			shown = utf8.AppendRune(shown, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			shown = fmt.Appendf(shown, `\u%04x\u%04x`, high, low)
		default:
			shown = fmt.Appendf(shown, `\u%04x`, r)
		}
		at += size
	}
	return shown, nil
}

// bytesOf returns an output of a command without the printer, for what is not text.
func bytesOf(stream io.Writer) io.Writer {
	if p, ok := stream.(*printer); ok {
		return p.file
	}
	return stream
}

// terminal returns the terminal that an input or an output of a command is, otherwise nil. What it shows besides texts, such as bars
// and colors, and passwords, which may be printed on a terminal but not in a log, are written to it directly.
func terminal(stream any) *os.File {
	if p, ok := stream.(*printer); ok {
		stream = p.file
	}
	if file, ok := stream.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return file
	}
	return nil
}
