package console

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Obeyed reports whether a terminal would obey a character, or would show others in another order because of it: control
// characters and format characters.
func Obeyed(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
}

// Clean returns a text as one line, without what a terminal would obey.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\r':
			return ' '
		case Obeyed(r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// count writes a number with a comma after each three digits.
func count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// some writes a number of things.
func some(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return count(n) + " " + thing + "s"
}

// rate writes a number per second, with as many digits as are of use.
func rate(n float64) string {
	switch {
	case n >= 100:
		return count(int64(n + 0.5))
	case n >= 10 || n == 0:
		return strconv.FormatFloat(n, 'f', 0, 64)
	}
	return strconv.FormatFloat(n, 'f', 1, 64)
}

// size writes a number of bytes.
func size(n float64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	for n >= 999.5 && len(units) > 1 {
		n, units = n/1000, units[1:]
	}
	if n >= 99.5 || units[0] == "B" {
		return fmt.Sprintf("%.0f %s", n, units[0])
	}
	return fmt.Sprintf("%.1f %s", n, units[0])
}

// span writes a duration in its two largest units.
func span(d time.Duration) string {
	s := int64(max(d, 0).Round(time.Second) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%d h %d min", s/3600, s%3600/60)
	}
	return fmt.Sprintf("%d d %d h", s/86400, s%86400/3600)
}

// endpoint writes the URL of an endpoint without its scheme, for lists.
func endpoint(text string) string {
	if u, err := url.Parse(text); err == nil && u.Host != "" {
		text = u.Host + u.EscapedPath()
	}
	return strings.TrimSuffix(text, "/")
}

// Name returns the name of a job: DATABASE/DOCUMENT, or its id if it was posted to _replicate.
func (j *Job) Name() string {
	if j.Database != nil && j.DocID != nil {
		return *j.Database + "/" + *j.DocID
	}
	return j.ID
}

// Ended reports whether the job will not run again.
func (j *Job) Ended() bool { return j.State == "completed" || j.State == "failed" }

// written returns how many documents the job has written, if that is known.
func (j *Job) written() string {
	if j.Info == nil || j.Info.DocsRead == nil {
		return ""
	}
	return count(j.Info.DocsWritten)
}

// left returns how many changes of the source the job has not processed, if that is known.
func (j *Job) left() string {
	if j.Info == nil || j.Info.ChangesPending == nil {
		return ""
	}
	return count(*j.Info.ChangesPending)
}
