package papers

import (
	"encoding/xml"
	"fmt"
	"html"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	columns     = 108 // of the terminal in the picture
	lineHeight  = 18
	charWidth10 = 73 // ten times the width of a letter
	margin      = 14
)

var (
	storeDir = regexp.MustCompile(`/\S*/settee-demo\d+`)
	varies   = regexp.MustCompile(`[0-9a-f]{20,}|\d+(\.\d+)?(ms|s)?`)
	tags     = regexp.MustCompile(`<[^>]*>`)
)

// TestPicture compares docs/demo.svg with what settee demo prints, numbers aside.
func TestPicture(t *testing.T) {
	t.Parallel()
	args := []string{"demo"}
	if !*update {
		args = append(args, "--documents", "100")
	}
	out, err := exec.Command(built(t), args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	svg := picture(t, "make demo", strings.TrimSpace(storeDir.ReplaceAllString(string(out), "/tmp/settee-demo1")))
	if *update {
		compare(t, "docs/demo.svg", svg)
		return
	}
	// What is long is broken into lines elsewhere if its numbers have other lengths.
	shown := func(svg string) string {
		text := html.UnescapeString(tags.ReplaceAllString(strings.ReplaceAll(svg, "\n", ""), ""))
		return space.ReplaceAllString(varies.ReplaceAllString(text, "0"), "")
	}
	require.Equal(t, shown(svg), shown(read(t, "docs/demo.svg")), "docs/demo.svg is stale: run go test ./internal/papers -update")
}

// picture returns a terminal, with a command and what it printed, as SVG.
func picture(t *testing.T, command, printed string) string {
	t.Helper()
	var lines []string
	for line := range strings.SplitSeq("$ "+command+"\n"+printed, "\n") {
		for len(line) > columns {
			lines, line = append(lines, line[:columns]), line[columns:]
		}
		lines = append(lines, line)
	}
	width, height := columns*charWidth10/10+2*margin, len(lines)*lineHeight+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" `+
		`font-family="ui-monospace,Menlo,Consolas,monospace" font-size="12" fill="#d8dee9">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" fill="#20242c"/>`+"\n", width, height)
	for i, line := range lines {
		color := ""
		if strings.HasPrefix(line, "$ ") {
			color = ` fill="#a3be8c"`
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" xml:space="preserve"%s>`, margin, margin+i*lineHeight+lineHeight-5, color)
		require.NoError(t, xml.EscapeText(&b, []byte(line)))
		b.WriteString("</text>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}
