package replicator

import (
	"encoding/json"
	"net/url"
	"slices"

	"settee/pkg/redact"
)

// masked replaces a secret.
const masked = redact.Mask

// Secrets returns the secrets of the replication, to be masked in texts that quote its endpoints:
// passwords, the secrets of tokens, the values of headers, and strings in the parameters of its filter. Their URLs and user
// names are shown beside these texts.
func (r *Replication) Secrets() redact.Set {
	var set redact.Set
	for _, e := range []Endpoint{r.Source, r.Target} {
		set = e.addSecrets(set)
	}
	return set.With(r.secretParams()...)
}

// Secrets returns the secrets of the endpoint.
func (e Endpoint) Secrets() redact.Set { return e.addSecrets(redact.Set{}) }

func (e Endpoint) addSecrets(set redact.Set) redact.Set {
	if e.Auth != nil {
		set = set.With(e.Auth.secrets()...)
	}
	if e.HasCredentials() {
		set = set.WithBasic(e.Username, e.Password)
	}
	set = set.Beside(e.String(), e.Username, e.RedactedProxy())
	for _, h := range e.Headers {
		set = set.WithHeader(h.Name, h.Value)
	}
	if proxy, err := url.Parse(e.Proxy); err == nil && proxy.User != nil {
		password, _ := proxy.User.Password()
		set = set.WithBasic(proxy.User.Username(), password)
	}
	return set
}

// minSecretParam is the least length in bytes of a secret among a filter's parameters. Shorter
// strings are words that many texts contain.
const minSecretParam = 8

// secretParams returns the strings in the filter's parameters. They may be tokens, and the URL of
// the changes feed contains them.
func (r *Replication) secretParams() (texts []string) {
	var params map[string]any
	if json.Unmarshal(r.QueryParams, &params) != nil {
		return nil
	}
	for _, value := range params {
		if text, ok := value.(string); ok && len(text) >= minSecretParam {
			texts = append(texts, text)
		}
	}
	return texts
}

// Redact masks secrets in the parts of the state that quote the endpoints, because users that do
// not know the secrets can see the state.
func (s *JobState) Redact(secrets redact.Set) {
	s.Error, s.ErrorCode = secrets.Text(s.Error), secrets.Text(s.ErrorCode)
	s.Fault = s.Fault.Redacted(secrets)
	s.History = slices.Clone(s.History)
	for i := range s.History {
		s.History[i].Reason = secrets.Text(s.History[i].Reason)
	}
	for _, value := range []*json.RawMessage{&s.SourceSeq, &s.ThroughSeq, &s.CheckpointedSourceSeq, &s.Result} {
		if secrets.Has(string(*value)) {
			*value = nil // only shown, never used
		}
	}
	if s.Activity == nil {
		return
	}
	activity := *s.Activity
	activity.Waiting = slices.Clone(activity.Waiting)
	for i := range activity.Waiting {
		w := &activity.Waiting[i]
		w.Path, w.Error, w.Fault = secrets.Text(w.Path), secrets.Text(w.Error), w.Fault.Redacted(secrets)
	}
	if activity.Refusing != nil {
		refusing := *activity.Refusing
		refusing.Latest = refusing.Latest.Redacted(secrets)
		activity.Refusing = &refusing
	}
	s.Activity = &activity
}

// Redacted returns the failure with secrets masked in its texts.
func (f Failure) Redacted(secrets redact.Set) Failure {
	f.ID, f.Rev = secrets.Text(f.ID), secrets.Text(f.Rev)
	f.Code, f.Reason = secrets.Text(f.Code), secrets.Text(f.Reason)
	return f
}
