package replicator

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// definition has the fields of a replication as requests and documents have them.
type definition struct {
	Source      definedEndpoint `json:"source"`
	Target      definedEndpoint `json:"target"`
	SourceProxy string          `json:"source_proxy,omitempty"`
	TargetProxy string          `json:"target_proxy,omitempty"`
	plainReplication
	Every         string `json:"every,omitempty"`
	SocketOptions string `json:"socket_options,omitempty"`
}

type definedEndpoint struct {
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
	Auth    any               `json:"auth,omitempty"`
}

type definedAuth struct {
	Basic definedBasic `json:"basic"`
}

type definedBasic struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// Definition returns the replication as a body of POST /_replicate, or as a document, asks for it, a JSON object.
// Passwords, the values of headers and the values of the filter's parameters are masked.
func (r *Replication) Definition() (json.RawMessage, error) {
	d := definition{
		plainReplication: plainReplication(*r), Source: r.Source.defined(), Target: r.Target.defined(),
		SourceProxy: r.Source.RedactedProxy(), TargetProxy: r.Target.RedactedProxy(),
	}
	d.Doubtful = nil // the definition is spelled without doubt
	if r.QueryParams != nil {
		d.QueryParams = stripParams(r.QueryParams)
	}
	if r.Every > 0 {
		d.Every = (time.Duration(r.Every) * time.Second).String()
	}
	if r.SocketOptions != nil {
		d.SocketOptions = r.SocketOptions.String()
	}
	if r.DocIDs != nil {
		escape := strings.NewReplacer("%", "%25", "+", "%2B") // parsing decodes them
		d.DocIDs = make([]string, len(r.DocIDs))
		for i, id := range r.DocIDs {
			d.DocIDs[i] = escape.Replace(id)
		}
	}
	text, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("writing the definition of a replication: %w", err)
	}
	return text, nil
}

func (e Endpoint) defined() definedEndpoint {
	d := definedEndpoint{URL: e.String()}
	if len(e.Headers) > 0 {
		d.Headers = make(map[string]string, len(e.Headers))
		for _, h := range e.Headers {
			d.Headers[h.Name] = masked
		}
	}
	switch {
	case e.Auth != nil:
		d.Auth = map[string]any{e.Auth.Kind: e.Auth.shown()}
	case e.HasCredentials():
		d.Auth = definedAuth{definedBasic{e.Username, masked}}
	}
	return d
}
