package console

import (
	"cmp"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// problem is a cause for which jobs need attention, at one endpoint.
type problem struct {
	endpoint string // the host and the port, or "" if the error names none
	cause    string
	jobs     int64
	example  string    // the name of one of the jobs
	since    time.Time // when the first of them began to fail, zero if that is not known
}

// problems groups jobs by endpoint and cause, the most jobs in front.
func problems(jobs []Job) []problem {
	type key struct{ endpoint, cause string }
	groups := map[key]*problem{}
	for _, job := range jobs {
		at, cause, since := trouble(&job)
		if cause == "" {
			continue
		}
		p := groups[key{at, cause}]
		if p == nil {
			p = &problem{endpoint: at, cause: cause, example: job.Name(), since: since}
			groups[key{at, cause}] = p
		}
		p.jobs++
		if p.since.IsZero() || !since.IsZero() && since.Before(p.since) {
			p.since = since
		}
	}
	out := make([]problem, 0, len(groups))
	for _, p := range groups {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b problem) int {
		return cmp.Or(cmp.Compare(b.jobs, a.jobs), -cmp.Compare(age(a), age(b)), cmp.Compare(a.endpoint+a.cause, b.endpoint+b.cause))
	})
	return out
}

// age orders problems by when they began, those for which that is not known last.
func age(p problem) int64 {
	if p.since.IsZero() {
		return math.MinInt64
	}
	return -p.since.Unix()
}

// trouble returns what is wrong with a job, at which endpoint and since when. The cause is empty if nothing is.
func trouble(j *Job) (at, cause string, since time.Time) {
	if text := j.lastError(); text != "" {
		since = j.CrashingSince
		if since.IsZero() && len(j.History) > 0 {
			since = j.History[0].Timestamp // it has failed
		}
		at, cause = causeOf(text)
		return at, quoted.ReplaceAllString(cause, "…"), since
	}
	if !j.StuckSince.IsZero() {
		cause = "no progress"
		if j.Info != nil && j.Info.Activity != nil {
			for _, wait := range j.Info.Activity.Waiting {
				return hostOf(map[string]string{"source": j.Source, "target": j.Target}[wait.Endpoint]), "no progress: " + wait.Error, j.StuckSince
			}
			cause += ": " + doing(j.Info.Activity)
		}
		return hostOf(j.Source), cause, j.StuckSince
	}
	if j.Info != nil && j.Info.DocWriteFailures > 0 {
		return hostOf(j.Target), "it refuses documents", time.Time{}
	}
	return "", "", time.Time{}
}

// lastError returns the error of a job, also while it runs again.
func (j *Job) lastError() string {
	if text := j.error(); text != "" || j.CrashingSince.IsZero() {
		return text
	}
	for _, event := range j.History {
		if event.Type == "crashed" {
			return event.Reason
		}
	}
	return ""
}

// quoted are names in an error that tell jobs with one cause apart.
var quoted = regexp.MustCompile("`[^`]*`")

// inError are the parts of a run's error that tell jobs with one cause apart: the code, which endpoint it was, the request
// and the URL.
var inError = regexp.MustCompile("^([a-z_]+: )?((?:source|target): )?(.*?)(?:[A-Z]+ )?`?(https?://[^\\s`]+)`?(.*)$")

// causeOf returns the endpoint that the error of a job names, and its cause without what only this job has.
func causeOf(text string) (at, cause string) {
	parts := inError.FindStringSubmatch(text)
	if parts == nil {
		return "", text
	}
	before, after := strings.TrimSpace(parts[3]), strings.TrimLeft(parts[5], ": ")
	if after == "" {
		before = parts[1] + before
	}
	return hostOf(strings.TrimSuffix(parts[4], ":")), strings.TrimSpace(before + " " + after)
}

// hostOf returns the host and the port of a URL.
func hostOf(text string) string {
	if u, err := url.Parse(text); err == nil {
		return u.Host
	}
	return ""
}

// advices say what to do about causes that have one of the texts, which semicolons separate.
var advices = []struct{ texts, advice string }{
	{"x509; certificate", "trust it: [replicator] ssl_trusted_certificates_file"},
	{"unauthorized; password; forbidden", "correct the user or the password of the endpoint"},
	{"could not open", "create the database, set create_target, or correct the name"},
	{"not_found", "write the design document, or correct the filter"},
	{"could not resolve", "correct the name of the host, or ask who runs the name servers"},
	{"connection refused; no route; i/o timeout", "is the server up, and is the port right?"},
	{"refuses documents", "settee jobs failures JOB lists them, with the reasons"},
}

// advice says what to do about a cause, or nothing.
func advice(cause string) string {
	for _, a := range advices {
		for text := range strings.SplitSeq(a.texts, ";") {
			if strings.Contains(cause, strings.TrimSpace(text)) {
				return a.advice
			}
		}
	}
	return ""
}
