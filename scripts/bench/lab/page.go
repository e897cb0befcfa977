package lab

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// Write puts the tables into a page in Markdown, in place of what is between the line <!-- measured: NAME --> and the next line
// <!-- end -->, with the day and the machine.
func (r *Report) Write(path, name string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(page, fmt.Appendf(nil, "<!-- measured: %s -->\n", name))
	_, after, ended := bytes.Cut(rest, []byte("<!-- end -->\n"))
	if !ok || !ended {
		return fmt.Errorf("%s has no place for %s", path, name)
	}
	machine, err := machine()
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%s<!-- measured: %s -->\n\nMeasured on %s, on %s.\n%s\n<!-- end -->\n%s",
		before, name, time.Now().UTC().Format(time.DateOnly), machine, r.markdown(), after)
	return os.WriteFile(path, []byte(text), 0o644) //nolint:gosec // a page of the documents
}

// markdown returns the tables that have rows.
func (r *Report) markdown() string {
	var text strings.Builder
	for _, one := range r.tables {
		if len(one.rows) == 1 {
			continue
		}
		fmt.Fprintf(&text, "\n%s\n\n", strings.ReplaceAll(one.text, "\n", "\n\n"))
		for i, row := range one.rows {
			fmt.Fprintf(&text, "| %s |\n", strings.Join(row, " | "))
			if i == 0 {
				fmt.Fprintf(&text, "|%s\n", strings.Repeat(" --- |", len(row)))
			}
		}
	}
	return strings.TrimRight(text.String(), "\n")
}

// machine says what this machine is, as Linux has it in /proc.
func machine() (string, error) {
	var texts []string
	for _, file := range []struct{ path, name string }{{"cpuinfo", "model name"}, {"meminfo", "MemTotal"}, {"sys/kernel/osrelease", ""}} {
		text, err := os.ReadFile("/proc/" + file.path)
		if err != nil {
			return "", err
		}
		_, rest, _ := strings.Cut(string(text), file.name)
		line, _, _ := strings.Cut(rest, "\n")
		texts = append(texts, strings.TrimLeft(line, "\t :"))
	}
	return fmt.Sprintf("%d processors (%s), %s of memory, Linux %s, %s", runtime.NumCPU(), texts[0], texts[1], texts[2], runtime.Version()), nil
}
