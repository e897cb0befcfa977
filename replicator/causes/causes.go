// Package causes tells what the errors of replication jobs have in common: the server that they are about, why runs fail
// there, and what to do about it. The errors of two jobs with one cause have different databases and documents in them.
package causes

import (
	"net/url"
	"regexp"
	"strings"
)

// Cause is why the runs of a job fail.
type Cause struct {
	// URL is the URL that the error names, or "". Endpoint is its host and port.
	URL, Endpoint string
	// Side is source or target if the error says which one it is about, else "".
	Side string
	// Text is the error without what only one job has. It is empty if the error is.
	Text string
}

// inError are the parts of a run's error that tell jobs with one cause apart: the code, which endpoint it was, the request
// and the URL.
var inError = regexp.MustCompile("^([a-z_]+: )?((?:source|target): )?(.*?)(?:[A-Z]+ )?`?(https?://[^\\s`]+)`?(.*)$")

// quoted are names in an error that tell jobs with one cause apart.
var quoted = regexp.MustCompile("`[^`]*`")

// Of returns the cause of an error, in which "…" stands for names in backquotes.
func Of(text string) Cause {
	cause := Short(text)
	cause.Text = quoted.ReplaceAllString(cause.Text, "…")
	return cause
}

// Short is Of with all names.
func Short(text string) Cause {
	parts := inError.FindStringSubmatch(text)
	if parts == nil {
		return Cause{Text: text}
	}
	before, after := strings.TrimSpace(parts[3]), strings.TrimLeft(parts[5], ": ")
	named, colon := strings.CutSuffix(parts[4], ":")
	if after == "" {
		before = parts[1] + before
		for verb, object := range objects {
			if strings.HasSuffix(before, verb) {
				before += object
			}
		}
	} else if colon && before != "" {
		before += ":"
	}
	return Cause{URL: named, Endpoint: HostOf(named), Side: strings.TrimSuffix(parts[2], ": "), Text: strings.TrimSpace(before + " " + after)}
}

// objects say what the verbs of errors are about, in place of URLs.
var objects = map[string]string{"could not open": " the database", "could not resolve": " the host"}

// HostOf returns the host and the port of a URL, or "" if it has none.
func HostOf(text string) string {
	if u, err := url.Parse(text); err == nil {
		return u.Host
	}
	return ""
}

// Remedy is what helps against a cause.
type Remedy string

// The remedies. Unknown means that nothing is known to help.
const (
	Unknown     Remedy = ""
	Certificate Remedy = "certificate" // to trust the authority of a certificate
	Credentials Remedy = "credentials" // to correct a user or a password
	Database    Remedy = "database"    // to create a database, or to correct its name
	Filter      Remedy = "filter"      // to write a design document, or to correct the filter
	Host        Remedy = "host"        // to correct the name of a host
	Server      Remedy = "server"      // to start a server, or to correct its port
	Documents   Remedy = "documents"   // to look at the documents that a target refuses
	WatchLogin  Remedy = "watch_login" // to have a login that may read a server's feed of updates
	Feed        Remedy = "feed"        // to have a feed of updates, or more questions
)

// Refuses is the text of the cause of a target that refuses documents.
const Refuses = "it refuses documents"

// The texts of the causes of changes that are found late, because the sources of parked jobs are asked one by one.
const (
	FeedRefused = "changes are found late: no login of its jobs may read its feed of updates"
	FeedMissing = "changes are found late: it has no feed of updates"
	FeedFails   = "changes are found late: it does not answer, or its feed of updates fails"
)

// remedies have the texts of causes, the first that matches in front, and what to do.
var remedies = []struct {
	remedy Remedy
	texts  []string
	advice string
}{
	{Certificate, []string{"x509", "certificate"}, "If you trust it, add its authority to [replicator] ssl_trusted_certificates_file."},
	{Credentials, []string{"unauthorized", "password", "forbidden"}, "Correct the user or the password."},
	{Database, []string{"could not open"}, "Create the database, or correct its name. With create_target, targets are created."},
	{Filter, []string{"not_found"}, "Write the design document, or correct the filter."},
	{Host, []string{"could not resolve"}, "Correct the name of the host, or ask who runs the name servers."},
	{Server, []string{"connection refused", "no route", "i/o timeout", "stalled", FeedFails}, "Is the server up, and is the port right?"},
	{Documents, []string{Refuses}, "The job lists them, with the reasons."},
	{WatchLogin, []string{FeedRefused}, "Give its watch the login of a server administrator: in [replicator.watches], or in the source of a job."},
	{Feed, []string{FeedMissing}, "If it is a CouchDB, create its database _global_changes. Otherwise raise [replicator] max_questions_per_sec."},
}

// RemedyOf returns what helps against a cause.
func RemedyOf(cause string) Remedy {
	for _, r := range remedies {
		for _, text := range r.texts {
			if strings.Contains(cause, text) {
				return r.remedy
			}
		}
	}
	return Unknown
}

// Advice says what to do in a sentence, or nothing.
func (r Remedy) Advice() string {
	for _, known := range remedies {
		if known.remedy == r {
			return known.advice
		}
	}
	return ""
}
