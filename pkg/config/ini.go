package config

import (
	"slices"
	"strings"
)

// entry is one "key = value" line of an ini file.
type entry struct {
	section, key, text string
	line               int // the first line is 1
}

// remark is a line of an ini file that CouchDB ignores, and settee too. It does not quote the
// line, because a mistyped line may contain a password.
type remark struct {
	line   int
	reason string
}

// parseINI parses an ini file as CouchDB 3.5 does (src/config/src/config.erl). Other readers
// would cut, unquote or join some passwords and URLs.
//
//   - Lines end with LF, CR LF, CR or SUB (0x1a). There are no continuation lines.
//   - A comment starts with ; as the first character of a line, or after a space or
//     a tab anywhere in it. One addition: a line that starts with # is a comment too
//     (to CouchDB it is a setting whose name starts with #, which no setting does).
//   - "[name]" begins a section. The name is everything up to the bracket, including
//     spaces. A line with anything else after the bracket is not a section header,
//     and the section before it continues.
//   - "key = value" is split at the first " = ", so that a key may contain "=" (as the
//     base64 key ids of [jwt_keys] do); a line without one is split at the first "=".
//   - Spaces and tabs around keys and values are trimmed. Case counts. Quotes,
//     backslashes, % and $ have no special meaning.
//   - A key without a value is ignored.
//   - The last of several values with one key counts; all are returned here.
//
// The lines that CouchDB silently ignores are returned as remarks.
func parseINI(data string) ([]entry, []remark) {
	var (
		entries []entry
		remarks []remark
		section string
	)
	skip := func(line int, reason string) { remarks = append(remarks, remark{line, reason}) }

	data = strings.TrimPrefix(data, "\ufeff")
	data = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\x1a", "\n").Replace(data)
	line := 0
	for raw := range strings.SplitSeq(data, "\n") {
		line++
		text := stripComment(raw)
		switch {
		case text == "":
		case text[0] == '[':
			name, rest, closed := strings.Cut(text[1:], "]")
			if name == "" || rest != "" || !closed {
				skip(line, "ignored: not a section header of the form [name]"+stillIn(section))
				continue
			}
			section = name
		case section == "":
			skip(line, "ignored: it is before the first section")
		default:
			key, value, ok := splitSetting(text)
			switch {
			case !ok || key == "":
				skip(line, "ignored: not a section, a setting or a comment")
			case value == "":
				skip(line, "ignored: it has a key but no value")
			default:
				entries = append(entries, entry{section, key, value, line})
			}
		}
	}
	return entries, remarks
}

// maxShownSection is the most bytes of a section's name in a remark, because a file may have many
// remarks.
const maxShownSection = 100

func stillIn(section string) string {
	if section == "" {
		return ""
	}
	if len(section) > maxShownSection {
		section = strings.ToValidUTF8(section[:maxShownSection], "") + "..."
	}
	return "; the next settings still belong to [" + section + "]"
}

// stripComment returns a line without its comment and the blanks around it.
func stripComment(line string) string {
	line = trimBlanks(line)
	if strings.HasPrefix(line, ";") || strings.HasPrefix(line, "#") {
		return ""
	}
	for i := 1; i < len(line); i++ {
		if line[i] == ';' && (line[i-1] == ' ' || line[i-1] == '\t') {
			return trimBlanks(line[:i])
		}
	}
	return line
}

// splitSetting splits "key = value" or "key=value"; ok is false if there is no "=".
func splitSetting(line string) (key, value string, ok bool) {
	key, value, ok = strings.Cut(line, " = ")
	if !ok {
		key, value, ok = strings.Cut(line, "=")
	}
	return trimBlanks(key), trimBlanks(value), ok
}

func trimBlanks(s string) string { return strings.Trim(s, " \t") }

// formatSetting returns a line that parseINI parses to this key and text, and false if there is
// none (for a text with a line break or " ;" in it).
func formatSetting(key, text string) (string, bool) {
	want := []entry{{section: "s", key: key, text: text, line: 2}}
	for _, delimiter := range []string{" = ", "="} { // the second is for a text that starts with ;
		line := key + delimiter + text
		if got, _ := parseINI("[s]\n" + line); slices.Equal(got, want) {
			return line, true
		}
	}
	return "", false
}
